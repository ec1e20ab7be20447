"""Writing results where the user asked for them; a path that cannot be written is one sentence."""

from __future__ import annotations

import json
from pathlib import Path

from pd_locust.errors import ConfigError


def write_text(path: Path, text: str, option: str = "") -> Path:
    """Write a file. Raises ConfigError that names the option, if the path came from one."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror or error}".strip()) from None
    return path


def write_json(document: object, target: str, option: str = "--json") -> None:
    """Write JSON to a file, or to standard output for `-`."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    if target == "-":
        print(text)
    else:
        write_text(Path(target), text + "\n", option)
