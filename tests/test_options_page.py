from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAKE = ROOT / "tests" / "make_options.py"


def test_the_page_of_options_is_in_step_and_names_each_once():
    # A process of its own: importing Locust changes sockets and threads for everything beside it.
    made = subprocess.run([sys.executable, MAKE, "-"], capture_output=True, text=True, check=True, timeout=60)

    assert made.stdout == (ROOT / "docs" / "options.md").read_text(encoding="utf-8"), (
        "run: python tests/make_options.py"
    )
    assert "| `--pd-max-tokens` `N` | 256 | output tokens of every tier |" in made.stdout
    assert (
        "| `--excel` `FILE` |  | write all tables as one workbook there; needs pd-locust[excel] |"
        in made.stdout
    )
    assert "| `--pd-resolution` `N` | 1, or 1 % | users" in made.stdout
    of_locustfiles = re.findall(r"^\| `(--pd-[a-z-]+)`", made.stdout, re.MULTILINE)
    # Each kind of level has its own longest time.
    once = [name for name in of_locustfiles if name != "--pd-level-max-s"]
    assert len(once) > 25
    assert len(set(once)) == len(once)
