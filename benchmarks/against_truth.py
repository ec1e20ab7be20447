"""Runs a client against the simulated service on two cores and joins what it recorded with what was true.

Shared by accuracy.py and throughput.py. The service and the client are processes of their own, each on its own
core where there are two. Both stamp with the clock that all processes of a Linux machine share.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pd_locust.load import calibrate
from pd_locust.summary import Summary, percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
SPREAD = ROOT / "locustfiles" / "pd_benchmark.py"
AT_ONCE = ROOT / "benchmarks" / "clients" / "at_once.py"
MODEL = "qwen3.5-9b"
TPOT_MS = 8.0
TTFT_MS = 200.0
PROMPTS = {"short": 16, "xlong": 20_890}

# The service also sends a role, a finish, the usage and [DONE]; each is an event that a client has to read.
EVENTS_BESIDE_TOKENS = 4

CLIENT_CORE = 0
SERVER_CORE = 1

_SAMPLE_S = 0.05
_LATENESS = "pd_locust_sim:token_lateness_seconds"


@dataclass(frozen=True, slots=True)
class Load:
    """So many streams at a time, each of them so many requests one after another."""

    streams: int
    rounds: int
    tokens: int
    tier: str = "short"
    at_once: bool = True

    @property
    def requests(self) -> int:
        """All of them together."""
        return self.streams * self.rounds


class Service:
    """The simulated service while it runs."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        self.pid = process.pid

    def truth(self) -> dict[str, dict[str, Any]]:
        """What happened to each request, by its id."""
        return dict(json.loads(self._get("/truth")))

    def lateness_buckets(self) -> list[tuple[float, float]]:
        """Upper bound in seconds and cumulative count: how late the service itself wrote its tokens."""
        found = re.findall(rf'{_LATENESS}_bucket{{.*le="(.*?)"}} (\d+)', self._get("/metrics").decode())
        return [(float(bound), float(count)) for bound, count in found]

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:  # noqa: S310 - our own
            return bytes(answer.read())


