"""What both Locust users below need to be compared: so many requests each, and their times in a file at the end."""

from __future__ import annotations

import csv
import os
from itertools import count
from pathlib import Path
from typing import Any

ROUNDS = int(os.environ["BENCH_ROUNDS"])
BODY = {
    "model": "qwen3.5-9b",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": int(os.environ["BENCH_TOKENS"]),
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}
ROWS: list[tuple[str, float, float]] = []
_numbers = count()


def next_id() -> str:
    return f"peer-{next(_numbers)}"


def note(environment: Any, request_id: str, sent_s: float, arrivals_s: tuple[float, float, int]) -> None:
    """Record one answer; after the last one, write them all and end Locust."""
    first_s, last_s, tokens = arrivals_s
    ttft_ms, tpot_ms = (first_s - sent_s) * 1e3, (last_s - first_s) * 1e3 / (tokens - 1)
    ROWS.append((request_id, ttft_ms, tpot_ms))
    for kind, value_ms in (("TTFT", ttft_ms), ("TPOT", tpot_ms)):
        environment.events.request.fire(
            request_type=kind,
            name="chat",
            response_time=value_ms,
            response_length=0,
            exception=None,
            context={},
        )
    if len(ROWS) == ROUNDS * environment.parsed_options.num_users:
        path = Path(f"{os.environ['BENCH_PREFIX']}_requests.csv")
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("request_id", "ttft_ms", "tpot_ms"), *ROWS])
        environment.runner.quit()
