"""What one process of this machine carries: TTFT's error against the simulated service, which knows the truth."""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pd_locust.errors import PdLocustError
from pd_locust.load.simulated import SimulatedService
from pd_locust.plateau import BUSY_CORE
from pd_locust.summary import Summary, percentile

# Version of the stored file.
#   1  first version
CALIBRATION_FORMAT = 1

DEFAULT_LEVELS = (32, 64, 96, 128, 192, 256, 384)
_TOKENS = 64
# Among fewer, p99 is the mishap of a single request.
_LEVEL_REQUESTS = 400
_LEVEL_MAX_S = 15
# A role, the finish, the usage and [DONE].
_EVENTS_BESIDE_TOKENS = 4
_CLOCK_SET_NS = 500_000

_LOCUSTFILE = """\
from locust import events
from pd_locust.load.options import add_benchmark_arguments
from pd_locust.load.plugin import register
from pd_locust.load.shapes import BenchmarkShape
from pd_locust.load.users import StreamUser

register(events, phases=add_benchmark_arguments)

class CalibrationUser(StreamUser):
    pass

class Calibration(BenchmarkShape):
    pass
"""


@dataclass(frozen=True, slots=True)
class Level:
    """So many streams of 8 ms a token in one process.

    Errors are the record's TTFT less the time from its sending to the service's writing of the first token: how late
    the service noticed the request is not the client's fault.
    """

    streams: int
    requests: int
    events_per_s: int
    error_p50_ms: float
    error_p99_ms: float
    cpu_share: float
    us_per_event: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Levels in ascending order."""

    limit_ms: float
    levels: tuple[Level, ...]
    service_late_below_ms: float | None

    @property
    def best(self) -> Level | None:
        """The largest level within the limit: what disturbed a smaller one was not its load.

        One that takes more of a core than a level of a run may take is none to recommend, however right it was.
        """
        return next(
            (
                level
                for level in reversed(self.levels)
                if level.error_p99_ms <= self.limit_ms and level.cpu_share <= BUSY_CORE
            ),
            None,
        )

    @property
    def disturbed(self) -> list[Level]:
        """Levels beyond the limit that are smaller than one within it."""
        return [
            level
            for level in self.levels
            if self.best and level.streams < self.best.streams and level.error_p99_ms > self.limit_ms
        ]

    @property
    def answer(self) -> str:
        """What the table comes to, in one sentence."""
        if self.best is None:
            return (
                f"no level keeps TTFT within {self.limit_ms:g} ms at p99 on {BUSY_CORE:.0%} of a core: "
                "something else uses this machine"
            )
        return (
            f"one process carries {self.best.streams:,} streams, {self.best.events_per_s:,} events/s, "
            f"with TTFT within {self.limit_ms:g} ms at p99"
        )

    def lines(self) -> list[str]:
        """Return the table, how late the service itself was, and the answer; none is wider than 80 columns."""
        late_ms = self.service_late_below_ms
        late = "more than its histogram can tell" if late_ms is None else f"at most {late_ms:g} ms"
        return [
            "streams  requests  events/s  TTFT error ms: p50    p99  CPU us/event  of a core",
            *(
                f"{level.streams:7,} {level.requests:9,} {level.events_per_s:9,} {level.error_p50_ms:19.2f}"
                f" {level.error_p99_ms:6.2f} {level.us_per_event:13.1f} {level.cpu_share:10.0%}"
                for level in self.levels
            ),
            f"the simulated service itself was late by {late} at p99 of its tokens",
            *(
                f"{level.streams:,} streams were disturbed: something else used this machine meanwhile"
                for level in self.disturbed
            ),
            self.answer,
        ]

    def to_json(self) -> dict[str, Any]:
        """Return what is stored, the machine it was measured on included."""
        best = self.best
        return {
            "format": CALIBRATION_FORMAT,
            "measured_unix_s": round(time.time()),
            "host": {"name": platform.node(), "platform": platform.platform(), "cpu_count": os.cpu_count()},
            "versions": {name: version(name) for name in ("pd-locust", "locust", "gevent")}
            | {"python": platform.python_version()},
            "limit_ms": self.limit_ms,
            "streams": best.streams if best else 0,
            "events_per_s": best.events_per_s if best else 0,
            "service_late_below_ms": self.service_late_below_ms,
            "levels": [asdict(level) for level in self.levels],
        }


def calibrate(
    levels: Sequence[int], limit_ms: float, on_level: Callable[[int], None] = lambda _streams: None
) -> Calibration:
    """Hold the levels with Locust in a process of its own, and compare its records with the truth.

    Nothing is pinned to a core: this is how a run will be scheduled, too. `on_level` hears when a level begins.
    """
    ahead_ns = wall_ahead_ns()
    service = SimulatedService.start(Namespace(pd_sim_profile="steady", pd_sim_time_scale=1.0))
    with tempfile.TemporaryDirectory() as scratch:
        prefix = Path(scratch) / "calibration"
        try:
            _hold(service.base_url, prefix, levels, on_level)
            truth = json.loads(_get(f"{service.base_url}/truth"))
            late_ms = _late_below_ms(_get(f"{service.base_url}/metrics").decode())
        finally:
            service.stop()
        with Path(f"{prefix}_requests.csv").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["outcome"] == "success"]
    if abs(wall_ahead_ns() - ahead_ns) > _CLOCK_SET_NS:
        raise PdLocustError("calibrate: the machine's clock was set meanwhile; measure again")
    measured = []
    for streams in sorted(set(levels)):
        of_level = [row for row in rows if row["phase"] == f"sweep/short/{streams}"]
        if any(row["part"] == "sample" for row in of_level):
            measured.append(_level(streams, of_level, truth, ahead_ns))
    if not measured:
        raise PdLocustError("calibrate: no level was held long enough to have a sample")
    return Calibration(limit_ms, tuple(measured), late_ms)


def _hold(url: str, prefix: Path, levels: Sequence[int], on_level: Callable[[int], None]) -> None:
    locustfile = prefix.with_name("locustfile.py")
    locustfile.write_text(_LOCUSTFILE, encoding="utf-8")
    command = [
        sys.executable, "-m", "locust", "-f", str(locustfile), "--headless", "--only-summary", "--csv", str(prefix),
        "--host", url, "--pd-no-check", "--pd-model", "qwen3.5-9b", "--pd-tiers", "short",
        "--pd-max-tokens", str(_TOKENS), "--pd-single-requests", "1", "--pd-requests", "0",
        "--pd-levels", ",".join(map(str, levels)), "--pd-level-max-s", str(_LEVEL_MAX_S),
        "--pd-level-requests", str(_LEVEL_REQUESTS),
    ]  # fmt: skip
    with Path(f"{prefix}.log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=prefix.parent)
        seen: set[int] = set()
        try:
            while process.poll() is None:
                time.sleep(0.5)
                for streams in _levels_begun(Path(f"{prefix}_requests.csv")) - seen:
                    seen.add(streams)
                    on_level(streams)
        finally:
            if process.poll() is None:
                process.kill()
        if process.returncode:
            log.seek(0)
            raise PdLocustError(
                f"calibrate: Locust ended with {process.returncode}: {log.read()[-500:].strip()}"
            )


def _levels_begun(path: Path) -> set[int]:
    if not path.exists():
        return set()
    return {int(found) for found in re.findall(r",sweep/short/(\d+),", path.read_text(encoding="utf-8"))}


def wall_ahead_ns() -> int:
    """How far the wall clock, which records name, is ahead of the one that all processes share."""
    return time.time_ns() - time.perf_counter_ns()


def ttft_error_ms(row: dict[str, str], seen: dict[str, int], ahead_ns: int) -> float:
    """A record's TTFT less the time from its sending to the service's writing of the first token, in ms."""
    return float(row["ttft_ms"]) - (seen["first_token_ns"] + ahead_ns - int(row["sent_unix_us"]) * 1000) / 1e6


def _level(streams: int, rows: list[dict[str, str]], truth: dict[str, Any], ahead_ns: int) -> Level:
    sample = [row for row in rows if row["part"] == "sample"]
    truths = [truth[row["request_id"]] for row in sample]
    errors_ms = sorted(ttft_error_ms(row, seen, ahead_ns) for row, seen in zip(sample, truths, strict=True))
    # Each stream is always in one request, so a request's own rate times their number is the rate of all.
    seconds = Summary.of((seen["done_ns"] - seen["received_ns"]) / 1e9 for seen in truths)
    events_per_s = streams * (_TOKENS + _EVENTS_BESIDE_TOKENS) / (seconds.mean or 1.0)
    shares = [float(row["client_cpu_share"]) for row in sample if row["client_cpu_share"]]
    share = Summary.of(shares).p50 or 0.0
    return Level(
        streams=streams,
        requests=len(sample),
        events_per_s=round(events_per_s),
        error_p50_ms=round(percentile(errors_ms, 50) or 0.0, 3),
        error_p99_ms=round(percentile(errors_ms, 99) or 0.0, 3),
        cpu_share=round(share, 3),
        us_per_event=round(share * 1e6 / events_per_s, 1),
    )


def _late_below_ms(metrics: str) -> float | None:
    """Upper bound, in ms, of how late the service itself wrote 99 of 100 tokens; None beyond its last bucket."""
    found = re.findall(r'token_lateness_seconds_bucket{.*le="(.*?)"} (\d+)', metrics)
    wanted = int(found[-1][1]) * 0.99
    bound_s = next(float(bound) for bound, count in found if int(count) >= wanted)
    return None if bound_s == float("inf") else bound_s * 1000


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own loopback service
        return bytes(answer.read())


def stored_path() -> Path:
    """Where this machine's calibration is kept: the user's cache directory, as the platform has it."""
    if sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pd_locust" / "calibration.json"


def stored() -> dict[str, Any] | None:
    """Return what was measured on this machine with this version, or None."""
    try:
        document = json.loads(stored_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = (
        isinstance(document, dict)
        and document.get("format") == CALIBRATION_FORMAT
        and document.get("host", {}).get("name") == platform.node()
        and document.get("versions", {}).get("pd-locust") == version("pd-locust")
    )
    return document if same else None


def store(document: dict[str, Any]) -> Path:
    """Keep a calibration for the runs to come. Raises PdLocustError where nothing may be written."""
    path = stored_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise PdLocustError(
            f"{path}: {error.strerror}; the calibration is not kept (XDG_CACHE_HOME names another directory)"
        ) from error
    return path
