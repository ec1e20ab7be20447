"""A folder is a permission: which room may import what, for every module of the package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pd_locust

PACKAGE = Path(pd_locust.__file__).parent
OUR_ROOMS = ("wire", "load", "target", "analysis", "sim")
MAY_NOT = {
    "spine": {"locust", "gevent", "pandas", "requests", "rich", *(f"pd_locust.{room}" for room in OUR_ROOMS)},
    "wire": {
        "locust",
        "gevent",
        "pandas",
        "requests",
        "pd_locust.load",
        "pd_locust.target",
        "pd_locust.analysis",
        "pd_locust.sim",
    },
    "load": {"pandas", "pd_locust.analysis", "pd_locust.sim"},
    "target": {"locust", "gevent", "pandas", "pd_locust.load", "pd_locust.analysis", "pd_locust.sim"},
    "analysis": {
        "locust",
        "gevent",
        "requests",
        "pd_locust.wire",
        "pd_locust.load",
        "pd_locust.target",
        "pd_locust.sim",
    },
    "sim": {"locust", "gevent", "pandas", "requests"},
    "cli": {"locust", "gevent", "pandas", "requests", "rich"},
}
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room_of(path):
    if len(path.parts) > 1:
        return path.parts[0]
    return "cli" if path.name == "cli.py" else "spine"


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


def violations(source, path):
    """What a module of that path imports without permission, as `path:line: name`."""
    room = room_of(path)
    package = ".".join(["pd_locust", *path.parts[:-1]])
    found = []
    for line, name in imports(ast.parse(source), package, top_only=room == "cli"):
        forbidden = any(name == root or name.startswith(f"{root}.") for root in MAY_NOT[room])
        stranger = (
            room == "sim" and name.split(".")[0] == "pd_locust" and not name.startswith("pd_locust.sim")
        )
        if forbidden or stranger:
            found.append(f"{path}:{line}: {name}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_imports_only_what_its_room_may(path):
    assert violations((PACKAGE / path).read_text(encoding="utf-8"), path) == []


def test_every_room_is_in_the_table_and_has_modules():
    assert {room_of(path) for path in MODULES} == set(MAY_NOT)
    assert len(MODULES) > 40


@pytest.mark.parametrize(
    ("path", "source", "caught"),
    [
        ("record.py", "import pandas as pd", "record.py:1: pandas"),
        ("record.py", "def f():\n    from locust import User", "record.py:2: locust.User"),
        ("plateau.py", "from pd_locust.wire import chat", "plateau.py:1: pd_locust.wire.chat"),
        ("plateau.py", "from pd_locust import analysis", "plateau.py:1: pd_locust.analysis"),
        ("plateau.py", "from . import load", "plateau.py:1: pd_locust.load"),
        ("slo.py", "if TYPE_CHECKING:\n    from gevent.event import Event", "slo.py:2: gevent.event.Event"),
        ("wire/transport.py", "import requests.adapters", "wire/transport.py:1: requests.adapters"),
        ("wire/chat.py", "from ..load import users", "wire/chat.py:1: pd_locust.load.users"),
        ("wire/chat.py", "import importlib\nimportlib.import_module('pandas')", "wire/chat.py:2: pandas"),
        (
            "load/users.py",
            "from pd_locust.sim.server import Server",
            "load/users.py:1: pd_locust.sim.server.Server",
        ),
        ("load/users.py", "from pd_locust import analysis as a", "load/users.py:1: pd_locust.analysis"),
        (
            "analysis/tables.py",
            "from pd_locust.wire.chat import DONE",
            "analysis/tables.py:1: pd_locust.wire.chat.DONE",
        ),
        ("target/control.py", "import pd_locust.load.users", "target/control.py:1: pd_locust.load.users"),
        (
            "sim/server.py",
            "from pd_locust.units import NS_PER_MS",
            "sim/server.py:1: pd_locust.units.NS_PER_MS",
        ),
        ("sim/server.py", "from pd_locust import record", "sim/server.py:1: pd_locust.record"),
        ("sim/server.py", "from .. import record", "sim/server.py:1: pd_locust.record"),
        ("cli.py", "try:\n    import rich\nexcept ImportError:\n    pass", "cli.py:2: rich"),
    ],
)
def test_a_violation_is_caught(path, source, caught):
    assert violations(source, Path(path)) == [caught]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("cli.py", "def report():\n    import pandas"),
        ("cli.py", "import json"),
        ("load/users.py", "from locust import User\nfrom pd_locust.wire import transport"),
        ("wire/chat.py", "from pd_locust.failure import Category\nimport orjson"),
        ("sim/server.py", "from . import job\nfrom pd_locust.sim import model\nimport uvloop"),
        ("record.py", "import pandas_like_name\nfrom locustfiles import x"),
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
            "import pd_locust.wire.transport, pd_locust.wire.replay",
            {"locust", "gevent", "pandas", "requests"},
        ),
        ("import pd_locust.sim.__main__", {"locust", "gevent", "pandas", "requests", "orjson", "sseclient"}),
        ("import pd_locust.load.plugin", {"pandas"}),
        ("import pd_locust.analysis.report", {"locust", "gevent", "sseclient"}),
    ],
)
def test_an_import_loads_nothing_that_it_does_not_need(statement, absent):
    assert loaded_by(statement).isdisjoint(absent)
