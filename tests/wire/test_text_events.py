"""The short ways through the hot path give what the long ones give: skimmed events, and chunks taken apart by us."""

from __future__ import annotations

import http.client
import io
import json
import random

import pytest
from wire.noise import cut, read, stream
from wire.reading import SENT_NS

from pd_locust.wire import events as timing_module
from pd_locust.wire.chat import TextEvent
from pd_locust.wire.chunked import ChunkedResponse
from pd_locust.wire.events import measure

TEXTS = (
    *("a", " b", ":", ",", "x:", ": ", "\\", '"', "\n", "é", "日本", "", "content", "}", '{"', "null", " "),
    *("\u2028", "[DONE]", "index", "data: ", "\n\n", "\x7f", "stop", "😀"),
)


def token(text, *, separators=(",", ":"), key="content", **fields):
    event = {"id": "x", "choices": [{"index": 0, "delta": {key: text}, "finish_reason": None}], **fields}
    return f"data: {json.dumps(event, separators=separators, ensure_ascii=False)}\n\n".encode()


def learn(event):
    return TextEvent.learn(event.decode().removeprefix("data: ").strip())


def test_events_that_differ_in_their_text_alone_are_counted_without_decoding():
    known = learn(token("a"))
    assert known.skim(token("b")) == (1, b"")
    assert known.skim(token("é日本 😀") + token("c") + b"data: [DONE]\n\n") == (2, b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "other",
    [
        token(""),
        token('"'),
        token("\\"),
        token("\n"),
        token("a", usage={"completion_tokens": 1}),
        token("a", error="x"),
        token("a").replace(b"null", b'"stop"'),
        token("a")[:-1],
        token("a").replace(b'"a"', b'"\xff"'),
        token("a").replace(b'"a"', b'"\x00"'),
        b": ping\n\n",
        b"\n" + token("a"),
    ],
)
def test_any_other_event_is_left_to_be_read(other):
    assert learn(token("a")).skim(other) == (0, other)


@pytest.mark.parametrize(
    "event",
    [
        token(""),
        token("id"),
        token("x"),
        token('"'),
        token("a", usage={"completion_tokens": 1}),
        token("a").replace(b"null", b'"stop"'),
        b'data: {"choices":[]}',
    ],
)
def test_an_event_whose_text_has_no_certain_place_is_not_learnt_from(event):
    assert learn(event) is None


def test_a_text_that_looks_like_the_json_around_it_is_not_mistaken_for_it():
    # The first `":"` is the end of a key, the colon and the start of the text.
    assert learn(token(":")) is None
    assert learn(token(": ", separators=(", ", ": "))) is None


def everything(timing):
    names = ("failure", "finish_reason", "text_ns", "first_text_event", "first_answer_ns", "events", "end_ns")
    counts = ("completion_tokens", "prompt_tokens", "cached_tokens", "reads", "body_bytes")
    return [getattr(timing, name) for name in names + counts]


class _NothingLearnt:
    @staticmethod
    def learn(_data):
        return None


def test_skimming_changes_nothing_in_four_thousand_streams_made_to_trick_it(monkeypatch):
    skimmed = 0
    for seed in range(4_000):
        rng = random.Random(seed)
        reads, end = tricky_reads(rng)
        monkeypatch.setattr(timing_module, "TextEvent", TextEvent)
        short_way = everything(read(reads, end))
        monkeypatch.setattr(timing_module, "TextEvent", _NothingLearnt)
        assert short_way == everything(read(reads, end)), seed
        skimmed += len(short_way[2])
    assert skimmed > 10_000


def tricky_reads(rng):
    if rng.random() < 0.3:
        body, end = stream(rng)
        return [part + b"\n\n" for part in body.split(b"\n\n")], end
    separators = rng.choice([(",", ":"), (", ", ": "), (" ,", " :")])
    key = rng.choice(["content", "reasoning_content", "reasoning"])
    events = []
    for _ in range(rng.randint(2, 14)):
        event = token(rng.choice(TEXTS), separators=separators, key=key)
        if rng.random() < 0.15:
            event = rng.choice(
                [
                    b"\n",
                    b"\r\n",
                    b": ping\n\n",
                    b"event: x\n",
                    b"data: [DONE]\n\n",
                    event[:-1] + b"\r",
                    event[:-1],
                ]
            )
        if rng.random() < 0.05:
            at = rng.randrange(len(event))
            event = event[:at] + bytes([rng.choice([0, 10, 13, 34, 92, 255, 58])]) + event[at + 1 :]
        events.append(event)
    draw = rng.random()
    if draw < 0.5:
        return events, None
    if draw < 0.7:
        return list(cut(rng, b"".join(events))), None
    return [b"".join(events[at : at + 3]) for at in range(0, len(events), 3)], None


def test_events_in_one_read_have_one_time():
    reads = iter([token("a"), token("b") + token("c")])
    timing = measure(reads, iter(range(SENT_NS + 1, SENT_NS + 9)).__next__, sent_ns=SENT_NS)
    assert [at_ns - SENT_NS for at_ns in timing.text_ns] == [1, 2, 2]


class _Socket:
    """Gives a body in the reads it was cut into, the first of them with the head."""

    def __init__(self, head, reads):
        self._reads = iter(reads)
        self._head = head + next(self._reads, b"")

    def makefile(self, _mode):
        return io.BufferedReader(io.BytesIO(self._head))

    def recv(self, _size):
        return next(self._reads, b"")


def body_by_http_client(raw):
    response = http.client.HTTPResponse(_Socket(raw, ()), method="POST")
    return drained(response)


def drained(response):
    response.begin()
    body = b""
    try:
        while data := response.read1(65_536):
            body += data
    except http.client.HTTPException as error:
        return body, type(error)
    return body, response.isclosed()


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECES = (
    *(
        b"5\r\nhello\r\n",
        b"5\r\nworld\r\n",
        b"6\r\n tokens"[:-1] + b"\r\n",
        b"a;x=1\r\n0123456789\r\n",
        b"5\nhello\r\n",
    ),
    *(
        b"0\r\n\r\n",
        b"0\r\nA: b\r\n\r\n",
        b"0\r\nA: b\n\n",
        b"0",
        b"",
        b"zz\r\n",
        b"\r\n",
        b"5",
        b"5\r\nhel",
        b" 5 \r\nhelloXY",
    ),
)


def test_chunked_bodies_come_out_as_http_client_reads_them_however_they_are_cut():
    outcomes = set()
    for seed in range(3_000):
        rng = random.Random(seed)
        raw = b"".join(
            rng.choices(PIECES[:5], k=rng.randint(0, 5)) + rng.choices(PIECES, k=rng.randint(1, 2))
        )
        expected = body_by_http_client(HEAD + raw)
        reads = list(cut(rng, raw))
        assert drained(ChunkedResponse(_Socket(HEAD, reads))) == expected, seed
        outcomes.add(expected[1])
    assert outcomes == {True, http.client.IncompleteRead}


def test_a_line_without_an_end_is_given_up_as_by_http_client():
    raw = b"5" * 70_000
    assert body_by_http_client(HEAD + raw) == (b"", http.client.LineTooLong)
    reads = [raw[at : at + 1_000] for at in range(0, len(raw), 1_000)]
    assert drained(ChunkedResponse(_Socket(HEAD, reads))) == (b"", http.client.LineTooLong)
