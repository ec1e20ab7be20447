from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from pd_locust.plateau import EVERYTHING, FIRST_WAVE, Plateau
from pd_locust.search import Discarded, Measured
from pd_locust.slo import Slo, Verdict


def row(sent_ms=0.0, e2e_ms=None, *, part="sample", outcome="success", **given_fields):
    fields = {
        "ttft_ms": None,
        "ttfo_ms": None,
        "ttst_ms": None,
        "tpot_ms": None,
        "itl_p99_ms": None,
        "prompt_tokens": None,
        "cached_tokens": None,
        "output_tokens": None,
        "tokens_source": "usage",
        "buffered": False,
        "loop_lag_ms": None,
        "client_cpu_share": None,
        "worker": 0,
        "text_chunks": 8,
        "reconnected": False,
        "reads": 9,
    }
    return SimpleNamespace(
        part=part, outcome=outcome, sent_unix_us=round(sent_ms * 1000), e2e_ms=e2e_ms, **fields | given_fields
    )


def plateau(rows, users=2, phase="concurrency/short/2", **options):
    return Plateau.of(rows, phase=phase, tier="short", users=users, **options)


def closed_loop(users, e2e_ms, rounds, **fields):
    """Each user sends as soon as its last request has ended; users are spread evenly over one request."""
    return [
        row(index * e2e_ms + user * e2e_ms / users, e2e_ms, part="wave" if index == 0 else "sample", **fields)
        for index in range(rounds)
        for user in range(users)
    ]


def codes(seen):
    return [doubt.code for doubt in seen.doubts]


def test_littles_law_closes_for_a_steady_closed_loop():
    # 4 users, 1000 ms a request: 4 in flight, 4 requests and 40 tokens a second.
    seen = plateau(closed_loop(4, 1000, 50, ttft_ms=100.0, output_tokens=10), users=4)
    assert seen.window_s == pytest.approx(48.75)  # sendings from 1000 to 49,750 ms
    assert seen.concurrency == pytest.approx(4.0)
    assert seen.request_rate == pytest.approx(4.0)
    assert seen.output_tok_s == pytest.approx(40.0)
    assert seen.little_residual == pytest.approx(0.0)
    assert codes(seen) == []


def test_the_window_runs_from_the_first_to_the_last_sending_of_the_sample():
    seen = plateau(
        [row(-500, 600, part="wave"), row(0, 400), row(1000, 400), row(2000, 5000), row(2100, 9, part="tail")]
    )
    assert seen.window_s == 2.0
    # In [0, 2000]: 100 of the wave's, 400 and 400 of the sample's; the last of the sample begins at its end.
    assert seen.concurrency == pytest.approx(0.45)
    # What ended in (0, 2000]: the wave's at 100, the sample's at 400 and 1400.
    assert seen.request_rate == pytest.approx(1.5)


def test_a_residual_above_five_per_cent_is_a_doubt():
    rows = [row(sent_ms, 100, ttft_ms=1.0) for sent_ms in range(0, 1000, 100)] + [
        row(0, 10_000, part="settling")
    ]
    seen = plateau(rows)
    # 900 ms: nine of 100 ms and one throughout are in flight (2.0), but only the nine ended (1.0).
    assert (seen.concurrency, seen.little_residual) == (pytest.approx(2.0), pytest.approx(0.5))
    assert "little" in codes(seen)


def test_fewer_users_in_flight_than_were_asked_for_is_a_doubt():
    rows = [row(sent_ms, 50, ttft_ms=1.0) for sent_ms in range(0, 10_000, 50)]
    assert "under-concurrency" in codes(plateau(rows, users=2))
    assert "under-concurrency" not in codes(plateau(rows, users=1))


def test_one_request_or_none_has_no_rate():
    for rows in ([], [row(0, 100)], [row(0, 100), row(0, 100)]):
        seen = plateau(rows)
        assert [seen.window_s, seen.concurrency, seen.request_rate, seen.output_tok_s, seen.goodput] == [
            None
        ] * 5
        assert seen.little_residual is None


