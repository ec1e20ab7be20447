from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_locust.judge import LOOKS, _batches, _share_interval, judge, judge_means, sample_sizes, t_quantile
from pd_locust.plateau import Plateau
from pd_locust.slo import DEFAULT_SLO, FailureLimit, Slo, Verdict

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def rows(*ttft_ms, failed=0, cut=0):
    """Successes in the order given; the others come evenly between them."""
    good = [SimpleNamespace(outcome="success", ttft_ms=float(value)) for value in ttft_ms]
    bad = [SimpleNamespace(outcome="failure", ttft_ms=None) for _ in range(failed)]
    others = bad + [SimpleNamespace(outcome="cut", ttft_ms=None) for _ in range(cut)]
    places = [(index / len(part), row) for part in (good, others) for index, row in enumerate(part)]
    return [row for _, row in sorted(places, key=lambda place: place[0])]


def verdict(sample, limit="ttft_mean<=500ms", users=4, **options):
    return judge(sample, Slo.parse(limit), users, **options).verdict


def test_a_clear_mean_passes_or_fails():
    assert verdict(rows(*[400, 420] * 20)) is PASS
    assert verdict(rows(*[600, 620] * 20)) is FAIL


def test_a_mean_near_the_limit_is_inconclusive_until_the_sample_is_large():
    assert verdict(rows(390, 590, 410, 470, 560, 480, 400, 600), users=2) is OPEN
    noise = random.Random("noise")
    assert verdict(rows(*[490 + noise.uniform(-100, 100) for _ in range(40)])) is OPEN
    assert verdict(rows(*[490 + noise.uniform(-100, 100) for _ in range(8000)])) is PASS


def test_nothing_finished_is_never_a_pass():
    for limit in ("ttft_mean<=500ms", "ttft_p99<=500ms", "attainment(ttft<=1s)>=90%", "failures<=50%"):
        assert verdict([], limit) is OPEN
        assert verdict(rows(cut=20), limit) is OPEN


def test_a_handful_of_requests_settles_nothing():
    assert verdict(rows(*[100] * 7)) is OPEN
    assert verdict(rows(*[100] * 8)) is PASS


@pytest.mark.parametrize("limit", ["ttft_mean<=500ms", "ttft_p50<=500ms", "attainment(ttft<=1s)>=50%"])
def test_failures_alone_fail(limit):
    assert verdict(rows(failed=40), limit) is FAIL


def test_more_failures_than_a_mean_allows_fail_it():
    assert verdict(rows(*[100] * 990, failed=10)) is PASS
    assert verdict(rows(*[100] * 800, failed=200)) is FAIL
    assert verdict(rows(*[100] * 800, failed=200), "ttft_mean<=500ms and failures<=30%") is PASS


def test_a_failed_request_is_infinitely_late_for_a_percentile():
    finding = judge(rows(*[100] * 80, failed=20), Slo.parse("ttft_p95<=500ms"), 4).findings[0]
    assert (finding.observed, finding.verdict) == (math.inf, FAIL)
    assert verdict(rows(*[100] * 900, failed=10), "ttft_p95<=500ms") is PASS


def test_a_percentile_is_judged_by_the_share_beyond_the_limit():
    sample = rows(*([100] * 19 + [900]) * 50)  # 5 % beyond
    assert verdict(sample, "ttft_p90<=500ms", users=20) is PASS
    assert verdict(sample, "ttft_p95<=500ms", users=20) is OPEN
    assert verdict(sample, "ttft_p99<=500ms", users=20) is FAIL


def test_an_attainment_counts_failures_as_misses():
    sample = rows(*[100] * 500, failed=500)
    finding = judge(sample, Slo.parse("attainment(ttft<=1s)>=90%"), 4).findings[0]
    assert (finding.observed, finding.verdict) == (0.5, FAIL)
    assert finding.low < 0.5 < finding.high


def test_cut_requests_are_left_out():
    assert judge(rows(*[100] * 40, cut=40), DEFAULT_SLO, 4) == judge(rows(*[100] * 40), DEFAULT_SLO, 4)


def test_a_burst_of_failures_is_not_a_pass():
    outage = rows(*[100] * 800) + rows(failed=200)
    assert verdict(outage) is not PASS


