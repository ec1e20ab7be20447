from __future__ import annotations

import math

import pytest

from pd_locust.errors import ConfigError
from pd_locust.slo import DEFAULT_SLO, Slo, Verdict


@pytest.mark.parametrize(
    ("text", "metric", "statistic", "limit_ms"),
    [
        ("ttft_mean<=500ms", "ttft", "mean", 500.0),
        ("tpot_p99<=20ms", "tpot", "p99", 20.0),
        ("e2e_p95<=3s", "e2e", "p95", 3000.0),
        ("ttst_p50 <= 80.5 ms", "ttst", "p50", 80.5),
        (" ttfo_p99.9<=0.5s ", "ttfo", "p99.9", 500.0),
    ],
)
def test_a_limit_is_read(text, metric, statistic, limit_ms):
    assert Slo.parse(text) == Slo(metric, statistic, limit_ms)


@pytest.mark.parametrize(
    "text",
    ["", "500", "ttft<=500ms", "ttft_mean<500ms", "ttft_mean<=500", "itl_p50<=9ms", "ttft_max<=9ms", "ttft_p100<=9ms",
     "ttft_mean<=-5ms", "ttft_mean<=5ms or so"],
)  # fmt: skip
def test_a_limit_that_cannot_be_read_says_what_is_accepted(text):
    with pytest.raises(ConfigError, match=r"METRIC_STATISTIC<=NUMBERms.*'ttft_mean<=500ms'") as refusal:
        Slo.parse(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize("text", ["ttft_mean<=500ms", "tpot_p99.9<=20.5ms", "e2e_p95<=3000ms"])
def test_a_limit_is_shown_as_it_is_written(text):
    assert str(Slo.parse(text)) == text
    assert Slo.parse(str(Slo.parse(text))) == Slo.parse(text)


def test_the_default_limit_is_the_one_of_the_benchmark():
    assert str(DEFAULT_SLO) == "ttft_mean<=500ms"


def test_a_mean_at_the_limit_passes_and_above_it_fails():
    assert DEFAULT_SLO.judge([400, 600], failed=0) is Verdict.PASS
    assert DEFAULT_SLO.judge([400, 600.1], failed=0) is Verdict.FAIL


def test_nothing_finished_is_never_a_pass():
    assert DEFAULT_SLO.judge([], failed=0) is Verdict.INCONCLUSIVE
    assert Slo.parse("ttft_p99<=500ms").judge([], failed=0) is Verdict.INCONCLUSIVE


def test_failures_alone_fail():
    assert DEFAULT_SLO.judge([], failed=3) is Verdict.FAIL
    assert Slo.parse("ttft_p50<=500ms").judge([], failed=3) is Verdict.FAIL


def test_beside_a_mean_more_than_one_per_cent_of_failures_fails():
    assert DEFAULT_SLO.judge([100] * 99, failed=1) is Verdict.PASS
    assert DEFAULT_SLO.judge([100] * 98, failed=2) is Verdict.FAIL
    assert DEFAULT_SLO.judge([100] * 98, failed=2, max_failure_ratio=0.02) is Verdict.PASS


def test_a_failed_request_is_infinitely_late_for_a_percentile():
    p95 = Slo.parse("ttft_p95<=500ms")
    assert p95.observe([100] * 95, failed=5) == math.inf  # rank 94.05: a twentieth of the way to infinity
    assert p95.observe([100] * 96, failed=4) == 100  # rank 94.05, below the failures
    assert p95.judge([100] * 96, failed=4) is Verdict.PASS
    assert p95.judge([100] * 95, failed=5) is Verdict.FAIL


def test_a_percentile_is_taken_from_values_in_any_order():
    assert Slo.parse("ttft_p50<=25ms").observe([30, 10, 20], failed=0) == 20