def test_latencies_are_of_successes_and_failures_are_counted_beside_them():
    rows = [
        row(0, 900, ttft_ms=100.0),
        row(100, 900, ttft_ms=300.0),
        row(200, 1, ttft_ms=1.0, outcome="failure"),
    ]
    seen = plateau(rows)
    assert (seen.successes, seen.failed, seen.finished) == (2, 1, 3)
    assert (seen.ttft.count, seen.ttft.mean, seen.e2e.mean) == (2, 200.0, 900.0)
    assert seen.success_ratio == pytest.approx(2 / 3)
    assert "failures" in codes(seen)


def test_a_failure_is_a_miss_in_attainment_and_goodput():
    rows = [row(ms, 100, ttft_ms=100.0) for ms in (0, 250, 500)]
    rows += [row(600, 100, ttft_ms=501.0), row(1000, 100, outcome="failure")]
    seen = plateau(rows)
    assert seen.attainment == pytest.approx(0.6)  # 3 of 5
    assert seen.request_rate == pytest.approx(4.0)  # ends at 100, 350, 600 and 700 in one second
    assert seen.goodput == pytest.approx(2.4)


def test_an_answer_that_never_came_is_a_miss_and_a_pace_that_cannot_be_is_none():
    rows = [row(0, 100, ttfo_ms=5.0, tpot_ms=5.0), row(1, 100)]
    assert plateau(rows, slo=Slo.parse("ttfo_mean<=10ms")).attainment == 0.5
    assert plateau(rows, slo=Slo.parse("tpot_mean<=10ms")).attainment == 1.0


def test_a_request_must_keep_every_limit_to_count_as_good():
    rows = [row(0, 100, ttft_ms=100.0, tpot_ms=30.0), row(1, 100, ttft_ms=100.0, tpot_ms=5.0)]
    assert plateau(rows, slo=Slo.parse("ttft_p95<=500ms and tpot_mean<=20ms")).attainment == 0.5


def test_fast_failures_do_not_lift_goodput():
    steady = closed_loop(2, 1000, 100, ttft_ms=100.0)
    storm = [row(1000 + 5 * index, 5, outcome="failure") for index in range(3000)]
    assert plateau(steady + storm).goodput < plateau(steady).goodput * 1.02
    assert plateau(steady + storm).verdict is Verdict.FAIL


def test_a_request_that_we_cut_is_neither_success_nor_failure():
    seen = plateau([row(0, 100, ttft_ms=100.0), row(50, 9, outcome="cut"), row(100, 100, ttft_ms=100.0)])
    assert (seen.successes, seen.failed, seen.cut, seen.finished, seen.attainment) == (2, 0, 1, 2, 1.0)


def test_the_first_wave_is_kept_apart():
    wave = [row(ms, 2000, part="wave", ttft_ms=1_100.0) for ms in range(64)]
    steady = [row(2000 + ms, 2000, ttft_ms=350.0) for ms in range(0, 9360, 10)]
    assert plateau(wave + steady).ttft.max == 350.0
    assert plateau(wave + steady).ttft.count == 936
    assert plateau(wave + steady, parts=FIRST_WAVE).ttft.p50 == 1_100.0
    # Counted together, as the benchmark's script does, the wave is 6.4 % of the sample, and p95 is its.
    assert plateau(wave + steady, parts=EVERYTHING).ttft.p95 == 1_100.0


def test_settling_ramp_and_tail_are_no_sample():
    rows = [row(ms, 100, part=part, ttft_ms=900.0) for ms, part in enumerate(["ramp", "settling", "tail"])]
    seen = plateau([*rows, row(10, 100, ttft_ms=100.0)])
    assert (seen.ttft.count, seen.ttft.mean) == (1, 100.0)


def test_no_finished_request_is_inconclusive():
    seen = plateau([])
    assert (seen.verdict, seen.attainment, seen.success_ratio) == (Verdict.INCONCLUSIVE, None, None)


