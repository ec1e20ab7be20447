"""Writes docs/options.md: every option of the locustfiles and of pd-locust, from the code.

python tests/make_options.py        writes the page; with -, prints it
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from locust.argument_parser import get_empty_argument_parser

from pd_locust import cli
from pd_locust.load import options
from pd_sim import __main__ as sim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"

_HEAD = """\
# Options

Written by `python tests/make_options.py`; a test fails when this page is out of step.

Locust's own options go on as they are: `--host`, `--users`, `--run-time`, `--csv`, `--html`, `--processes`, `--master`,
`--worker`, `--class-picker`, `--web-login` and the rest. Options of locustfiles can stand in `locust.conf` as well.
"""
# `(default 5; 0 leaves the part out)`, or `[the run's]` after a blank: `pd-locust[excel]` is no default.
_DEFAULT = re.compile(
    r"\(default:? (?P<paren>[^;)]+)(?:; (?P<also>[^)]+))?\)$|(?:^|\s)\[(?P<bracket>[^\]]+)\]$"
)
_LOCUSTFILES: tuple[tuple[str, Callable[[argparse.ArgumentParser], None]], ...] = (
    ("Every locustfile", options.add_arguments),
    ("`locustfiles/pd_benchmark.py`", options.add_benchmark_arguments),
    ("`locustfiles/pd_capacity.py`", options.add_capacity_arguments),
)


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for title, add in _LOCUSTFILES:
        parser = get_empty_argument_parser(add_help=False, default_config_files=[])
        known = set(parser._actions)
        add(parser)
        parts.append(f"## {title}\n\n{_table(one for one in parser._actions if one not in known)}")
    for name, verb in _verbs().items():
        usage = f"{verb.description}\n\n" if verb.description else ""
        parts.append(f"## `pd-locust {name}`\n\n{usage}{_table(verb._actions)}")
    return "\n".join(parts)


def _verbs() -> dict[str, argparse.ArgumentParser]:
    (verbs,) = (action for action in cli._parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(verbs.choices) | {"sim": sim.make_parser()}


def _table(actions: Iterable[argparse.Action]) -> str:
    rows = [_row(action) for action in actions if not isinstance(action, argparse._HelpAction)]
    return "| option | default | what it does |\n|---|---|---|\n" + "".join(rows)


def _row(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    takes = "" if action.nargs == 0 or not action.option_strings else f" `{_value(action)}`"
    says, default = _says_and_default(action)
    if action.choices and action.metavar:
        says += f": {', '.join(map(str, action.choices))}"
    variable = getattr(action, "env_var", None)
    also = f"; also `{variable}`" if variable else ""
    return f"| {names}{takes} | {_escaped(default)} | {_escaped(says)}{also} |\n"


def _value(action: argparse.Action) -> str:
    # A bar would end the cell.
    choices = "/".join(map(str, action.choices)) if action.choices else ""
    return str(action.metavar or choices or action.dest.upper()).replace("|", "/")


def _says_and_default(action: argparse.Action) -> tuple[str, str]:
    """Help without the default that it names, and that default in its words; else the code's."""
    text = (action.help or "").replace("%(default)s", f"{action.default}").replace("%%", "%")
    named = _DEFAULT.search(text)
    if named:
        also = f"({named['also']})" if named["also"] else ""
        return f"{text[: named.start()].rstrip()} {also}".strip(), named["paren"] or named["bracket"]
    if action.default in (None, "", [], False, argparse.SUPPRESS):
        return text.strip(), ""
    return text.strip(), f"{action.default:g}" if isinstance(action.default, float) else str(action.default)


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page(), encoding="utf-8")