@contextmanager
def service(*, undisturbed: bool = False) -> Iterator[Service]:
    """Start the steady profile on a free loopback port, alone on the second core."""
    command = [
        sys.executable,
        "-m",
        "pd_sim",
        "--port",
        "0",
        "--exit-with-stdin",
        "--profile",
        "steady",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        place(process.pid, SERVER_CORE, undisturbed=undisturbed)
        assert process.stdin is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101
        ready = process.stdout.readline()
        if " ready http" not in ready:
            sys.exit(f"the simulated service did not start: {ready}")
        yield Service(process, ready.split(" ready ")[1].split()[0])
        process.stdin.close()


def place(pid: int, core: int, *, undisturbed: bool) -> None:
    """Pin a process to a core, if there is more than one; `undisturbed` lets it go before everything else there."""
    if (os.cpu_count() or 1) > 1:
        with contextlib.suppress(OSError):  # a container may forbid it
            os.sched_setaffinity(pid, {core})
    if undisturbed:
        os.setpriority(os.PRIO_PROCESS, pid, -20)


@contextmanager
def awake() -> Iterator[None]:
    """Keep all cores from sleeping, with work that gives way to any other.

    A virtual machine's core that sleeps is woken by the hypervisor, when it gets to it: up to milliseconds that are
    neither the client's nor the service's.
    """
    turn_over = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    idlers = []
    try:
        for core in sorted(os.sched_getaffinity(0)):
            idlers.append(subprocess.Popen([sys.executable, "-c", turn_over, str(core)]))
            os.sched_setscheduler(idlers[-1].pid, os.SCHED_IDLE, os.sched_param(0))
        yield
    finally:
        for idler in idlers:
            idler.kill()
            idler.wait()


class CpuClock:
    """Samples the CPU time of processes, so that the part of it that was load can be told from start and report."""

    def __init__(self, *pids: int, read: Callable[[int], float] | None = None) -> None:
        self._read = read or cpu_s
        self._samples: dict[int, list[tuple[int, float]]] = {pid: [] for pid in pids}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def between_s(self, pid: int, start_ns: int, end_ns: int) -> float:
        """CPU seconds spent between two moments of time.perf_counter_ns()."""
        return self._at_s(pid, end_ns) - self._at_s(pid, start_ns)

    def _at_s(self, pid: int, moment_ns: int) -> float:
        samples = self._samples[pid]
        after = min(max(bisect_left(samples, (moment_ns, 0.0)), 1), len(samples) - 1)
        (from_ns, from_s), (to_ns, to_s) = samples[after - 1], samples[after]
        return from_s + (to_s - from_s) * (moment_ns - from_ns) / (to_ns - from_ns)

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            for pid, samples in self._samples.items():
                with contextlib.suppress(OSError):  # it has ended
                    samples.append((time.perf_counter_ns(), self._read(pid)))


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process, exact to the nanosecond where the kernel says it."""
    ran_ns = sum(
        int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )
    return ran_ns / 1e9


def pd_locust(url: str, load: Load, prefix: Path) -> list[str]:
    """Our users under Locust: exactly the load's requests at its concurrency.

    As people start them, a single request first tells over how long the users' first ones are spread; at once is
    the herd that other generators send.
    """
    return [
        sys.executable, "-m", "locust", "-f", str(AT_ONCE if load.at_once else SPREAD), "--headless",
        "--only-summary", "--csv", str(prefix), "--host", url, "--users", str(load.streams), "--pd-no-check",
        "--pd-model", MODEL, "--pd-tiers", load.tier, "--pd-concurrency-tier", load.tier,
        "--pd-max-tokens", str(load.tokens), "--pd-requests", str(load.requests),
        "--pd-single-requests", "0" if load.at_once else "1", "--pd-levels", "",
    ]  # fmt: skip


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all that it started and that still run."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    whole_s = cpu_s(pid)
    for child in children:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            whole_s += tree_cpu_s(child)
    return whole_s


@dataclass(frozen=True, slots=True)
class Measured:
    """What a client recorded, request by request, beside the truth, and what it cost."""

    rows: list[dict[str, str]]
    truths: list[dict[str, Any]]
    client_cpu_s: float
    server_cpu_s: float
    seconds: float
    lateness: list[tuple[float, float]]
    wall_ahead_ns: int

    @property
    def events(self) -> int:
        """Events that the client had to read."""
        return sum(truth["tokens"] + EVENTS_BESIDE_TOKENS for truth in self.truths)

    @property
    def us_per_event(self) -> float:
        """CPU time of the whole client process, while requests were being answered."""
        return self.client_cpu_s * 1e6 / self.events

    def ttft_errors_ms(self) -> list[float]:
        """What the client recorded less what was true."""
        return [
            float(row["ttft_ms"]) - (truth["first_token_ns"] - truth["received_ns"]) / 1e6
            for row, truth in zip(self.rows, self.truths, strict=True)
        ]

    def stamp_errors_ms(self) -> list[float]:
        """What the client recorded less the time from its own sending to the first token's writing.

        Unlike `ttft_errors_ms` without the time that the service took to notice the request, which is its own.
        """
        return [
            calibrate.ttft_error_ms(row, truth, self.wall_ahead_ns)
            for row, truth in zip(self.rows, self.truths, strict=True)
            if row.get("sent_unix_us")
        ]

    def tpot_errors(self) -> list[float]:
        """Relative, without sign; only of rows that have a TPOT."""
        errors = []
        for row, truth in zip(self.rows, self.truths, strict=True):
            if row.get("tpot_ms") and truth["tokens"] > 1:
                span_ms = (truth["last_token_ns"] - truth["first_token_ns"]) / 1e6
                errors.append(abs(float(row["tpot_ms"]) / (span_ms / (truth["tokens"] - 1)) - 1))
        return errors

    def to_json(self) -> dict[str, Any]:
        """Everything worth printing."""
        true_ms = [(truth["first_token_ns"] - truth["received_ns"]) / 1e6 for truth in self.truths]
        return {
            "requests": len(self.rows),
            "events": self.events,
            "events_per_s": round(self.events / self.seconds),
            "ttft_true_ms": figures(true_ms),
            "ttft_error_ms": figures(self.ttft_errors_ms()),
            "stamp_error_ms": figures(self.stamp_errors_ms(), 4),
            "tpot_error_percent": figures([error * 100 for error in self.tpot_errors()], 4),
            "client_cpu_s": round(self.client_cpu_s, 3),
            "client_cpu_share": round(self.client_cpu_s / self.seconds, 3),
            "client_us_per_event": round(self.us_per_event, 2),
            "server_cpu_s": round(self.server_cpu_s, 3),
            "server_cpu_share": round(self.server_cpu_s / self.seconds, 3),
            "server_lateness_below_ms": {
                f"p{percent}": bound_of(self.lateness, percent) for percent in (50, 95, 99)
            },
        }


def figures(values: Sequence[float], digits: int = 3) -> dict[str, float | None]:
    """Mean, p50, p95, p99 and max, rounded."""
    seen = Summary.of(values)
    return {
        name: None if (value := getattr(seen, name)) is None else round(value, digits)
        for name in ("mean", "p50", "p95", "p99", "max")
    }


def bound_of(buckets: list[tuple[float, float]], percent: float) -> float | None:
    """Upper bound, in ms, of the bucket in which this percentile lies; None beyond the last one."""
    wanted = buckets[-1][1] * percent / 100
    bound_s = next(bound_s for bound_s, count in buckets if count >= wanted)
    return None if bound_s == float("inf") else bound_s * 1000


def run(
    command: Callable[[str, Load, Path], list[str]], load: Load, *, undisturbed: bool = False
) -> Measured:
    """Start service and client afresh, wait for the client's end, and join. Exits with what the client said."""
    ahead_ns = calibrate.wall_ahead_ns()
    with (
        tempfile.TemporaryDirectory() as scratch,
        awake() if undisturbed else contextlib.nullcontext(),
        service(undisturbed=undisturbed) as target,
    ):
        prefix = Path(scratch) / "run"
        process = subprocess.Popen(
            command(target.url, load, prefix), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        place(process.pid, CLIENT_CORE, undisturbed=undisturbed)
        with CpuClock(process.pid, target.pid) as clock:
            output, _ = process.communicate(timeout=300)
        if process.returncode:
            sys.exit(f"{command} ended with {process.returncode}:\n{output[-2000:]}")
        truth = target.truth()
        lateness = target.lateness_buckets()
        with Path(f"{prefix}_requests.csv").open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if not row.get("phase", "").startswith("single/")]
    if len(rows) != load.requests or not all(row["ttft_ms"] for row in rows):
        sys.exit(f"{command}: {len(rows)} of {load.requests} requests were recorded:\n{output[-2000:]}")
    truths = [truth[row["request_id"]] for row in rows]
    start_ns = min(seen["received_ns"] for seen in truths)
    end_ns = max(seen["done_ns"] for seen in truths)
    return Measured(
        rows,
        truths,
        clock.between_s(process.pid, start_ns, end_ns),
        clock.between_s(target.pid, start_ns, end_ns),
        (end_ns - start_ns) / 1e9,
        lateness,
        (ahead_ns + calibrate.wall_ahead_ns()) // 2,
    )


def machine() -> dict[str, Any]:
    """Return what a reader needs to doubt the figures: cores, load average, and CPU time the hypervisor took."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    return {
        "cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "stolen_s": round(int(fields[8]) / os.sysconf("SC_CLK_TCK"), 2),
        "python": sys.version.split()[0],
    }


def median(values: Sequence[float]) -> float:
    return percentile(sorted(values), 50) or 0.0
