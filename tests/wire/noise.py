"""Pseudo-random streams: bytes, framing, JSON of every shape, and captures that were damaged on the way."""

from __future__ import annotations

import http.client
import json
import ssl
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from wire.hand_made import DONE, HAND_MADE, event, role, text, usage
from wire.reading import SEEN, SENT_NS

from pd_locust.record import COLUMNS, Outcome, RequestRecord
from pd_locust.stream import Category
from pd_locust.wire.events import measure
from pd_locust.wire.replay import replay

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from pd_locust.stream import StreamTiming

STREAMS = Path(__file__).parents[1] / "streams"
_SOUP = (
    b"data:",
    b"data: ",
    b"data",
    b"event: error",
    b"id: 1",
    b"retry: x",
    b": ping",
    b":",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\n\r\n",
    b"[DONE]",
    b"{",
    b"}",
    b"[",
    b'"',
    b"null",
    b" ",
    b"\xff",
    b"\xe6\x9d",
    b"\xef\xbb\xbf",
    b"\x00",
    b"\x1e",
    b'{"error": "x"}',
    b'{"choices": []}',
    DONE,
    role(),
    text("a"),
    text("b", "stop"),
    usage(3),
)
_ODD = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2.5,
    10**18,
    2**64,
    -(10**30),
    1e308,
    "",
    "x",
    "stop",
    "abort",
    "KVTransferError",
    "é\u2028",
    [],
    [None],
    ["stop"],
    [[]],
    {},
    {"a": 1},
    {"message": None},
    {"type": "abort"},
    {"type": {"x": []}},
    {"content": "a"},
    {"delta": {}},
    {"delta": {"content": "a"}},
    {"text": "a"},
    {"completion_tokens": -3},
    {"arguments": "a"},
    {"function": 3},
)
_FIELDS = (
    "id",
    "object",
    "choices",
    "delta",
    "content",
    "text",
    "role",
    "reasoning",
    "reasoning_content",
    "tool_calls",
    "function_call",
    "function",
    "arguments",
    "finish_reason",
    "usage",
    "completion_tokens",
    "prompt_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "error",
    "message",
    "code",
    "type",
    "detail",
    "msg",
)
_BREAKS: tuple[Exception | None, ...] = (
    None,
    None,
    None,
    TimeoutError(),
    ConnectionResetError(),
    http.client.IncompleteRead(b""),
    ssl.SSLError(),
    OSError(),
    ValueError("x"),
    http.client.LineTooLong("chunk size"),
)


def stream(rng: random.Random) -> tuple[bytes, Exception | None]:
    """Make a body and what ends its reading, if it is not the end of the body."""
    make = rng.choice((_bytes, _soup, _soup, _shapes, _shapes, _shapes, _damaged, _damaged))
    return make(rng), rng.choice(_BREAKS)


def cut(rng: random.Random, body: bytes) -> Iterator[bytes]:
    """Cut a body into reads of random sizes."""
    width = rng.choice((1, 4, 30, 500)) if len(body) < 4_000 else 2_000
    at = 0
    while at < len(body):
        size = rng.randint(1, width)
        yield body[at : at + size]
        at += size


def read(chunks: Iterable[bytes], end: Exception | None) -> StreamTiming:
    def until_the_end() -> Iterator[bytes]:
        yield from chunks
        if end is not None:
            raise end

    return measure(until_the_end(), lambda: SENT_NS, sent_ns=SENT_NS)


def check(timing: StreamTiming) -> str:
    """Hold a timing to what every record promises; return its category, or `success`."""
    record = RequestRecord.from_timing(SEEN, timing)
    assert len(record.to_row()) == len(COLUMNS)
    assert timing.end_ns is not None
    assert len(record.finish_reason or "") <= 200
    if record.outcome is Outcome.SUCCESS:
        assert record.category is None
        assert record.ttft_ms is not None
        assert record.text_chunks > 0
        assert record.output_tokens
        return "success"
    assert record.outcome is Outcome.FAILURE
    assert isinstance(record.category, Category)
    assert record.message
    assert "\n" not in record.message
    assert len(record.failure_group) <= 230
    return str(record.category)


def facts(timing: StreamTiming) -> tuple[object, ...]:
    """What may not depend on how the bytes were cut."""
    return (
        timing.failure,
        timing.finish_reason,
        len(timing.text_ns),
        timing.first_text_event,
        timing.events,
        timing.completion_tokens,
        timing.prompt_tokens,
        timing.cached_tokens,
    )


def damaged_answer(rng: random.Random) -> bytes:
    """Make a whole HTTP answer out of a damaged capture, its status line left alone."""
    line, _, rest = rng.choice(_captures()).partition(b"\r\n")
    return line + b"\r\n" + _damage(rng, rest)


def check_answer(raw: bytes) -> str:
    """Judge a whole HTTP answer; return its category, or `success`."""
    verdict = replay(raw)
    assert (verdict["outcome"] == "success") is (verdict["category"] is None)
    return str(verdict["category"] or "success")


def _bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(0, 300))


def _soup(rng: random.Random) -> bytes:
    return b"".join(rng.choices(_SOUP, k=rng.randint(1, 40)))


def _shapes(rng: random.Random) -> bytes:
    parts = [_shape(rng) for _ in range(rng.randint(1, 6))]
    return b"".join(
        [*parts, *rng.choice(((), (DONE,), (text("a", "stop"), usage(1), DONE), (text("a"), usage(1))))]
    )


def _shape(rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return event(_value(rng, 0))
    document = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}], "usage": None}
    target: dict[str, object] = rng.choice(
        (document, document["choices"][0], document["choices"][0]["delta"])
    )
    for _ in range(rng.randint(1, 3)):
        target[rng.choice(_FIELDS)] = _value(rng, 1)
    return event(document)


def _value(rng: random.Random, depth: int) -> object:
    draw = rng.random()
    if depth > 3 or draw < 0.5:
        return rng.choice(_ODD)
    if draw < 0.65:
        return [_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(_FIELDS): _value(rng, depth + 1) for _ in range(rng.randint(0, 3))}


def _damaged(rng: random.Random) -> bytes:
    return _damage(rng, rng.choice(_bodies()))


def _damage(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.randint(1, 40))
        piece = rng.choice((b"", rng.randbytes(1), rng.choice(_SOUP), data[at:to] * 2, data[at:to][::-1]))
        data = rng.choice((data[:at] + piece + data[to:], data[:at] + piece + data[to:], data[:at]))
    return data


@cache
def _captures() -> tuple[bytes, ...]:
    entries = json.loads((STREAMS / "manifest.json").read_text())
    answers = [(STREAMS / entry["file"]).read_bytes() for entry in entries]
    return tuple(answer for answer in answers if len(answer) < 8_000)


@cache
def _bodies() -> tuple[bytes, ...]:
    # Still chunked, which is as good a damage as any; the hand-made ones are tidy.
    captured = [answer.partition(b"\r\n\r\n")[2] for answer in _captures()]
    return (*captured, *(case.body for case in HAND_MADE if 0 < len(case.body) < 8_000))
