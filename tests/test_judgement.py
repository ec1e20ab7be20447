from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_locust.judgement import judge, judge_mean, t_quantile
from pd_locust.slo import DEFAULT_SLO, Slo, Verdict

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def rows(*ttft_ms, failed=0, cut=0):
    """Successes in the order given; the others come evenly between them."""
    good = [SimpleNamespace(outcome="success", ttft_ms=float(value)) for value in ttft_ms]
    bad = [SimpleNamespace(outcome="failure", ttft_ms=None) for _ in range(failed)]
    others = bad + [SimpleNamespace(outcome="cut", ttft_ms=None) for _ in range(cut)]
    places = [(index / len(part), row) for part in (good, others) for index, row in enumerate(part)]
    return [row for _, row in sorted(places, key=lambda place: place[0])]


def verdict(sample, limit="ttft_mean<=500ms", users=4):
    return judge(sample, Slo.parse(limit), users).verdict


def test_a_clear_mean_passes_or_fails():
    assert verdict(rows(*[400, 420] * 20)) is PASS
    assert verdict(rows(*[600, 620] * 20)) is FAIL


def test_a_mean_near_the_limit_is_inconclusive_until_the_sample_is_large():
    assert verdict(rows(390, 590, 410, 470, 560, 480, 400, 600), users=2) is OPEN
    noise = random.Random("noise")  # noqa: S311
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
    shuffled = random.Random("x").sample(waves, len(waves))  # noqa: S311
    in_waves, apart = (judge(rows(*sample), DEFAULT_SLO, 20).primary for sample in (waves, shuffled))
    assert in_waves.observed == apart.observed == 490
    assert in_waves.high - in_waves.low > 2 * (apart.high - apart.low)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    noise = random.Random("coverage")  # noqa: S311
    held = 0
    for _ in range(400):
        finding = judge(rows(*[noise.expovariate(1 / 300) for _ in range(200)]), DEFAULT_SLO, 8).primary
        held += finding.low <= 300 <= finding.high
    assert held >= 380  # 95 %, and more for the looks that were not taken


def test_an_exact_mean_alone_can_be_judged():
    assert judge_mean(400.0, 0.0, DEFAULT_SLO) is PASS
    assert judge_mean(500.1, 0.0, DEFAULT_SLO) is FAIL
    assert judge_mean(400.0, 0.02, DEFAULT_SLO) is FAIL
    assert judge_mean(None, 0.0, DEFAULT_SLO) is OPEN
    assert judge_mean(400.0, 0.0, Slo.parse("ttft_p95<=500ms")) is OPEN


@pytest.mark.parametrize(
    ("probability", "degrees", "quantile"),
    [
        (0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.975, 3, 3.18245), (0.975, 4, 2.77645),
        (0.975, 5, 2.57058), (0.975, 10, 2.22814), (0.975, 29, 2.04523), (0.975, 100, 1.98397),
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
