from __future__ import annotations

from dataclasses import replace

import pytest

from pd_locust.load.live import Curve, Live, SearchState, Values, client_to_json
from pd_locust.phase import Phase, PhaseKind
from pd_locust.plateau import Plateau
from pd_locust.record import Outcome, Part, RequestContext, RequestRecord, TokensSource
from pd_locust.search import Bracket, Found, GaveUp, NextLevel
from pd_locust.slo import Slo
from pd_locust.stream import Category, StreamTiming

SLO = Slo.parse("ttft_mean<=500ms")
_SEEN = RequestContext("pd1", 1, "stream", "short", 4, Part.SAMPLE, 0, 1, 0, 1)
_PLAIN = replace(
    RequestRecord.from_timing(_SEEN, StreamTiming(0), loop_lag_ms=0.7, client_cpu_share=0.25),
    outcome=Outcome.SUCCESS, e2e_ms=300.0, tpot_ms=10.0, output_tokens=21, tokens_source=TokensSource.USAGE,
)  # fmt: skip


def record(ttft_ms=100.0, *, sent_s=0.0, **changed):
    return replace(_PLAIN, ttft_ms=ttft_ms, sent_unix_us=round(sent_s * 1e6), **changed)


def failed(**changed):
    return record(None, outcome=Outcome.FAILURE, category=Category.RESET, message="reset", **changed)


def live(*records, every_s=0.1, slo=SLO):
    """A run that began at 1000 s; one record ended each `every_s`."""
    seen = Live(slo)
    seen.begin(1000.0)
    for number, one in enumerate(records):
        seen.take(one, 1000.0 + number * every_s)
    return seen


def tier(seen, name="short", now_s=1000.0):
    return seen.show(seen.tiers[name], now_s)[0]


def test_percentiles_of_the_sample_are_exact_and_leave_the_first_wave_out():
    seen = live(record(900.0, part=Part.WAVE), *(record(float(ttft)) for ttft in (504, 501, 503, 502)))
    level = tier(seen)["level"]
    assert level["ttft_ms"] == {
        "count": 4, "mean": 502.5, "p50": 502.5, "p95": pytest.approx(503.85),
        "p99": pytest.approx(503.97), "max": 504.0,
    }  # fmt: skip
    assert (level["sampled"], level["before_sample"], level["users"]) == (4, 1, 4)


def test_a_failure_is_counted_and_is_no_latency():
    shown = tier(live(record(100.0), failed()))
    assert (shown["finished"], shown["failed"], shown["level"]["failed"]) == (2, 1, 1)
    assert shown["level"]["ttft_ms"]["count"] == 1
    assert shown["window"]["failed"] == 1


def test_a_request_that_was_cut_is_neither():
    shown = tier(live(record(100.0), record(100.0, outcome=Outcome.CUT)))
    assert (shown["finished"], shown["failed"], shown["cut"], shown["window"]["finished"]) == (1, 0, 1, 1)


def test_rates_are_of_the_last_30_seconds():
    # One request of 21 tokens each half second for a minute; every fourth is slower than the limit.
    seen = live(*(record(600.0 if number % 4 == 0 else 100.0) for number in range(120)), every_s=0.5)
    window = tier(seen, now_s=1060.0)["window"]
    assert window["seconds"] == 30.0
    assert window["finished"] == 59  # ended after 1030.0
    assert window["requests_per_s"] == pytest.approx(59 / 30)
    assert window["output_tokens_per_s"] == pytest.approx(59 * 21 / 30)
    assert window["attainment_share"] == pytest.approx(45 / 59)
    assert window["goodput_per_s"] == pytest.approx(45 / 30)


def test_a_rate_needs_three_seconds():
    seen = live(*[record()] * 20)
    assert tier(seen, now_s=1002.0)["window"]["requests_per_s"] is None
    assert tier(seen, now_s=1004.0)["window"]["requests_per_s"] == pytest.approx(5.0)


def test_a_window_in_which_nothing_ended_has_no_figures():
    window = tier(live(record()), now_s=1100.0)["window"]
    assert (window["finished"], window["seconds"]) == (0, 0.0)
    assert window["ttft_ms"]["mean"] is window["requests_per_s"] is window["attainment_share"] is None


def test_without_a_sample_the_window_shows_what_there_is_and_says_so():
    shown = tier(live(record(300.0, part=Part.WAVE)))
    assert shown["level"]["ttft_ms"]["mean"] is None
    assert (shown["window"]["ttft_ms"]["mean"], shown["window"]["settled"]) == (300.0, False)


