from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from locust_process import Run, Simulator, own_port, running_simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def simulator() -> Iterator[Callable[..., Simulator]]:
    """Start simulators with options; all of them end with the test."""
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(running_simulator(*options))


@pytest.fixture
def run_locust(tmp_path: Path) -> Callable[..., Run]:
    """Run Locust headless to its end, records under `tmp_path`."""

    def run(locustfile: Path, *options: str, env: dict[str, str] | None = None, timeout_s: float = 90) -> Run:
        prefix = tmp_path / "run"
        command = [
            sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", "--only-summary",
            "--csv", str(prefix), *own_port(*options),
        ]  # fmt: skip
        finished = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=tmp_path
        )
        return Run(prefix, finished.returncode, finished.stdout + finished.stderr)

    return run
