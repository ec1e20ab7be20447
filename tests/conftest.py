"""Tests marked `alone` have the machine for themselves: a machine that also runs others would falsify them."""

from __future__ import annotations

import fcntl
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator


# How long an example takes is a matter of what else runs.
settings.register_profile("busy machine", deadline=None)
settings.load_profile("busy machine")


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with them: later, they would wait for whatever long test runs just then, and all others for them."""
    items.sort(key=_is_alone, reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Let an `alone` test wait for the tests of xdist's other workers, and those for it.

    Nothing is held in a pytest that a test starts: the test holds the lock already.
    """
    with ExitStack() as held:
        if hasattr(item.config, "workerinput"):
            folder = Path(item.config._tmp_path_factory.getbasetemp()).parent  # type: ignore[attr-defined]
            with (folder / "turn.lock").open("w") as turn:
                # One that waits keeps all later ones from starting, or its own turn would never come.
                fcntl.flock(turn, fcntl.LOCK_EX)
                machine = held.enter_context((folder / "machine.lock").open("w"))
                fcntl.flock(machine, fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)
        return (yield)