def test_the_verdict_is_that_of_the_limit():
    rows = [row(ms, 100, ttft_ms=float(value)) for ms, value in enumerate([100, 100, 100, 1_200] * 50)]
    assert plateau(rows, users=4).verdict is Verdict.PASS  # mean 375
    assert plateau(rows, users=4, slo=Slo.parse("ttft_p95<=500ms")).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("lag_ms", "cpu_share", "limited"),
    [(None, None, False), (25.0, 0.85, False), (25.1, 0.1, True), (1.0, 0.86, True)],
)
def test_a_level_that_the_generator_limited_says_nothing_of_the_server(lag_ms, cpu_share, limited):
    fields = {"ttft_ms": 100.0, "loop_lag_ms": lag_ms, "client_cpu_share": cpu_share}
    seen = plateau([row(ms, 100, **fields) for ms in range(100)])
    assert seen.client_limited is limited
    assert seen.verdict is (Verdict.INCONCLUSIVE if limited else Verdict.PASS)
    assert ("client-limited" in codes(seen)) is limited


@pytest.mark.parametrize(
    ("limit", "allowed_ms"),
    [
        ("attainment(ttft<=1s, tpot<=30ms)>=99%", 50),
        ("ttft_mean<=5s and tpot_mean<=10ms", 250),
        ("tpot_mean<=10ms and ttft_mean<=5s", 250),
        ("ttft_mean<=5s and itl_p99<=60ms", 3),
        ("tpot_mean<=10ms", 1),
    ],
)
def test_how_late_the_generator_may_be_is_a_matter_of_the_tightest_limit_in_whatever_order(limit, allowed_ms):
    def limited(lag_ms):
        rows = [
            row(ms, 100, ttft_ms=9.0, tpot_ms=5.0, itl_p99_ms=5.0, loop_lag_ms=lag_ms) for ms in range(100)
        ]
        return plateau(rows, slo=Slo.parse(limit)).client_limited

    assert (limited(allowed_ms), limited(allowed_ms + 0.1)) == (False, True)


def test_tokens_of_failures_are_no_throughput():
    # Ten requests a second, one after the other, 20 tokens each; every second one breaks off after its tokens.
    rows = [row(100 * n, 100, output_tokens=20, outcome="failure" if n % 2 else "success") for n in range(11)]

    seen = plateau(rows, users=1)
    assert seen.request_rate == pytest.approx(10)
    assert seen.output_tok_s == pytest.approx(100)


def test_the_generator_may_be_late_by_a_millisecond_whatever_the_limit():
    rows = [row(ms, 100, tpot_ms=5.0, loop_lag_ms=0.9) for ms in range(100)]
    assert not plateau(rows, slo=Slo.parse("tpot_mean<=10ms")).client_limited


def test_token_figures_worked_out_by_hand():
    rows = [
        row(0, 2000, output_tokens=200, prompt_tokens=1000, cached_tokens=0),
        row(10, 1000, output_tokens=300, prompt_tokens=3000, cached_tokens=1000),
        row(20, 1000),
    ]
    seen = plateau(rows)
    assert (seen.output_tokens, seen.prompt_tokens, seen.cached_share) == (250.0, 2000.0, 0.25)
    assert seen.stream_tok_s == 200.0  # 100 and 300 tok/s
    assert "cache-hits" in codes(seen)


def test_a_cached_chat_template_is_no_repeated_prompt():
    assert "cache-hits" not in codes(
        plateau([row(ms, 10, prompt_tokens=850, cached_tokens=48) for ms in range(3)])
    )
    assert "cache-hits" in codes(
        plateau([row(ms, 10, prompt_tokens=850, cached_tokens=80) for ms in range(3)])
    )


