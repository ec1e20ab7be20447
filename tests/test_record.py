from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_locust.record import (
    COLUMNS,
    Outcome,
    Part,
    RequestContext,
    RequestRecord,
    TokensSource,
    came_in_bursts,
)
from pd_locust.stream import Category, Failure, StreamTiming

MS = 1_000_000
SEEN = RequestContext("id-1", 2, "stream", "short", 64, Part.SAMPLE, 3, 7, 1_700_000_000_000_000, 5)


def record(text_ms=(), *, cut=False, sent_ms=1_000, **facts):
    """Times in ms after sending."""
    sent_ns = sent_ms * MS
    timing = StreamTiming(sent_ns, text_ns=[sent_ns + round(ms * MS) for ms in text_ms], **facts)
    return RequestRecord.from_timing(SEEN, timing, cut=cut)


def test_tpot_is_the_span_from_first_to_last_token_over_n_minus_one():
    seen = record([100, 108, 116, 124], completion_tokens=4)
    assert (seen.ttft_ms, seen.tpot_ms) == (100.0, 8.0)


def test_tpot_divides_by_the_tokens_that_usage_counts_and_not_by_chunks():
    assert record([100, 140, 180], completion_tokens=11).tpot_ms == 8.0  # 80 ms / 10


def test_tpot_keeps_six_decimals_of_a_millisecond():
    assert record([0, 10], completion_tokens=4).tpot_ms == 3.333333


def test_tpot_is_absent_below_two_tokens_and_below_two_chunks():
    assert record([100], completion_tokens=1).tpot_ms is None
    assert record([100, 120], completion_tokens=1).tpot_ms is None
    assert record([100], completion_tokens=8).tpot_ms is None
    assert record([]).tpot_ms is None


def test_what_was_not_measured_is_none_and_never_zero():
    seen = record()
    absent = [
        seen.ttft_ms,
        seen.ttfo_ms,
        seen.ttst_ms,
        seen.tpot_ms,
        seen.itl_p50_ms,
        seen.itl_p99_ms,
        seen.itl_max_ms,
    ]
    assert absent == [None] * 7
    assert [seen.e2e_ms, seen.prompt_tokens, seen.cached_tokens, seen.output_tokens, seen.tokens_source] == [
        None
    ] * 5


def test_the_times_of_a_stream_worked_out_by_hand():
    sent_ns = 1_000 * MS
    seen = record(
        [50, 60, 90, 100, 110],
        end_ns=sent_ns + 115 * MS,
        first_answer_ns=sent_ns + 90 * MS,
        completion_tokens=5,
    )
    assert (seen.ttft_ms, seen.ttfo_ms, seen.ttst_ms, seen.e2e_ms) == (50.0, 90.0, 60.0, 115.0)
    # Gaps 10, 30, 10, 10: the median is 10; p99 lies 0.97 of the way from 10 to 30.
    assert (seen.itl_p50_ms, seen.itl_p99_ms, seen.itl_max_ms) == (10.0, 29.4, 30.0)
    assert seen.tpot_ms == 15.0


def counted(*text_ms, **facts):
    seen = record(text_ms, **facts)
    return seen.output_tokens, seen.tokens_source


def test_tokens_come_from_usage_or_else_from_chunks_and_the_record_says_which():
    assert counted(1, 2, completion_tokens=9) == (9, TokensSource.USAGE)
    assert counted(1, 2) == (2, TokensSource.CHUNKS)
    assert counted(completion_tokens=0) == (0, TokensSource.USAGE)
    assert counted() == (None, None)


def test_a_usage_of_zero_beside_text_counts_nothing():
    assert counted(1, 2, completion_tokens=0) == (2, TokensSource.CHUNKS)


def test_a_failure_keeps_its_category_and_words_and_the_times_it_reached():
    seen = record([100], failure=Failure(Category.STALLED, "silence between tokens"), end_ns=1_200 * MS)
    assert (seen.outcome, seen.category, seen.message) == (
        Outcome.FAILURE,
        Category.STALLED,
        "silence between tokens",
    )
    assert (seen.ttft_ms, seen.e2e_ms) == (100.0, 200.0)


