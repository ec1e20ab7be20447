"""TTFT as other load generators report it, against a service that knows the truth. Prints JSON.

    python benchmarks/peers.py                                   ours and what a user would write with Locust
    python benchmarks/peers.py --venv aiperf=DIR --venv guidellm=DIR --venv sglang=DIR ...
    python benchmarks/peers.py --streams 64 --repeat 1 --only pd_locust sglang

Each peer has a virtual environment of its own (README.md says how they are made). All of them get the same load in
turn: so many streams, all started in one instant, one request after another, each of 16 prompt tokens and `--tokens`
output tokens. The service answers after 200 ms +- 20 % and then every 8 ms, whatever the load, so a figure beyond that
is the client's. Errors are differences between a peer's own mean and p99 and the true ones: most peers
do not say which request was which. CPU time is that of the peer's processes while requests were answered: neither
start nor report.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from against_truth import (
    CLIENT_CORE,
    MODEL,
    CpuClock,
    Load,
    figures,
    machine,
    median,
    pd_locust,
    place,
    service,
    tree_cpu_s,
)
from throughput import CLIENTS, fast_http_user, http_user

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_S = 240
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True)
class Job:
    """What a peer is asked to do. `folder` is its own, `bin` its environment's, `tokenizer` a directory."""

    url: str
    load: Load
    folder: Path
    bin: Path
    tokenizer: Path


@dataclass(frozen=True, slots=True)
class Seen:
    """What a peer reported, in ms."""

    ttft_mean: float
    ttft_p99: float
    tpot_mean: float | None


@dataclass(frozen=True, slots=True)
class Peer:
    """`command` starts it, `read` finds what it reported. `online`: it needs the hub's offline switches unset."""

    command: Callable[[Job], list[str]]
    read: Callable[[Path], Seen]
    online: bool = False