def test_unknown_cache_hits_are_absent_and_not_zero():
    assert plateau([row(0, 10, prompt_tokens=100)]).cached_share is None
    assert plateau([row(0, 10, prompt_tokens=100, cached_tokens=0)]).cached_share == 0.0


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"buffered": True}, "buffered"), ({"tokens_source": "chunks"}, "tokens-by-chunks")],
)
def test_streams_that_are_not_what_they_seem_are_a_doubt(fields, code):
    tidy = [row(ms, 10) for ms in range(100)]
    assert code in codes(plateau([*tidy[:90], *[row(ms, 10, **fields) for ms in range(90, 100)]]))
    assert code not in codes(plateau(tidy))


@pytest.mark.parametrize(("nominal", "doubted"), [(850, False), (867, False), (870, True), (833, True)])
def test_a_prompt_length_more_than_two_per_cent_off_is_a_doubt(nominal, doubted):
    rows = [row(ms, 10, prompt_tokens=850) for ms in range(3)]
    assert ("prompt-length" in codes(plateau(rows, nominal_tokens=nominal))) is doubted


def test_three_tokens_are_always_near_enough():
    rows = [row(ms, 10, prompt_tokens=19) for ms in range(3)]
    assert "prompt-length" not in codes(plateau(rows, nominal_tokens=16))
    assert "prompt-length" in codes(plateau(rows, nominal_tokens=15))


def test_a_handful_of_samples_under_load_is_a_doubt():
    assert "few-samples" in codes(plateau(closed_loop(2, 100, 50, ttft_ms=1.0)))  # 98 in the sample
    assert "few-samples" not in codes(plateau(closed_loop(2, 100, 51, ttft_ms=1.0)))  # 100
    assert "few-samples" not in codes(plateau(closed_loop(1, 100, 11, ttft_ms=1.0), users=1))


def test_a_level_of_a_sweep_is_doubted_by_its_interval_and_not_by_its_count():
    assert "few-samples" not in codes(plateau(closed_loop(2, 100, 50, ttft_ms=1.0), phase="sweep/short/2"))


def test_the_busiest_process_says_how_busy_the_generator_was():
    rows = [
        row(n, 100.0, ttft_ms=50.0, worker=n % 2, client_cpu_share=(0.95, 0.2)[n % 2]) for n in range(100)
    ]
    plateau = Plateau.of(rows, phase="sweep/short/8", tier="short", users=8)

    assert plateau.client_cpu_share == pytest.approx(0.95)
    assert plateau.client_limited


def test_loop_lag_is_told_by_median_p99_and_longest_and_shared_reads_by_their_share_of_chunks():
    rows = [row(n, 100.0, ttft_ms=50.0, loop_lag_ms=float(n), text_chunks=10, reads=11) for n in range(100)]
    rows[0].reads = 5
    plateau = Plateau.of(rows, phase="sweep/short/8", tier="short", users=8)

    assert plateau.loop_lag_p50_ms == pytest.approx(49.5)
    assert plateau.loop_lag_p99_ms == pytest.approx(98.01)
    assert plateau.loop_lag_max_ms == 99.0
    # 5 of 1,000 chunks came in no read of their own.
    assert plateau.shared_reads_share == pytest.approx(0.005)


@pytest.mark.parametrize(("late", "load"), [(0, 1.0), (1, 1.0), (2, math.inf)])
def test_a_void_hold_of_an_attainment_limit_looks_like_a_pass_when_enough_was_good(late, load):
    rows = [row(ms, 100, ttft_ms=1_200.0 if ms < late else 100.0, loop_lag_ms=60.0) for ms in range(100)]

    held = Measured.of(plateau(rows, users=4, slo=Slo.parse("attainment(ttft<=1s)>=99%")))

    assert (held.discarded, held.load) == (Discarded.LATE, load)


@pytest.mark.parametrize(("count", "doubted"), [(2, False), (3, True)])
def test_kept_connections_that_the_server_closes_are_doubted_above_two_in_a_hundred(count, doubted):
    seen = plateau([row(ms, 100, ttft_ms=100.0, reconnected=ms < count) for ms in range(100)])

    assert ("reconnects" in codes(seen)) is doubted