def test_one_failed_condition_fails_all_and_one_open_leaves_all_open():
    sample = rows(*[400, 420] * 20)
    assert verdict(sample, "ttft_mean<=500ms and ttft_p50<=300ms") is FAIL
    assert verdict(sample, "ttft_mean<=500ms and ttft_p99<=500ms") is OPEN  # 40 requests cannot bound 1 %
    assert verdict(sample, "ttft_mean<=500ms and ttft_p50<=500ms") is PASS


def test_waves_widen_the_interval():
    # 20 users whose requests come in waves of alike ones: 400 values are worth 20.
    waves = [value for wave in range(20) for value in [400 + 20 * (wave % 10)] * 20]
    shuffled = random.Random("x").sample(waves, len(waves))
    in_waves, apart = (judge(rows(*sample), DEFAULT_SLO, 20).primary for sample in (waves, shuffled))
    assert in_waves.observed == apart.observed == 490
    assert in_waves.high - in_waves.low > 2 * (apart.high - apart.low)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    noise = random.Random("coverage")
    held = 0
    for _ in range(400):
        finding = judge(rows(*[noise.expovariate(1 / 300) for _ in range(200)]), DEFAULT_SLO, 8).primary
        held += finding.low <= 300 <= finding.high
    assert held >= 380  # 95 %, and more for the looks that were not taken


def test_an_exact_mean_alone_can_be_judged():
    assert judge_means({"ttft": 400.0}, 0.0, DEFAULT_SLO) is PASS
    assert judge_means({"ttft": 500.1}, 0.0, DEFAULT_SLO) is FAIL
    assert judge_means({"ttft": 400.0}, 0.02, DEFAULT_SLO) is FAIL
    assert judge_means({"ttft": None}, 0.0, DEFAULT_SLO) is OPEN
    assert judge_means({"ttft": 400.0}, 0.0, Slo.parse("ttft_p95<=500ms")) is OPEN


@pytest.mark.parametrize(
    "text", ["tpot_mean<=20ms and ttft_mean<=500ms", "ttft_mean<=500ms and tpot_mean<=20ms"]
)
def test_each_mean_is_judged_by_its_own_limit(text):
    slo = Slo.parse(text)

    assert judge_means({"ttft": 278.0, "tpot": 9.0}, 0.0, slo) is PASS
    assert judge_means({"ttft": 900.0, "tpot": 9.0}, 0.0, slo) is FAIL
    assert judge_means({"ttft": 278.0, "tpot": 21.0}, 0.0, slo) is FAIL
    assert judge_means({"ttft": 278.0, "tpot": None}, 0.0, slo) is OPEN


@pytest.mark.parametrize(
    ("probability", "degrees", "quantile"),
    [
        (0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.975, 3, 3.18245), (0.975, 4, 2.77645),
        (0.975, 5, 2.57058), (0.975, 10, 2.22814), (0.975, 29, 2.04523), (0.975, 30, 2.04227), (0.975, 100, 1.98397),
        (0.95, 3, 2.35336), (0.95, 10, 1.81246), (0.995, 3, 5.84091), (0.995, 29, 2.75639),
        (0.9995, 4, 8.6103),
    ],
)  # fmt: skip
def test_quantiles_of_students_t_are_those_of_the_tables(probability, degrees, quantile):
    assert t_quantile(probability, degrees) == pytest.approx(quantile, rel=2e-4)


latencies = st.lists(st.none() | st.floats(0, 1e5), max_size=60)


@given(latencies, st.none() | st.integers(1, 50))
def test_every_sample_has_a_verdict_and_an_interval_around_what_was_seen(values, users):
    sample = rows(*[value for value in values if value is not None], failed=values.count(None))
    for limit in ("ttft_mean<=500ms", "ttft_p95<=500ms", "attainment(ttft<=500ms)>=90%"):
        judgement = judge(sample, Slo.parse(limit), users)
        assert judgement.verdict in Verdict
        for finding in judgement.findings:
            if finding.low is not None:
                assert finding.low <= finding.observed + 1e-6
                assert finding.observed <= finding.high + 1e-6


