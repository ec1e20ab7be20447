import csv
import json
from pathlib import Path

import pytest
from analysis.virtual import SWEEP, slower, write_run

from pd_locust.record import COLUMNS, RECORD_VERSION

SUCCESS = {
    "v": RECORD_VERSION,
    "run": 1,
    "phase": "stream",
    "tier": "short",
    "users": 2,
    "part": "sample",
    "worker": 0,
    "user": 1,
    "sent_unix_us": 0,
    "in_flight": 2,
    "reconnected": 0,
    "status": 200,
    "outcome": "success",
    "ttft_ms": 100.0,
    "ttfo_ms": 100.0,
    "ttst_ms": 110.0,
    "tpot_ms": 9.0,
    "itl_p50_ms": 9.0,
    "itl_p99_ms": 9.5,
    "itl_max_ms": 10.0,
    "e2e_ms": 1000.0,
    "prompt_tokens": 16,
    "cached_tokens": 0,
    "output_tokens": 100,
    "tokens_source": "usage",
    "text_chunks": 100,
    "finish_reason": "length",
    "buffered": 0,
    "reads": 100,
    "body_bytes": 20000,
    "loop_lag_ms": 0.2,
    "client_cpu_share": 0.1,
}
FAILURE = {
    **dict.fromkeys(SUCCESS),
    **{name: SUCCESS[name] for name in ("v", "run", "phase", "tier", "users", "part", "worker", "user")},
    **{name: SUCCESS[name] for name in ("sent_unix_us", "in_flight", "reconnected", "buffered", "reads")},
    "status": 503,
    "outcome": "failure",
    "category": "server_error",
    "message": "HTTP 503: no healthy worker",
    "text_chunks": 0,
    "body_bytes": 60,
}


class Files:
    """The files of one run, with PREFIX `run` in a directory of their own."""

    def __init__(self, directory: Path):
        self.prefix = directory / "run"
        self.requests = directory / "run_requests.csv"
        self.history = directory / "run_stats_history.csv"

    def write_requests(self, *rows):
        with self.requests.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for number, row in enumerate(rows):
                writer.writerow({"request_id": f"r{number}", **row})

    def write_run(self, **document):
        (self.prefix.parent / "run_run.json").write_text(json.dumps({"format": 1, **document}))


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture
def success():
    return lambda sent_ms=0, **changes: {**SUCCESS, "sent_unix_us": sent_ms * 1000, **changes}


@pytest.fixture
def failure():
    return lambda sent_ms=0, **changes: {**FAILURE, "sent_unix_us": sent_ms * 1000, **changes}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Sweeps of a baseline, of an equal deployment, and of two that take 5 and 12 % longer for everything."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "base": write_run(folder / "base", SWEEP, seed=1, labels={"pairs": "8", "tp": "1"}),
        "same": write_run(folder / "same", SWEEP, seed=2, labels={"pairs": "8", "tp": "1"}),
        "slow": write_run(
            folder / "slow", SWEEP, seed=3, profile=slower(0.05), labels={"pairs": "8", "tp": "2"}
        ),
        "slower": write_run(folder / "slower", SWEEP, seed=4, profile=slower(0.12)),
    }