def main() -> int:
    options = _parser().parse_args()
    venvs = {name: Path(path) for name, path in (text.split("=", 1) for text in options.venv)}
    unknown = set(venvs) - set(PEERS)
    if unknown:
        sys.exit(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    names = [name for name in PEERS if name in OWN or name in venvs]
    if options.only:
        names = [name for name in names if name in options.only]
    before = machine()
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer = Path(scratch) / "tokenizer"
        # sglang's environment has nothing but its own wheel.
        foreign = [venv for name, venv in venvs.items() if name != "sglang"]
        if set(names) & set(venvs):
            if not foreign:
                sys.exit("the tokenizer is made in the environment of a peer other than sglang: name one")
            script = str(CLIENTS / "tiny_tokenizer.py")
            subprocess.run([str(foreign[0] / "bin" / "python"), script, str(tokenizer)], check=True)
        document = {
            "tokens": options.tokens,
            "pinned": not options.unpinned,
            "machine_before": before,
            "levels": [_level(streams, names, venvs, tokenizer, options) for streams in options.streams],
        }
    print(json.dumps(document | {"machine_after": machine()}, indent=2))
    return 0


def _level(
    streams: int, names: list[str], venvs: dict[str, Path], tokenizer: Path, options: argparse.Namespace
) -> dict[str, Any]:
    load = Load(streams, options.rounds, options.tokens)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(options.repeat):
        for name in names:
            seen = _run(name, load, venvs.get(name), tokenizer, pinned=not options.unpinned)
            if seen is not None:
                runs[name].append(seen)
                print(f"{streams:4} streams {name:16} {seen}", file=sys.stderr)
    medians = {
        name: {figure: round(median([run[figure] for run in seen]), 3) for figure in seen[0]} | {"runs": len(seen)}
        for name, seen in runs.items()
        if seen
    }  # fmt: skip
    return {"streams": streams, "requests": load.requests, "clients": medians}


def _run(
    name: str, load: Load, venv: Path | None, tokenizer: Path, *, pinned: bool
) -> dict[str, float] | None:
    """Run a peer once; None, and its last words on stderr, when it fails."""
    peer = PEERS[name]
    with tempfile.TemporaryDirectory() as scratch, service() as target:
        job = Job(target.url, load, Path(scratch), (venv or Path(sys.prefix)) / "bin", tokenizer)
        command = peer.command(job)
        with (job.folder / "log").open("w+", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=job.folder,
                env=os.environ | ({} if peer.online else _OFFLINE),
            )
            if pinned:
                place(process.pid, CLIENT_CORE, undisturbed=False)
            with CpuClock(process.pid, target.pid, read=tree_cpu_s) as clock:
                try:
                    code: int | str = process.wait(_LONGEST_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    code = f"no answer in {_LONGEST_S} s"
            if code:
                log.seek(0)
                print(f"{name}: {code}: {log.read()[-1500:]}", file=sys.stderr)
                return None
        truths = [seen for seen in target.truth().values() if seen["tokens"] == load.tokens]
        seen = peer.read(job.folder)
    first_ns, last_ns = min(one["received_ns"] for one in truths), max(one["done_ns"] for one in truths)
    true = figures([(one["first_token_ns"] - one["received_ns"]) / 1e6 for one in truths])
    spans_ms = [(one["last_token_ns"] - one["first_token_ns"]) / 1e6 for one in truths]
    true_tpot_ms = sum(spans_ms) / len(spans_ms) / (load.tokens - 1)
    return {
        "ttft_mean_ms": round(seen.ttft_mean, 2),
        "ttft_p99_ms": round(seen.ttft_p99, 2),
        "error_mean_ms": round(seen.ttft_mean - (true["mean"] or 0.0), 2),
        "error_p99_ms": round(seen.ttft_p99 - (true["p99"] or 0.0), 2),
        "tpot_error_percent": round(((seen.tpot_mean or 0.0) / true_tpot_ms - 1) * 100, 2),
        "requests": len(truths),
        "requests_per_s": round(len(truths) / ((last_ns - first_ns) / 1e9), 1),
        "cpu_s": round(clock.between_s(process.pid, first_ns, last_ns), 2),
        "server_cpu_share": round(
            clock.between_s(target.pid, first_ns, last_ns) / ((last_ns - first_ns) / 1e9), 2
        ),
    }


def _from_records(folder: Path) -> Seen:
    with (folder / "run_requests.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["ttft_ms"]]
    ttft, tpot = (figures([float(row[name]) for row in rows]) for name in ("ttft_ms", "tpot_ms"))
    return Seen(ttft["mean"] or 0.0, ttft["p99"] or 0.0, tpot["mean"])


def _own(command: Callable[[str, Load, Path], list[str]]) -> Peer:
    return Peer(lambda job: command(job.url, job.load, job.folder / "run"), _from_records)


def _aiperf(job: Job) -> list[str]:
    load = job.load
    return [
        str(job.bin / "aiperf"), "profile", "--model", MODEL, "--url", job.url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", str(job.tokenizer), "--use-server-token-count",
        "--isl", "16", "--isl-stddev", "0", "--osl", str(load.tokens), "--osl-stddev", "0",
        "--concurrency", str(load.streams), "--request-count", str(load.requests), "--ui", "none",
        "--artifact-dir", str(job.folder / "out"),
        "--extra-inputs", "ignore_eos:true",
    ]  # fmt: skip


def _from_aiperf(folder: Path) -> Seen:
    seen = json.loads((folder / "out" / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    ttft = seen["time_to_first_token"]
    return Seen(ttft["avg"], ttft["p99"], seen["inter_token_latency"]["avg"])


def _guidellm(job: Job) -> list[str]:
    load = job.load
    return [
        str(job.bin / "guidellm"), "run", "--backend", f"kind=openai_http,target={job.url},model={MODEL}",
        "--profile", f"kind=concurrent,streams={load.streams}",
        "--constraint", f"kind=max_requests,count={load.requests}",
        "--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={load.tokens}",
        "--tokenizer", f"kind=hf_auto,model={job.tokenizer}",
        "--output", f"kind=json,path={job.folder / 'out.json'}", "--disable-progress",
    ]  # fmt: skip


def _from_guidellm(folder: Path) -> Seen:
    metrics = json.loads((folder / "out.json").read_text(encoding="utf-8"))["benchmarks"][0]["metrics"]
    ttft, itl = (metrics[name]["successful"] for name in ("time_to_first_token_ms", "inter_token_latency_ms"))
    return Seen(ttft["mean"], ttft["percentiles"]["p99"], itl["mean"])


def _evalscope(job: Job) -> list[str]:
    load = job.load
    return [
        str(job.bin / "evalscope"), "perf", "--parallel", str(load.streams), "--number", str(load.requests),
        "--model", MODEL, "--url", f"{job.url}/v1/chat/completions", "--api", "openai", "--dataset", "random",
        "--max-tokens", str(load.tokens), "--prefix-length", "0", "--min-prompt-length", "16",
        "--max-prompt-length", "16", "--tokenizer-path", str(job.tokenizer),
        "--extra-args", '{"ignore_eos": true}', "--outputs-dir", str(job.folder / "out"),
    ]  # fmt: skip


def _from_evalscope(folder: Path) -> Seen:
    summary = json.loads(next(folder.rglob("benchmark_summary.json")).read_text(encoding="utf-8"))
    rows = json.loads(next(folder.rglob("benchmark_percentile.json")).read_text(encoding="utf-8"))
    p99 = next(row for row in rows if row["Percentiles"] == "99%")
    return Seen(summary["Avg TTFT (ms)"], p99["TTFT (ms)"], summary["Avg TPOT (ms)"])


def _genai_bench(job: Job) -> list[str]:
    load = job.load
    return [
        "env", "ENABLE_UI=false", "TRANSFORMERS_VERBOSITY=error", str(job.bin / "genai-bench"), "benchmark",
        "--api-backend", "vllm", "--api-base", job.url, "--api-key", "x", "--api-model-name", MODEL,
        "--model-tokenizer", str(job.tokenizer), "--task", "text-to-text",
        "--traffic-scenario", f"D(16,{load.tokens})", "--num-concurrency", str(load.streams),
        "--max-requests-per-run", str(load.requests), "--max-time-per-run", "5", "--metrics-time-unit", "ms",
        "--experiment-base-dir", str(job.folder), "--experiment-folder-name", "out", "--log-dir", str(job.folder),
    ]  # fmt: skip


def _from_genai_bench(folder: Path) -> Seen:
    found = json.loads(next((folder / "out").glob("D16_*.json")).read_text(encoding="utf-8"))
    stats = found["aggregated_metrics"]["stats"]
    return Seen(stats["ttft"]["mean"], stats["ttft"]["p99"], stats["tpot"]["mean"])


def _sglang(job: Job) -> list[str]:
    load = job.load
    return [
        str(job.bin / "python"), str(CLIENTS / "sglang_rust.py"), "--backend", "vllm-chat", "--base-url", job.url,
        "--model", MODEL, "--tokenizer", str(job.tokenizer), "--dataset-name", "random-ids",
        "--random-input-len", "16", "--random-output-len", str(load.tokens), "--random-range-ratio", "1",
        "--num-prompts", str(load.requests), "--max-concurrency", str(load.streams), "--output-file", "out.jsonl",
    ]  # fmt: skip


def _from_sglang(folder: Path) -> Seen:
    seen = json.loads((folder / "out.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return Seen(seen["mean_ttft_ms"], seen["p99_ttft_ms"], seen["mean_tpot_ms"])


OWN = ("pd_locust", "http_user", "fast_http_user")
PEERS = {
    "pd_locust": _own(pd_locust),
    "http_user": _own(http_user),
    "fast_http_user": _own(fast_http_user),
    "sglang": Peer(_sglang, _from_sglang),
    "aiperf": Peer(_aiperf, _from_aiperf, online=True),
    "guidellm": Peer(_guidellm, _from_guidellm),
    "evalscope": Peer(_evalscope, _from_evalscope),
    "genai-bench": Peer(_genai_bench, _from_genai_bench),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", 1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    foreign = ", ".join(name for name in PEERS if name not in OWN)
    add(
        "--venv",
        action="append",
        default=[],
        metavar="PEER=DIR",
        help=f"where a peer is installed: {foreign}",
    )
    add("--only", nargs="+", metavar="PEER", help="of those that could run, these")
    add("--streams", type=int, nargs="+", default=[64, 179, 256], help="concurrent streams")
    add("--tokens", type=int, default=64, help="output tokens a request")
    add("--rounds", type=int, default=8, help="requests a stream")
    add("--repeat", type=int, default=3, help="turns; medians are printed")
    add("--unpinned", action="store_true", help="let clients use both cores, as the service does")
    return parser


if __name__ == "__main__":
    sys.exit(main())
