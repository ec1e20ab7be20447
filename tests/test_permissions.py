"""A folder is a permission: what each room may import, of ours and of others; all else is refused."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "pd_locust": {"yaml"},
    "pd_locust/wire": {"sseclient", "orjson", "pd_locust"},
    "pd_locust/check": {"requests", "urllib3", "orjson", "rich", "pd_locust", "pd_locust/wire"},
    # Draws what others hand it; markupsafe, so that no text of theirs becomes markup.
    "pd_locust/draw": {"markupsafe", "pd_locust"},
    "pd_locust/load": {
        "locust",
        "gevent",
        "flask",
        "orjson",
        "rich",
        "pd_locust",
        "pd_locust/wire",
        "pd_locust/check",
        "pd_locust/draw",
    },
    "pd_locust/analysis": {
        "pandas",
        "numpy",
        "jinja2",
        "rich",
        "pyarrow",
        "pd_locust",
        "pd_locust/draw",
    },
    # Imports at the top of the file only: a verb loads what it needs when it is called.
    "pd_locust/cli.py": {"pd_locust", "pd_locust/analysis"},
    # Shares no code with the rest, so that a misunderstanding of the protocol shows as a difference.
    "pd_sim": {"uvloop"},
}
MODULES = sorted(
    path.relative_to(ROOT) for package in ("pd_locust", "pd_sim") for path in (ROOT / package).rglob("*.py")
)


def room_of(path):
    return str(path) if str(path) in MAY_IMPORT else str(path.parent)


def imports(tree, package, *, top_only=False):
    """Yield (line, dotted name) of all imports: relative ones resolved, `import_module("x")` included."""
    nodes = _outside_functions(tree) if top_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*parts, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (
                (node.lineno, argument.value) for argument in node.args if isinstance(argument, ast.Constant)
            )


def _outside_functions(node):
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _outside_functions(child)


def origin(name):
    """The room of a dotted name of ours, else the name of the package; None for the standard library."""
    top, *rest = name.split(".")
    if top in {"pd_locust", "pd_sim"}:
        inner = f"{top}/{rest[0]}" if rest else top
        return next((place for place in (inner, f"{inner}.py") if place in MAY_IMPORT), top)
    return None if top in sys.stdlib_module_names or top == "_typeshed" else top


def violations(source, path):
    """What a module of that path imports without permission, as `path:line: name`."""
    room = room_of(path)
    allowed = MAY_IMPORT[room] | {None, room}
    package = ".".join(path.parent.parts)
    return [
        f"{path}:{line}: {name}"
        for line, name in imports(ast.parse(source), package, top_only=room.endswith("cli.py"))
        if origin(name) not in allowed
    ]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_what_its_room_may(path):
    assert violations((ROOT / path).read_text(encoding="utf-8"), path) == []


def test_every_room_is_in_the_table_and_has_modules():
    assert {room_of(path) for path in MODULES} == set(MAY_IMPORT)
    assert len(MODULES) > 40


@pytest.mark.parametrize(
    ("path", "source", "caught"),
    [
        ("pd_locust/record.py", "import pandas as pd", "pandas"),
        ("pd_locust/record.py", "def f():\n    from locust import User", "locust.User"),
        ("pd_locust/record.py", "import a_package_that_nobody_named", "a_package_that_nobody_named"),
        ("pd_locust/plateau.py", "from pd_locust.wire import chat", "pd_locust.wire.chat"),
        ("pd_locust/plateau.py", "from pd_locust import analysis", "pd_locust.analysis"),
        ("pd_locust/plateau.py", "from . import load", "pd_locust.load"),
        ("pd_locust/plateau.py", "from pd_locust import cli", "pd_locust.cli"),
        ("pd_locust/plateau.py", "import numpy", "numpy"),
        ("pd_locust/slo.py", "if TYPE_CHECKING:\n    from gevent.event import Event", "gevent.event.Event"),
        ("pd_locust/wire/connection.py", "import requests.adapters", "requests.adapters"),
        ("pd_locust/wire/chat.py", "from ..load import users", "pd_locust.load.users"),
        ("pd_locust/draw/svg.py", "import numpy", "numpy"),
        ("pd_locust/draw/svg.py", "from pd_locust.analysis import tables", "pd_locust.analysis.tables"),
        ("pd_locust/wire/chat.py", "import importlib\nimportlib.import_module('pandas')", "pandas"),
        ("pd_locust/load/users.py", "from pd_sim.server import Server", "pd_sim.server.Server"),
        ("pd_locust/load/users.py", "from pd_locust import analysis as a", "pd_locust.analysis"),
        ("pd_locust/analysis/tables.py", "from pd_locust.wire.chat import DONE", "pd_locust.wire.chat.DONE"),
        ("pd_locust/check/control.py", "import pd_locust.load.users", "pd_locust.load.users"),
        ("pd_sim/server.py", "from pd_locust.units import NS_PER_MS", "pd_locust.units.NS_PER_MS"),
        ("pd_sim/server.py", "from pd_locust import record", "pd_locust.record"),
        ("pd_sim/server.py", "import orjson", "orjson"),
        ("pd_locust/cli.py", "try:\n    import rich\nexcept ImportError:\n    pass", "rich"),
    ],
)
def test_a_violation_is_caught(path, source, caught):
    line = 2 if "\n" in source else 1
    assert violations(source, Path(path)) == [f"{path}:{line}: {caught}"]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("pd_locust/cli.py", "def report():\n    import pandas"),
        ("pd_locust/cli.py", "import json"),
        ("pd_locust/load/users.py", "from locust import User\nfrom pd_locust.wire import connection"),
        ("pd_locust/wire/chat.py", "from pd_locust.stream import Category\nimport orjson"),
        ("pd_sim/server.py", "from . import service\nfrom pd_sim import oracle\nimport uvloop"),
    ],
)
def test_what_is_permitted_is_not_caught(path, source):
    assert violations(source, Path(path)) == []


def loaded_by(statement):
    """Top-level names of the modules that a fresh interpreter has loaded after the statement."""
    code = f"import sys\n{statement}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        (
            "import pd_locust",
            {"locust", "gevent", "pandas", "requests", "rich", "yaml", "sseclient", "orjson"},
        ),
        ("import pd_locust.cli", {"locust", "gevent", "pandas", "requests", "rich"}),
        ("import pd_locust.plateau, pd_locust.capacity", {"locust", "gevent", "pandas", "requests"}),
        (
            "import pd_locust.wire.connection, pd_locust.wire.replay",
            {"locust", "gevent", "pandas", "requests"},
        ),
        ("import pd_sim.__main__", {"pd_locust", "locust", "gevent", "pandas", "requests", "orjson"}),
        ("import pd_locust.load.plugin", {"pandas"}),
        ("import pd_locust.analysis.report", {"locust", "gevent", "sseclient"}),
    ],
)
def test_an_import_loads_nothing_that_it_does_not_need(statement, absent):
    assert loaded_by(statement).isdisjoint(absent)