def test_the_interval_of_a_mean_by_hand():
    # Four batches of two: means 105, 125, 105, 105; their mean is 110, their standard deviation 10.
    # At 80 %, each of four looks has 5 %: t(0.975, 3) = 3.18245, and 3.18245 x 10 / sqrt(4) = 15.912.
    sample = rows(100, 110, 120, 130, 110, 100, 90, 120)
    finding = judge(sample, DEFAULT_SLO, users=1, confidence=0.8, looks=4).primary
    assert finding.observed == 110
    assert finding.low == pytest.approx(94.0878, abs=0.01)
    assert finding.high == pytest.approx(125.9122, abs=0.01)


@pytest.mark.parametrize(
    ("requests", "users", "sizes"),
    [
        (7, 2, []),
        (30, 10, [8, 7, 7, 8]),  # three rounds: four parts
        (80, 10, [20, 20, 20, 20]),
        (120, 10, [20, 20, 20, 20, 20, 20]),
        (1000, 10, [33, 34, 33]),
        (10, 1, [2, 2, 2, 2, 2]),
    ],
)
def test_batches_are_two_rounds_of_all_users_and_never_fewer_than_four(requests, users, sizes):
    batches = _batches(range(requests), users)
    assert [len(batch) for batch in batches][: len(sizes)] == sizes
    assert [request for batch in batches for request in batch] == list(range(requests if sizes else 0))
    assert len(batches) <= 30


