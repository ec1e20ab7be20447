"""What a request costs between worker and master, and whether memory grows with requests. Prints JSON.

    python benchmarks/scale.py                            two minutes: 2 workers, 96 users, plain stream
    python benchmarks/scale.py --seconds 300 --users 400

The simulated service answers short requests at twenty times its speed, so that a minute has as many as an hour. What
workers send goes through a relay that counts its bytes; memory and CPU time are the kernel's. `bytes_per_request`
is the slope of memory over the second half of the run, when everything that is made once has been made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from against_truth import MODEL, ROOT, cpu_s, machine

_SAMPLE_S = 0.5


class Relay:
    """Stands between workers and master and counts what each side sends."""

    def __init__(self, master_port: int) -> None:
        self.to_master_bytes = self.to_workers_bytes = 0
        self._master_port = master_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            worker, _ = self._listener.accept()
            master = socket.create_connection(("127.0.0.1", self._master_port))
            for source, sink, name in (
                (worker, master, "to_master_bytes"),
                (master, worker, "to_workers_bytes"),
            ):
                threading.Thread(target=self._pump, args=(source, sink, name), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):  # a side has gone
            while some := source.recv(65_536):
                setattr(self, name, getattr(self, name) + len(some))
                sink.sendall(some)


def main() -> int:
    options = _parser().parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(_measure(options, Path(scratch)) | {"machine_before": before}, indent=2))
    return 0


def _measure(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    prefix = scratch / "run"
    master_port = _free_port()
    relay = Relay(master_port)
    load = [
        "--pd-no-check",
        "--pd-model",
        MODEL,
        "--pd-tiers",
        "short",
        "--pd-max-tokens",
        str(options.tokens),
    ]
    protocol = ROOT / "locustfiles" / ("pd_benchmark.py" if options.count else "pd_stream.py")
    sim = [sys.executable, "-m", "pd_sim", "--port", "0", "--exit-with-stdin", "--profile", "steady"]
    with subprocess.Popen(
        [*sim, "--time-scale", "0.05"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdin is not None  # noqa: S101 - for the type checker
        assert service.stdout is not None  # noqa: S101
        load += ["--host", service.stdout.readline().split(" ready ")[1].split()[0]]
        locust = [sys.executable, "-m", "locust", "-f", str(protocol), "--headless", "--only-summary", *load]
        bounds = ["--users", str(options.users), "--run-time", f"{options.seconds}s"]
        if options.count:
            bounds += ["--pd-single-requests", "0", "--pd-levels", "", "--pd-requests", "100000000"]
        else:
            bounds += ["--spawn-rate", str(options.users)]
        ports = ["--master-bind-port", str(master_port), "--expect-workers", str(options.workers)]
        with (scratch / "log").open("w") as log:
            master = subprocess.Popen(
                [*locust, *bounds, "--master", *ports, "--csv", str(prefix)], stdout=log, stderr=log
            )
            time.sleep(2)
            workers = [
                subprocess.Popen([*locust, "--worker", "--master-port", str(relay.port)], stdout=log, stderr=log)
                for _ in range(options.workers)
            ]  # fmt: skip
            samples = _sample(master, workers[0], Path(f"{prefix}_requests.csv"))
            cpu = {"master": samples[-1]["master_cpu_s"], "worker": samples[-1]["worker_cpu_s"]}
            for worker in workers:
                worker.wait(30)
        service.stdin.close()
    if master.returncode:
        sys.exit(f"Locust ended with {master.returncode}: {(scratch / 'log').read_text()[-1500:]}")
    requests = Path(f"{prefix}_requests.csv").read_bytes().count(b"\n") - 1
    half = samples[len(samples) // 2 :]
    return {
        "users": options.users,
        "workers": options.workers,
        "requests": requests,
        "seconds": options.seconds,
        "worker_to_master_bytes_per_request": round(relay.to_master_bytes / requests),
        "master_to_worker_bytes_per_request": round(relay.to_workers_bytes / requests, 1),
        "csv_bytes_per_request": round(Path(f"{prefix}_requests.csv").stat().st_size / requests),
        "master_cpu_us_per_request": round(cpu["master"] * 1e6 / requests),
        "worker_cpu_us_per_request": round(cpu["worker"] * 1e6 * options.workers / requests),
        "master_rss_mb": {"half": _mb(half[0], "master"), "end": _mb(half[-1], "master")},
        "worker_rss_mb": {"half": _mb(half[0], "worker"), "end": _mb(half[-1], "worker")},
        "master_bytes_per_request": _slope(half, "master"),
        "worker_bytes_per_request": _slope(half, "worker") * options.workers,
        "machine_after": machine(),
    }


def _sample(
    master: subprocess.Popen[bytes], worker: subprocess.Popen[bytes], csv: Path
) -> list[dict[str, float]]:
    """Requests written, memory and CPU time until the master ends; only while requests come."""
    samples: list[dict[str, float]] = []
    while master.poll() is None:
        time.sleep(_SAMPLE_S)
        with contextlib.suppress(OSError, IndexError):  # not there yet, or ended
            requests = csv.stat().st_size
            if samples and requests == samples[-1]["written"] and worker.poll() is None:
                continue
            samples.append(
                {
                    "written": requests,
                    "master": _rss_bytes(master.pid),
                    "worker": _rss_bytes(worker.pid),
                    "master_cpu_s": cpu_s(master.pid),
                    "worker_cpu_s": cpu_s(worker.pid),
                }
            )
    whole = csv.read_bytes().count(b"\n") - 1
    for sample in samples:
        sample["requests"] = sample["written"] / csv.stat().st_size * whole
    # The last ones may be of the end, when tables are made.
    return samples[:-4]


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _slope(samples: list[dict[str, float]], who: str) -> float:
    if len(samples) < 3:
        return float("nan")
    fitted = statistics.linear_regression([one["requests"] for one in samples], [one[who] for one in samples])
    return round(fitted.slope, 1)


def _mb(sample: dict[str, float], who: str) -> float:
    return round(sample[who] / 1e6, 1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", 1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--users", type=int, default=96, help="concurrent users")
    add("--workers", type=int, default=2, help="worker processes")
    add("--seconds", type=int, default=100, help="how long")
    add("--tokens", type=int, default=8, help="output tokens a request")
    add("--count", action="store_true", help="a run at a fixed concurrency instead of a plain stream")
    return parser


if __name__ == "__main__":
    sys.exit(main())
