# ruff: noqa: E402 - gevent has to patch before sockets are imported
"""The floor: gevent sockets, chunks taken apart by hand, one JSON decode an event, nothing judged.

It trusts the service: one event a chunk, whole chunks only at the end of a read, no error of any kind. A client that
may be believed has to do more; this is what all else is compared with.
"""

from gevent import monkey

monkey.patch_all()

import csv
import os
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import gevent
import orjson

URL, STREAMS, ROUNDS, TOKENS, PREFIX = sys.argv[1:6]
TARGET = urlsplit(URL)
ROWS: list[tuple[str, float, float]] = []


def stream(number: int) -> None:
    sock = socket.create_connection((TARGET.hostname, TARGET.port))
    body = orjson.dumps(
        {
            "model": "qwen3.5-9b",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": int(TOKENS),
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    gevent.sleep(1)  # until all are connected: connecting is no part of it
    for turn in range(int(ROUNDS)):
        request_id = f"bare-{number}-{turn}"
        request = head % len(body) + b"x-request-id: %b\r\n\r\n%b" % (request_id.encode(), body)
        sent_ns = time.perf_counter_ns()
        sock.sendall(request)
        first_ns, last_ns, tokens = read_answer(sock)
        ttft_ms = (first_ns - sent_ns) / 1e6
        ROWS.append((request_id, ttft_ms, (last_ns - first_ns) / 1e6 / (tokens - 1)))


def read_answer(sock: socket.socket) -> tuple[int, int, int]:
    first_ns = last_ns = tokens = 0
    pending = b""
    while b"\r\n\r\n" not in pending:
        pending += sock.recv(65_536)
    pending = pending.partition(b"\r\n\r\n")[2]
    while True:
        while not pending.endswith(b"\r\n"):
            pending += sock.recv(65_536)
        at_ns = time.perf_counter_ns()
        start = 0
        while start < len(pending):
            size_end = pending.index(b"\r\n", start)
            size = int(pending[start:size_end], 16)
            if not size:
                return first_ns, last_ns, tokens
            start = size_end + 2 + size + 2
            data = pending[size_end + 8 : start - 4]
            if data == b"[DONE]":
                continue
            choices = orjson.loads(data)["choices"]
            if choices and choices[0]["delta"].get("content"):
                first_ns = first_ns or at_ns
                last_ns = at_ns
                tokens += 1
        pending = b""


gevent.joinall([gevent.spawn(stream, number) for number in range(int(STREAMS))], raise_error=True)
with Path(f"{PREFIX}_requests.csv").open("w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("request_id", "ttft_ms", "tpot_ms"), *ROWS])
os._exit(0)