def test_a_request_that_we_cut_is_nobodys_failure():
    seen = record([100], failure=Failure(Category.RESET, "x"), cut=True)
    assert (seen.outcome, seen.category, seen.message, seen.failure_group) == (Outcome.CUT, None, "", "")


def test_a_row_has_a_value_for_each_column_in_plain_types():
    seen = record(
        [100, 110],
        connect_ms=1.25,
        reconnected=True,
        status=200,
        completion_tokens=2,
        end_ns=1_111 * MS,
        finish_reason="stop",
        reads=3,
    )
    row = dict(zip(COLUMNS, seen.to_row(), strict=True))
    assert COLUMNS[:3] == ("v", "request_id", "run")
    assert (row["v"], row["outcome"], row["part"], row["reconnected"], row["buffered"]) == (
        1,
        "success",
        "sample",
        1,
        0,
    )
    assert (row["ttft_ms"], row["tokens_source"], row["category"], row["connect_ms"]) == (
        100.0,
        "usage",
        None,
        1.25,
    )
    assert {type(value) for value in row.values()} <= {int, float, str, type(None)}


def test_times_are_rounded_to_the_microsecond():
    assert record([0.1234567]).ttft_ms == 0.123


def test_failures_of_one_cause_are_one_group_whatever_ids_they_carry():
    def group(message):
        return record(failure=Failure(Category.SERVER_ERROR, message)).failure_group

    one = group(
        "request chatcmpl-4f2a9c81d0b34e7f failed at 2026-01-02T03:04:05.678Z on 0x7f21, 123456 bytes"
    )
    other = group(
        "request chatcmpl-aa07771bc2394411 failed at 2026-11-30 13:59:00,001 on 0xdeadbeef, 98765 bytes"
    )
    assert one == other == "server_error: request … failed at … on …, … bytes"
    assert group("HTTP 503: no worker") == "server_error: HTTP 503: no worker"


# The burst rule.


def gaps_ms(*gaps):
    return [round(gap * MS) for gap in gaps]


def test_all_chunks_at_once_are_a_burst():
    assert came_in_bursts([0] * 63)
    assert came_in_bursts(gaps_ms(*[0.05] * 63))


def test_fewer_than_sixteen_chunks_say_nothing():
    assert not came_in_bursts([])
    assert not came_in_bursts([0] * 14)
    assert came_in_bursts([0] * 15)


def test_a_steady_stream_is_not_marked():
    assert not came_in_bursts(gaps_ms(*[6.5] * 255))
    assert not came_in_bursts(gaps_ms(*[5, 8] * 128))


@pytest.mark.parametrize("accepted", [2, 4, 6, 7])
def test_speculative_decoding_is_not_marked(accepted):
    assert not came_in_bursts(gaps_ms(*([0.01] * (accepted - 1) + [30]) * 20))


@pytest.mark.parametrize("held", [9, 16, 64])
def test_chunks_held_back_and_let_go_together_are_marked(held):
    assert came_in_bursts(gaps_ms(*([0.01] * (held - 1) + [8 * held]) * 8))


def test_a_slow_first_gap_does_not_make_a_burst_of_a_steady_rest():
    assert not came_in_bursts(gaps_ms(300, *[8] * 254))  # behind a PD router the first gap is the KV transfer


@given(st.lists(st.integers(0, 10**10), max_size=60), st.none() | st.integers(0, 10**6))
def test_every_order_of_arrivals_makes_a_record_whose_times_do_not_contradict_each_other(gaps_ns, tokens):
    text_ns, at_ns = [], 5
    for gap_ns in gaps_ns:
        at_ns += gap_ns
        text_ns.append(at_ns)
    seen = RequestRecord.from_timing(
        SEEN, StreamTiming(5, text_ns=text_ns, end_ns=at_ns, completion_tokens=tokens)
    )
    if len(text_ns) > 1:
        assert seen.ttft_ms <= seen.ttst_ms <= seen.e2e_ms
        assert seen.itl_p50_ms <= seen.itl_p99_ms <= seen.itl_max_ms
    assert seen.text_chunks == len(text_ns)
