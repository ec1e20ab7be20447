"""Every answer, captured or made by hand, gives the same record however its bytes arrive."""

from __future__ import annotations

import http.client
import random

import pytest
from wire.hand_made import HAND_MADE, text
from wire.reading import judged
from wire.test_captures import MANIFEST, STREAMS

from pd_locust.wire.connection import body_chunks
from pd_locust.wire.replay import _Saved

CUT_WIDTHS = (7, 60, 400)


def body_of(file):
    response = http.client.HTTPResponse(_Saved((STREAMS / file).read_bytes()), method="POST")
    response.begin()
    body = b""
    try:
        for chunk in body_chunks(response):
            body += chunk
    except http.client.IncompleteRead:
        pass  # killed in mid-stream: what came is still a body
    return body


BODIES = [
    *((case.name, case.body) for case in HAND_MADE),
    *((entry["file"], body_of(entry["file"])) for entry in MANIFEST if entry["status"] == 200),
]
WELL_FRAMED = [(name, body) for name, body in BODIES if b"\r" not in body and body.endswith(b"\n\n")]
UNMARKED = [(name, body) for name, body in WELL_FRAMED if not body.startswith(b"\xef\xbb\xbf")]
FINISHED = [(name, body) for name, body in UNMARKED if body.endswith(b"data: [DONE]\n\n")]


def every(bodies):
    return pytest.mark.parametrize("body", [body for _, body in bodies], ids=[name for name, _ in bodies])


def byte_by_byte(body):
    return (body[at : at + 1] for at in range(len(body)))


def at_random(body, seed, width):
    rng = random.Random(seed)
    at = 0
    while at < len(body):
        size = rng.randint(1, width)
        yield body[at : at + size]
        at += size


@pytest.mark.parametrize("case", HAND_MADE, ids=lambda case: case.name)
def test_a_hand_made_answer_is_read_as_its_author_says(case):
    verdict = judged([case.body])
    assert (verdict["outcome"], verdict["category"]) == (case.outcome, case.category)
    assert (verdict["first_token_event"], verdict["text_chunks"]) == (case.first, case.chunks)
    assert (verdict["output_tokens"], verdict["tokens_source"]) == (case.tokens, case.source)
    assert verdict["finish_reason"] == case.finish
    assert case.says in (verdict["message"] or "")


@every(BODIES)
def test_byte_by_byte_gives_the_same_record(body):
    assert judged(byte_by_byte(body)) == judged([body])


@every(BODIES)
def test_random_cuts_give_the_same_record(body):
    whole = judged([body])
    for width in CUT_WIDTHS:
        assert judged(at_random(body, f"cuts {width}", width)) == whole


@every(WELL_FRAMED)
@pytest.mark.parametrize("ends", [b"\r\n", b"\r"], ids=["CRLF", "CR"])
def test_other_line_ends_give_the_same_record_whole_and_byte_by_byte(body, ends):
    whole = judged([body])
    other = body.replace(b"\n", ends)
    assert judged([other]) == whole
    assert judged(byte_by_byte(other)) == whole
    assert judged(at_random(other, "ends", 5)) == whole


@every(WELL_FRAMED)
def test_mixed_line_ends_give_the_same_record(body):
    rng = random.Random("mixed")
    mixed = b"".join(line + rng.choice((b"\n", b"\r\n")) for line in body.split(b"\n")[:-1])
    assert judged([mixed]) == judged([body])
    assert judged(byte_by_byte(mixed)) == judged([body])


@every(UNMARKED)
def test_a_byte_order_mark_gives_the_same_record(body):
    marked = b"\xef\xbb\xbf" + body
    assert judged([marked]) == judged([body])
    assert judged(byte_by_byte(marked)) == judged([body])


@every(FINISHED)
def test_comments_between_events_give_the_same_record(body):
    commented = b":\n\n: ping\n" + body.replace(b"\n\n", b"\n\n: ping\n\n: ping\n")
    assert judged([commented]) == judged([body])


@every(FINISHED)
@pytest.mark.parametrize(
    "rest", [b"\n\n", text("late", "abort"), b": ping\n\n", b"data: \xff{\n\n", b"\x00" * 999]
)
def test_bytes_after_done_change_nothing(body, rest):
    assert judged([body + rest]) == judged([body])
    assert judged([body, rest]) == judged([body])
    assert judged([body[:-1], body[-1:] + rest]) == judged([body])
