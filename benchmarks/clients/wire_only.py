# ruff: noqa: E402 - gevent has to patch before sockets are imported
"""Our reading and recording without Locust: pd_locust.wire and RequestRecord under gevent, and nothing else."""

from gevent import monkey

monkey.patch_all()

import csv
import sys
import time
from pathlib import Path

import gevent

from pd_locust.endpoint import Endpoint, streaming_headers
from pd_locust.load.sockets import GeventReadiness
from pd_locust.record import COLUMNS, Part, RequestContext, RequestRecord
from pd_locust.wire.chat import ChatRequest
from pd_locust.wire.connection import Connection

URL, STREAMS, ROUNDS, TOKENS, PREFIX = sys.argv[1:6]
REQUEST = ChatRequest.build(model="qwen3.5-9b", text="hello", max_tokens=int(TOKENS), ignore_eos=True)
ROWS: list[list[object]] = []


def stream(number: int) -> None:
    connection = Connection(
        Endpoint.parse(URL), streaming_headers(None, {}), now=time.perf_counter_ns, readiness=GeventReadiness
    )
    connection.open()
    gevent.sleep(1)  # until all are connected: connecting is no part of it
    for turn in range(int(ROUNDS)):
        request_id = f"wire-{number}-{turn}"
        context = RequestContext(
            request_id, 1, "wire", "short", None, Part.SAMPLE, 0, number, 0, int(STREAMS)
        )
        timing = connection.exchange(request_id, REQUEST.body(""))
        ROWS.append(RequestRecord.from_timing(context, timing).to_row())


gevent.joinall([gevent.spawn(stream, number) for number in range(int(STREAMS))], raise_error=True)
with Path(f"{PREFIX}_requests.csv").open("w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([COLUMNS, *ROWS])
