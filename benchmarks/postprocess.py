"""What `pd-locust report` takes, in seconds and memory, for a million requests and for a day of history. Prints JSON.

    python benchmarks/postprocess.py                         1,000,000 records, and 24 h of history
    python benchmarks/postprocess.py --records 10000000      needs 4 GB of disk
    python benchmarks/postprocess.py --records 100000 --hours 2

The files are invented: single streams, a run at a fixed concurrency and a sweep in three tiers, each level a
closed loop; and Locust's history as --csv-full-history writes it, a row a second for each of eight names. The report
is a process of its own, as people start it; its wall time, CPU time and largest resident memory are the kernel's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from against_truth import machine

from pd_locust.record import COLUMNS, RECORD_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIERS = {"short": (16, 60.0, 2.2), "medium": (850, 90.0, 2.9), "long": (6330, 180.0, 4.3)}
"""Prompt tokens, TTFT of a single stream in ms, and ms that each user adds to it."""
_TOKENS = 256
_LEVELS = (16, 32, 64, 96, 128, 192, 256)
_FAILED_SHARE = 0.002
_START_US = 1_790_000_000_000_000
_AT_A_TIME = 200_000
_HISTORY_NAMES = (
    *((kind, tier) for tier in ("short", "medium") for kind in ("POST", "TTFT", "TPOT")),
    ("GET", "/v1/models"),
)
"""Seven, and Aggregated is the eighth."""


@dataclass(frozen=True, slots=True)
class Held:
    """A level of so many requests."""

    phase: str
    tier: str
    users: int
    requests: int


def main() -> int:
    options = _parser().parse_args()
    before = machine()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        records, history = Path(scratch) / "records", Path(scratch) / "history"
        document: dict[str, Any] = {"machine_before": before}
        if options.records:
            _apart(write_records, records, options.records)
            document["records"] = reported(records, options.repeat, options.records)
        if options.hours:
            seconds = round(options.hours * 3600)
            _apart(write_history, history, seconds)
            rows = seconds * (len(_HISTORY_NAMES) + 1)
            document["history"] = reported(history, options.repeat, rows, "--history-only")
    print(json.dumps(document | {"machine_after": machine()}, indent=2))
    return 0


def _apart(write: Callable[[Path, int], None], prefix: Path, amount: int) -> None:
    """Write in a process of its own: Linux begins a child's largest memory with what its parent holds."""
    process = multiprocessing.get_context("spawn").Process(target=write, args=(prefix, amount))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{write.__name__} ended with {process.exitcode}")


def reported(prefix: Path, repeat: int, rows: int, *options: str) -> dict[str, Any]:
    """Report `repeat` times; the quickest run is the one that neighbours disturbed least."""
    runs = [_report(prefix, *options) for _ in range(repeat)]
    size = sum(path.stat().st_size for path in prefix.parent.glob(f"{prefix.name}_*.csv"))
    return {
        "rows": rows,
        "megabytes": round(size / 1e6),
        "wall_s": min(run[0] for run in runs),
        "cpu_s": min(run[1] for run in runs),
        "peak_rss_gb": max(run[2] for run in runs),
        "html_megabytes": round(prefix.with_name(f"{prefix.name}_report.html").stat().st_size / 1e6, 2),
        "runs": len(runs),
    }


def _report(prefix: Path, *options: str) -> tuple[float, float, float]:
    command = [sys.executable, "-m", "pd_locust.cli", "report", str(prefix), *options]
    started_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - started_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    # Linux counts in KiB, macOS in bytes.
    rss_bytes = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    seen = wall_s, used.ru_utime + used.ru_stime, rss_bytes / 1e9
    print("{:.2f} s, CPU {:.2f} s, {:.2f} GB".format(*seen), file=sys.stderr)
    return round(seen[0], 2), round(seen[1], 2), round(seen[2], 3)


