"""What reading one event costs: ours, a bare reader, and what a user would write instead. Prints JSON.

    python benchmarks/throughput.py            both parts
    python benchmarks/throughput.py --quick    fewer rounds, no peers; below a minute

Part one has no network: the same recorded reads through the parser and the record, and through one JSON decode
an event. Part two runs each client against the simulated service in turn, again and again, so that all of them see
the same neighbours; ratios are between medians of CPU time an event, whole process, while requests were answered.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from against_truth import EVENTS_BESIDE_TOKENS, Load, Measured, figures, machine, median, pd_locust, run

from pd_locust.record import Part, RequestContext, RequestRecord
from pd_locust.wire.events import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLIENTS = Path(__file__).parent / "clients"
_STREAMS_A_ROUND = 100
_TOKENS = 256


def main() -> int:
    options = _parser().parse_args()
    before = machine()
    document: dict[str, Any] = {"undisturbed": options.undisturbed, "machine_before": before}
    document["without_network"] = without_network(options.rounds)
    print(json.dumps(document["without_network"]), file=sys.stderr)
    load = Load(options.streams, 6, options.tokens)
    commands = {"bare": bare, "wire": wire_only, "pd_locust": pd_locust}
    if not options.quick:
        commands |= {"http_user": http_user, "fast_http_user": fast_http_user}
    document["with_network"] = with_network(commands, load, options)
    print(json.dumps(document | {"machine_after": machine()}, indent=2))
    return 0


def without_network(rounds: int) -> dict[str, Any]:
    """Replay one recorded stream: CPU us an event, process_time, medians of rounds that alternate."""
    reads = recorded_reads(_TOKENS)
    events = (_TOKENS + EVENTS_BESIDE_TOKENS) * _STREAMS_A_ROUND
    ways: dict[str, Callable[[list[bytes]], object]] = {
        "decode_only": decode_only,
        "pd_locust": parse_and_record,
    }
    us: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started_s = time.process_time()
            for _ in range(_STREAMS_A_ROUND):
                way(reads)
            us[name].append((time.process_time() - started_s) * 1e6 / events)
    return {name: _spread(values) for name, values in us.items()} | {
        "ratio": round(median(us["pd_locust"]) / median(us["decode_only"]), 3)
    }


def recorded_reads(tokens: int) -> list[bytes]:
    """Return the reads of one answer shaped like vLLM's: an event a read, the end in one."""

    def event(document: dict[str, Any]) -> bytes:
        whole = {
            "id": "chatcmpl-pd1",
            "object": "chat.completion.chunk",
            "created": 1764500000,
            "model": "m",
        } | document
        return b"data: " + json.dumps(whole, separators=(",", ":")).encode() + b"\n\n"

    def choice(delta: dict[str, str], finish: str | None = None) -> bytes:
        return event({"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})

    usage = {"prompt_tokens": 16, "completion_tokens": tokens, "total_tokens": 16 + tokens}
    end = choice({}, "length") + event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    texts = [choice({"content": f" word{number % 10}"}) for number in range(tokens)]
    return [choice({"role": "assistant", "content": ""}), *texts[:-1], texts[-1] + end]


def parse_and_record(reads: list[bytes]) -> object:
    """Do what a user does with the bytes of one answer."""
    timing = measure(iter(reads), time.perf_counter_ns, sent_ns=time.perf_counter_ns())
    return RequestRecord.from_timing(_SEEN, timing).to_row()


_SEEN = RequestContext("r", 1, "stream", "short", 1, Part.SAMPLE, 0, 0, 0, 1)


def decode_only(reads: list[bytes]) -> object:
    """Split events, decode each, note the time of those with text: the least that gives a TTFT."""
    arrivals_ns = []
    for read in reads:
        at_ns = time.perf_counter_ns()
        for data in _events(read):
            if data == b"[DONE]":
                continue
            choices = orjson.loads(data)["choices"]
            if choices and choices[0]["delta"].get("content"):
                arrivals_ns.append(at_ns)
    return arrivals_ns


def _events(read: bytes) -> Iterator[bytes]:
    return (event[6:] for event in read.split(b"\n\n")[:-1])


def with_network(commands: dict[str, Any], load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """Run all clients in turn, `repeat` times."""
    runs: dict[str, list[Measured]] = {name: [] for name in commands}
    for _ in range(options.repeat):
        for name, command in commands.items():
            runs[name].append(run(command, load, undisturbed=options.undisturbed))
            print(f"{name:16} {runs[name][-1].us_per_event:6.2f} us an event", file=sys.stderr)
    floor = median([measured.us_per_event for measured in runs["bare"]])
    seen = {}
    for name, measured in runs.items():
        us = [one.us_per_event for one in measured]
        seen[name] = {
            "us_per_event": _spread(us),
            "ratio_to_bare": round(median(us) / floor, 3),
            "ttft_error_ms_p50": _spread([figures(one.ttft_errors_ms())["p50"] or 0.0 for one in measured]),
            "ttft_error_ms_p99": _spread([figures(one.ttft_errors_ms())["p99"] or 0.0 for one in measured]),
            "server_cpu_share": round(median([one.server_cpu_s / one.seconds for one in measured]), 3),
        }
    return {"streams": load.streams, "tokens": load.tokens, "requests": load.requests, "clients": seen}


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "runs": len(values),
    }


def _script(name: str, url: str, load: Load, prefix: Path) -> list[str]:
    arguments = [url, str(load.streams), str(load.rounds), str(load.tokens), str(prefix)]
    return [sys.executable, str(CLIENTS / f"{name}.py"), *arguments]


def _locustfile(name: str, url: str, load: Load, prefix: Path) -> list[str]:
    os.environ |= {
        "BENCH_ROUNDS": str(load.rounds),
        "BENCH_TOKENS": str(load.tokens),
        "BENCH_PREFIX": str(prefix),
    }
    return [
        sys.executable, "-m", "locust", "-f", str(CLIENTS / f"{name}.py"), "--headless", "--only-summary",
        "--host", url, "--users", str(load.streams), "--spawn-rate", str(load.streams),
    ]  # fmt: skip


bare = partial(_script, "bare")
wire_only = partial(_script, "wire_only")
http_user = partial(_locustfile, "http_user")
fast_http_user = partial(_locustfile, "fast_http_user")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", 1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--streams", type=int, default=179, help="concurrent streams")
    add("--tokens", type=int, default=128, help="output tokens a request")
    add("--rounds", type=int, default=15, help="rounds of the part without network")
    add("--repeat", type=int, default=3, help="turns of the part with network")
    add(
        "--undisturbed",
        action="store_true",
        help="both processes go before all others, and no core sleeps (root): as on a quiet machine",
    )
    add("--quick", action="store_true", help="no peers, one turn, below a minute")
    if "--quick" in sys.argv:
        parser.set_defaults(rounds=7, repeat=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
