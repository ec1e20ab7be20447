"""sglang's Rust client without the rest of sglang: its extension module, from a wheel without dependencies.

Run with the Python of a venv in which `pip install --no-deps sglang` was said; options are the client's own.
"""

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from sysconfig import get_path

FOLDER = Path(get_path("purelib")) / "sglang" / "srt" / "rust_extensions"


def main() -> int:
    path = next(FOLDER.glob("_bench.*.so"))
    spec = spec_from_file_location("_bench", path, loader=ExtensionFileLoader("_bench", str(path)))
    client = module_from_spec(spec)
    spec.loader.exec_module(client)
    client.run_argv(["sglang-bench", *sys.argv[1:]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