def test_the_level_shown_is_the_one_whose_request_was_sent_last():
    seen = live(
        record(100.0, sent_s=1.0, users=4),
        record(200.0, sent_s=3.0, users=8),
        record(110.0, sent_s=2.0, users=4),
    )
    assert tier(seen)["level"]["users"] == 8
    assert [span["users"] for span in tier(seen)["curve"]["spans"]] == [4, 8]
    assert tier(seen)["curve"]["spans"][0]["stop_s"] == pytest.approx(0.2)


def test_a_new_run_forgets_the_last_one():
    seen = live(record())
    seen.end(1010.0)
    assert seen.elapsed_s(1500.0) == 10.0
    seen.begin(2000.0)
    assert (seen.tiers, seen.elapsed_s(2003.0)) == ({}, 3.0)


def test_what_a_search_says_before_its_run_begins_is_of_that_run():
    seen = live(record())
    first = SearchState((), Bracket(None, None), NextLevel(8, "first level"), 24)
    seen.publish("short", first)
    seen.end(1010.0)
    again = SearchState((), Bracket(None, None), NextLevel(4, "first level"), 24)
    seen.publish("short", again)
    assert seen.searches == {"short": first}
    seen.begin(2000.0)
    assert seen.searches == {"short": again}


def test_a_search_shows_its_levels_its_bracket_and_its_next_step():
    held = Plateau.of(
        [record(460.0 + 20 * (n % 2)) for n in range(40)], phase="", tier="short", users=8, slo=SLO
    )
    seen = live(record())
    seen.publish("short", SearchState((held,), Bracket(8, None), NextLevel(16, "double"), 19))
    shown = tier(seen)
    assert shown["search"] == {
        "low": 8, "high": None, "next_users": 16, "why": "double", "confirmed": False, "end": None, "most_left": 19,
    }  # fmt: skip
    (level,) = shown["levels"]
    assert (level["users"], level["verdict"], level["observed_ms"]) == (8, "PASS", 470.0)
    assert level["low_ms"] <= 470.0 <= level["high_ms"] <= 500


def test_a_search_that_has_ended_has_no_levels_left():
    found = SearchState((), Bracket(8, 9), Found(Bracket(8, 9), confirmed=True), 3).to_json()
    assert (found["end"], found["confirmed"], found["most_left"]) == ("found", True, 0)
    gave_up = SearchState((), Bracket(None, 1), GaveUp(Bracket(None, 1), "1 is too many"), 3).to_json()
    assert (gave_up["end"], gave_up["why"]) == ("gave up", "1 is too many")


def test_phases_of_a_protocol_are_shown_as_levels_too():
    seen = live(record())
    seen.held(Phase("sweep/short/4", PhaseKind.LEVEL, 4, "short"), [record(100.0)] * 24)
    assert [level["users"] for level in tier(seen)["levels"]] == [4]


def test_doubts_of_a_level_under_load_leave_out_what_only_a_whole_level_can_say():
    rows = [record(part=Part.SAMPLE, loop_lag_ms=80.0, client_cpu_share=0.95), failed()]
    seen = live(*rows)
    _, doubts, window = seen.show(seen.tiers["short"], 1001.0)
    assert [doubt.code for doubt in doubts] == ["client-limited", "failures"]
    assert client_to_json([None, window]) == {
        "loop_lag_p99_ms": pytest.approx(79.207),
        "cpu_share": 0.6,
        "limited": True,
    }


def test_the_generators_health_is_unknown_before_anything_has_ended():
    assert client_to_json([]) == {"loop_lag_p99_ms": None, "cpu_share": None, "limited": False}


def test_memory_does_not_grow_with_the_run():
    values = Values()
    for number in range(10_100):
        values.add(float(number))
    summary = values.summary()
    assert (summary.count, summary.max, summary.mean) == (10_000, 10_099.0, 5_099.5)  # 100 to 10,099


def test_a_curve_widens_its_steps_and_keeps_mean_least_and_largest():
    curve = Curve()
    for second in range(241):
        curve.add(second + 0.5, 100.0 + second % 2)
    assert curve.step_s == 2.0
    assert len(curve.points()) == 121
    assert curve.points()[0] == [1.0, 100.5, 100.0, 101.0, 2]
    assert curve.points()[-1] == [241.0, 100.0, 100.0, 100.0, 1]
