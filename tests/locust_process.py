"""Real processes only: Locust as people start it, against the simulated service over loopback."""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
STREAM = ROOT / "locustfiles" / "pd_stream.py"
BENCHMARK = ROOT / "locustfiles" / "pd_benchmark.py"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def own_port(*options: str) -> tuple[str, ...]:
    """`options`, with a port for the workers: at Locust's one default port those of another test would answer."""
    if "--processes" not in options:
        return options
    port = str(free_port())
    return (*options, "--master-bind-port", port, "--master-port", port)


@dataclass(frozen=True)
class Simulator:
    url: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)

    def truth(self) -> dict[str, dict[str, Any]]:
        return self.get("/truth")


@contextmanager
def running_simulator(*options: str) -> Iterator[Simulator]:
    command = [sys.executable, "-m", "pd_sim", "--port", "0", "--exit-with-stdin", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        ready = process.stdout.readline()
        assert " ready http" in ready, ready
        yield Simulator(ready.split(" ready ")[1].split()[0])
        process.stdin.close()


@dataclass(frozen=True)
class Run:
    """A finished Locust process and the files it left."""

    prefix: Path
    returncode: int
    output: str

    def records(self) -> list[dict[str, str]]:
        with Path(f"{self.prefix}_requests.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def stats(self) -> dict[tuple[str, str], dict[str, str]]:
        with Path(f"{self.prefix}_stats.csv").open(newline="") as file:
            return {(row["Type"], row["Name"]): row for row in csv.DictReader(file)}

    def failures(self) -> list[dict[str, str]]:
        with Path(f"{self.prefix}_failures.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def description(self) -> dict[str, Any]:
        return json.loads(Path(f"{self.prefix}_run.json").read_text())