def test_a_square_wave_gets_a_wider_interval_than_the_standard_error_of_its_requests():
    # Twelve rounds of 20 users: two slow ones, two fast ones, and so on; the deviation is 50 on both sides.
    wave = [450 if index // 40 % 2 else 550 for index in range(240)]
    finding = judge(rows(*wave), DEFAULT_SLO, users=20).primary
    naive = t_quantile(1 - 0.0125 / 2, 239) * 50 / math.sqrt(239)
    assert finding.observed == 500
    assert finding.high - 500 > 5 * naive


def test_the_interval_of_a_share_does_not_collapse_when_nothing_was_seen():
    # Wilson 1927 for 0 of 100 at 95 %: z^2 / (100 + z^2) with z = 1.959964.
    assert _share_interval([[False] * 50, [False] * 50], 0.05) == pytest.approx((0.0, 0.0369935), abs=1e-6)
    assert _share_interval([[True] * 50, [True] * 50], 0.05) == pytest.approx((0.9630065, 1.0), abs=1e-6)
    # 10 of 100, five in each half: 0.0552 to 0.1744, as in every table.
    half = [True] * 5 + [False] * 45
    assert _share_interval([half, half], 0.05) == pytest.approx((0.05523, 0.17437), abs=1e-5)


def test_a_share_that_comes_in_bursts_gets_the_wider_interval_of_its_batches():
    low, high = _share_interval([[True] * 10, [False] * 10, [True] * 10, [False] * 10], 0.05)
    assert (low, high) == (0.0, 1.0)
    low, high = _share_interval([[True, False] * 5] * 4, 0.05)
    assert (low, high) == pytest.approx((0.35200, 0.64800), abs=1e-4)


def test_a_limit_on_a_mean_brings_a_limit_on_failures():
    findings = judge(rows(*[100] * 98, failed=2), DEFAULT_SLO, users=4).findings
    assert [type(finding.condition) for finding in findings[1:]] == [FailureLimit]
    assert findings[1].condition.at_most == 0.01
    assert (findings[0].verdict, findings[1].observed, findings[1].verdict) == (PASS, 0.02, OPEN)


def test_a_level_that_its_own_generator_limited_passes_nothing_and_fails_nothing():
    for ttft_ms in (100.0, 900.0):
        fields = dict.fromkeys(
            ("ttfo_ms", "ttst_ms", "tpot_ms", "itl_p99_ms", "prompt_tokens", "cached_tokens")
        )
        late = [
            SimpleNamespace(
                worker=0, text_chunks=8, reads=9, reconnected=False,
                part="sample", outcome="success", sent_unix_us=index * 1000, ttft_ms=ttft_ms, e2e_ms=1000.0,
                output_tokens=8, tokens_source="usage", buffered=False, loop_lag_ms=26.0, client_cpu_share=0.2,
                **fields,
            )
            for index in range(100)
        ]  # fmt: skip
        level = Plateau.of(late, phase="sweep/short/4", tier="short", users=4)
        assert level.judgement.verdict is (PASS if ttft_ms < 500 else FAIL)
        assert level.verdict is OPEN


def test_a_sample_grows_by_rounds_of_all_users_from_24_requests_on():
    assert sample_sizes(1, DEFAULT_SLO) == [24, 40, 64, 96]
    assert sample_sizes(8, DEFAULT_SLO) == [24, 40, 64, 96]
    assert sample_sizes(48, DEFAULT_SLO) == [144, 240, 384, 576]


@pytest.mark.parametrize(
    ("limit", "enough"),
    [("ttft_p50<=1s", 7), ("ttft_p95<=1s", 119), ("ttft_p99<=1s", 618), ("attainment(ttft<=1s)>=99%", 618)],
)
def test_a_sample_can_grow_until_a_limit_on_a_small_share_can_be_kept(limit, enough):
    slo = Slo.parse(limit)
    assert sample_sizes(1, slo) == [24, max(40, enough), max(64, 2 * enough), max(96, 4 * enough)]
    if enough > 8:
        assert verdict(rows(*[100] * enough), limit, users=1, looks=LOOKS) is PASS
        assert verdict(rows(*[100] * (enough - 1)), limit, users=1, looks=LOOKS) is OPEN


def test_a_share_that_may_not_be_missed_at_all_grows_the_sample_no_further():
    assert sample_sizes(8, Slo.parse("attainment(ttft<=1s)>=100%")) == [24, 40, 64, 96]


def hold_in_waves(noise, users, mean_ms, correlation):
    """The verdict on a level whose requests come in waves that begin anywhere; the sample grows as in a run."""
    offset, wave_ms, values = noise.randrange(users), noise.gauss(0, 60), []
    for place in range(sample_sizes(users, DEFAULT_SLO)[-1]):
        if (place + offset) % users == 0:
            wave_ms = correlation * wave_ms + math.sqrt(1 - correlation**2) * noise.gauss(0, 60)
        values.append(mean_ms + wave_ms + noise.gauss(0, 40))
    for size in sample_sizes(users, DEFAULT_SLO):
        judgement = judge(rows(*values[:size]), DEFAULT_SLO, users, looks=LOOKS)
        if judgement.is_clear:
            break
    return judgement.verdict


@pytest.mark.parametrize(
    ("correlation", "distance_ms"), [(0.0, 5), (0.5, 25)], ids=["fresh waves", "lasting waves"]
)
@pytest.mark.parametrize(("side", "wrong"), [(1, PASS), (-1, FAIL)], ids=["above", "below"])
def test_at_most_five_per_cent_of_levels_beside_the_limit_get_the_wrong_verdict(
    side, wrong, correlation, distance_ms
):
    noise = random.Random(f"{side} {correlation}")
    verdicts = [hold_in_waves(noise, 8, 500 + side * distance_ms, correlation) for _ in range(300)]
    assert verdicts.count(wrong) <= 15
    assert verdicts.count(PASS if wrong is FAIL else FAIL) > 0


def test_a_recorded_level_is_looked_at_once_and_a_growing_one_often():
    noise = random.Random("looks")
    sample = rows(*[noise.gauss(490, 30) for _ in range(40)])
    once, often = (judge(sample, DEFAULT_SLO, 4, looks=looks).primary for looks in (1, LOOKS))
    assert (once.confidence, often.confidence) == (0.95, pytest.approx(0.9875))
    assert often.low < once.low < once.high < often.high


@pytest.mark.parametrize(
    ("ttft_ms", "late_ms", "expected"),
    [(57.9, 28, PASS), (588, 34, FAIL), (490, 28, OPEN), (510, 28, OPEN), (490, 0, PASS)],
)
def test_a_late_client_widens_the_interval_and_decides_nothing_only_near_the_limit(
    ttft_ms, late_ms, expected
):
    sample = rows(*[ttft_ms - 1, ttft_ms + 1] * 48)
    assert verdict(sample, client_error_ms=late_ms) is expected


def test_no_latency_interval_goes_below_zero():
    finding = judge(rows(*[1, 1, 1, 900] * 3), DEFAULT_SLO, 4, client_error_ms=30).primary
    assert finding.low == 0