def levels(requests: int) -> list[Held]:
    """Half of all requests in one run at a fixed concurrency, as a soak has it; the other half in a sweep."""
    single = [Held(f"single/{tier}", tier, 1, max(10, requests // 5000)) for tier in TIERS]
    soak = [Held("concurrency/short/64", "short", 64, requests // 2)]
    swept = requests - sum(held.requests for held in (*single, *soak))
    steps = [(tier, users) for tier in TIERS for users in _LEVELS]
    sweep = [Held(f"sweep/{tier}/{users}", tier, users, swept // len(steps)) for tier, users in steps]
    return [*single, *soak, *sweep]


def write_records(prefix: Path, requests: int) -> None:
    """Write PREFIX_requests.csv and PREFIX_run.json."""
    random = np.random.default_rng(1)
    start_us = _START_US
    with prefix.with_name(f"{prefix.name}_requests.csv").open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(COLUMNS) + "\n")
        for held in levels(requests):
            rows, start_us = _records(held, start_us, random)
            for part in (rows[at : at + _AT_A_TIME] for at in range(0, len(rows), _AT_A_TIME)):
                part.to_csv(file, header=False, index=False, lineterminator="\n")
    tiers = [
        {"name": name, "prompt_tokens": tokens, "max_tokens": _TOKENS}
        for name, (tokens, _, _) in TIERS.items()
    ]
    run = {"format": 1, "tiers": tiers, "labels": {"pairs": "8"}, "slo": "ttft_mean<=500ms"}
    prefix.with_name(f"{prefix.name}_run.json").write_text(json.dumps(run), encoding="utf-8")


def _records(held: Held, start_us: int, random: np.random.Generator) -> tuple[pd.DataFrame, int]:
    """Records of a closed loop in the order in which requests ended, and when the next level may begin."""
    prompt_tokens, alone_ms, per_user_ms = TIERS[held.tier]
    turns = -(-held.requests // held.users)
    shape = (turns, held.users)
    ttft_ms = (alone_ms + per_user_ms * held.users) * random.gamma(9, 1 / 9, shape)
    tpot_ms = (6.4 + 0.02 * held.users) * random.normal(1, 0.01, shape)
    e2e_ms = ttft_ms + tpot_ms * (_TOKENS - 1) + 0.3
    sent_us = start_us + (np.cumsum(e2e_ms, axis=0) - e2e_ms) * 1e3 + np.arange(held.users) * 5_000
    turn, user = np.indices(shape)
    order = np.argsort((sent_us + e2e_ms * 1e3).ravel(), kind="stable")[: held.requests]
    chosen = {
        name: values.ravel()[order]
        for name, values in {
            "ttft_ms": ttft_ms, "tpot_ms": tpot_ms, "e2e_ms": e2e_ms, "sent_us": sent_us, "user": user, "turn": turn,
        }.items()
    }  # fmt: skip
    failed = random.random(held.requests) < _FAILED_SHARE
    only_good = {name: np.where(failed, np.nan, chosen[name]) for name in ("ttft_ms", "tpot_ms", "e2e_ms")}
    ids = pd.Series(random.integers(1 << 62, size=held.requests))
    columns = {
        "v": RECORD_VERSION,
        "request_id": "pd-" + ids.astype(str),
        "run": 1,
        "phase": held.phase,
        "tier": held.tier,
        "users": held.users,
        "part": np.select([chosen["turn"] == 0, chosen["turn"] == 1], ["wave", "settling"], "sample"),
        "worker": 0,
        "user": chosen["user"],
        "sent_unix_us": chosen["sent_us"].astype(np.int64),
        "in_flight": held.users,
        "connect_ms": None,
        "reconnected": 0,
        "status": np.where(failed, 503, 200),
        "outcome": np.where(failed, "failure", "success"),
        "category": np.where(failed, "server_error", ""),
        "message": np.where(failed, "HTTP 503: no healthy worker", ""),
        "ttft_ms": only_good["ttft_ms"].round(3),
        "ttfo_ms": only_good["ttft_ms"].round(3),
        "ttst_ms": (only_good["ttft_ms"] + 9).round(3),
        "tpot_ms": only_good["tpot_ms"].round(6),
        "itl_p50_ms": (only_good["tpot_ms"] * 0.99).round(3),
        "itl_p99_ms": (only_good["tpot_ms"] * 1.2).round(3),
        "itl_max_ms": (only_good["tpot_ms"] * 1.5).round(3),
        "e2e_ms": only_good["e2e_ms"].round(3),
        "prompt_tokens": prompt_tokens,
        "cached_tokens": 0,
        "output_tokens": _TOKENS,
        "tokens_source": np.where(failed, "", "usage"),
        "text_chunks": np.where(failed, 0, _TOKENS),
        "finish_reason": np.where(failed, "", "length"),
        "buffered": 0,
        "reads": _TOKENS,
        "body_bytes": 58_000,
        "loop_lag_ms": random.exponential(0.2, held.requests).round(3),
        "client_cpu_share": 0.21,
    }
    last_us = int((chosen["sent_us"] + chosen["e2e_ms"] * 1e3).max())
    return pd.DataFrame(columns)[list(COLUMNS)], last_us + 2_000_000


def write_history(prefix: Path, seconds: int) -> None:
    """Write PREFIX_stats_history.csv with every name each second; an hour at a number of users."""
    percents = ("50", "66", "75", "80", "90", "95", "98", "99", "99.9", "99.99", "100")
    header = [
        "Timestamp", "User Count", "Type", "Name", "Requests/s", "Failures/s", *(f"{percent}%" for percent in percents),
        "Total Request Count", "Total Failure Count", "Total Median Response Time", "Total Average Response Time",
        "Total Min Response Time", "Total Max Response Time", "Total Average Content Size",
    ]  # fmt: skip
    with prefix.with_name(f"{prefix.name}_stats_history.csv").open("w", encoding="utf-8") as file:
        file.write(",".join(header) + "\n")
        file.writelines(_history_lines(seconds, len(percents)))


def _history_lines(seconds: int, percents: int) -> Iterator[str]:
    for second in range(seconds):
        users = 16 * (1 + second // 3600 % 8)
        for kind, name in (*_HISTORY_NAMES, ("", "Aggregated")):
            windows = ",".join(str(100 + users + 10 * step) for step in range(percents))
            count = (second + 1) * users // 3
            yield (
                f"{1_790_000_000 + second},{users},{kind},{name},{users / 3:.6f},0.000000,{windows},"
                f"{count},0,120,{100 + users / 7 + second % 7 / 100},80,900,58000\n"
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", 1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--records", type=int, default=1_000_000, help="request records; 0 leaves them out")
    add("--hours", type=float, default=24.0, help="hours of history; 0 leaves it out")
    add("--repeat", type=int, default=1, help="reports of each")
    add("--scratch", help="directory for the files, which are deleted")
    return parser


if __name__ == "__main__":
    sys.exit(main())
