"""Whatever arrives, there is a timing that makes a record: a success, or a failure with a category."""

from __future__ import annotations

import json
import random

from hypothesis import example, given, settings
from hypothesis import strategies as st
from wire.hand_made import DONE, chunk, event, text, usage
from wire.noise import check, check_answer, cut, damaged_answer, facts, read, stream

from pd_locust.wire.chat import error_message, status_failure

quickly = settings(max_examples=150, deadline=None)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
field = st.sampled_from(
    [
        "content",
        "text",
        "reasoning",
        "tool_calls",
        "function_call",
        "error",
        "message",
        "detail",
        "code",
        "object",
    ]
)
objects = st.dictionaries(field, anything, max_size=4)
choice = st.fixed_dictionaries(
    {}, optional={"delta": anything | objects, "finish_reason": anything, "text": anything}
)
counts = st.fixed_dictionaries(
    {}, optional={"completion_tokens": anything, "prompt_tokens": anything, "prompt_tokens_details": anything}
)
chunks = st.fixed_dictionaries(
    {},
    optional={
        "choices": anything | st.lists(choice | anything, max_size=2),
        "usage": anything | counts,
        "error": anything | objects,
        "message": anything,
        "code": anything,
        "detail": anything,
        "object": anything | st.just("error"),
    },
)


@quickly
@given(
    st.lists(chunks | anything, max_size=5), st.sampled_from([b"", DONE, text("a", "stop") + usage(1) + DONE])
)
@example([{"choices": {"a": 1}}], b"")
@example([{"choices": [{"delta": {"tool_calls": [None]}}]}], DONE)
def test_json_of_any_shape_makes_a_record(documents, end):
    body = b"".join(event(document) for document in documents) + end
    whole = read([body], None)
    check(whole)
    assert facts(read((body[at : at + 1] for at in range(len(body))), None)) == facts(whole)


@quickly
@given(st.lists(st.binary(max_size=60), max_size=6))
def test_bytes_of_any_kind_make_a_record_that_is_a_failure(reads):
    whole = read([b"".join(reads)], None)
    assert check(whole) != "success"
    assert facts(read(reads, None)) == facts(whole)


@quickly
@given(anything, anything)
def test_finish_reasons_and_usage_of_any_shape_make_a_record(finish, counted):
    check(read([text("a") + chunk({"content": "b"}, finish, usage=counted) + DONE], None))


@quickly
@given(st.integers(100, 599), st.binary(max_size=80) | anything.map(lambda value: json.dumps(value).encode()))
def test_an_error_body_of_any_shape_is_told_in_one_line(status, body):
    failure = status_failure(status, body)
    assert len(failure.message) <= 220
    assert "\n" not in failure.message


@quickly
@given(anything)
def test_an_error_of_any_shape_has_a_message(document):
    assert isinstance(error_message(document), str)


def test_three_thousand_noisy_streams_make_records_that_no_cut_changes():
    seen = set()
    for seed in range(3_000):
        rng = random.Random(seed)
        body, end = stream(rng)
        whole = read([body], end)
        seen.add(check(whole))
        assert facts(read(cut(rng, body), end)) == facts(whole), seed
    assert {"success", "malformed", "truncated", "stream_error", "aborted", "no_text", "kv_transfer"} <= seen


def test_a_thousand_damaged_answers_are_judged():
    seen = {check_answer(damaged_answer(random.Random(seed))) for seed in range(1_000)}
    assert {"success", "malformed", "truncated", "stream_error"} <= seen
