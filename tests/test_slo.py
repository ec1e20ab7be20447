from __future__ import annotations

from types import SimpleNamespace

import pytest

from pd_locust.errors import ConfigError
from pd_locust.slo import (
    DEFAULT_SLO,
    AttainmentLimit,
    FailureLimit,
    LatencyLimit,
    RequestLimit,
    Slo,
)


@pytest.mark.parametrize(
    ("text", "metric", "statistic", "limit_ms"),
    [
        ("ttft_mean<=500ms", "ttft", "mean", 500.0),
        ("tpot_p99<=20ms", "tpot", "p99", 20.0),
        ("e2e_p95<=3s", "e2e", "p95", 3000.0),
        ("ttst_p50 <= 80.5 ms", "ttst", "p50", 80.5),
        (" ttfo_p99.9<=0.5s ", "ttfo", "p99.9", 500.0),
        ("itl_p95<=40ms", "itl", "p95", 40.0),
    ],
)
def test_a_limit_on_a_latency_is_read(text, metric, statistic, limit_ms):
    assert Slo.parse(text) == Slo((LatencyLimit(RequestLimit(metric, limit_ms), statistic),))


def test_several_limits_are_joined_by_and():
    assert Slo.parse("ttft_p95<=800ms and tpot_mean<=20ms and failures<=0.5%").conditions == (
        LatencyLimit(RequestLimit("ttft", 800.0), "p95"),
        LatencyLimit(RequestLimit("tpot", 20.0), "mean"),
        FailureLimit(0.005),
    )


def test_an_attainment_names_what_each_request_must_keep():
    assert Slo.parse("attainment(ttft<=1s, tpot <= 20ms) >= 99 %").conditions == (
        AttainmentLimit((RequestLimit("ttft", 1000.0), RequestLimit("tpot", 20.0)), 0.99),
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "500", "ttft<=500ms", "ttft_mean<500ms", "ttft_mean<=500", "ttft_max<=9ms", "ttft_p100<=9ms",
        "ttft_mean<=-5ms", "ttft_mean<=5ms or so", "ttft_mean<=5ms,tpot_mean<=5ms", "attainment()>=99%",
        "attainment(ttft_mean<=5ms)>=99%", "attainment(ttft<=5ms)<=99%", "failures<=1", "ttft_mean<=5ms and",
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_read_says_what_is_accepted(text):
    with pytest.raises(
        ConfigError, match="expected METRIC_STATISTIC<=NUMBERms with METRIC one of ttft"
    ) as no:
        Slo.parse(text)
    assert repr(text) in str(no.value)


@pytest.mark.parametrize("text", ["failures<=101%", "attainment(ttft<=1s)>=100.1%"])
def test_a_share_above_a_hundred_per_cent_is_refused(text):
    with pytest.raises(ConfigError, match="at most 100 %"):
        Slo.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "ttft_mean<=500ms",
        "tpot_p99.9<=20.5ms",
        "ttft_p95<=800ms and failures<=0.5%",
        "attainment(ttft<=1000ms, itl<=40ms)>=99.5%",
    ],
)
def test_a_limit_is_shown_as_it_is_written(text):
    assert str(Slo.parse(text)) == text
    assert Slo.parse(str(Slo.parse(text))) == Slo.parse(text)


def test_the_default_limit_is_the_one_of_the_benchmark():
    assert str(DEFAULT_SLO) == "ttft_mean<=500ms"


def test_a_mean_brings_a_limit_on_failures_with_it_unless_one_is_given():
    assert Slo.parse("ttft_mean<=500ms").judged[1:] == (FailureLimit(0.01),)
    assert Slo.parse("ttft_mean<=500ms and failures<=5%").judged[1:] == (FailureLimit(0.05),)
    assert len(Slo.parse("ttft_p95<=500ms").judged) == 1


def test_a_request_keeps_a_limit_up_to_the_limit_itself():
    limit = RequestLimit("ttft", 500.0)
    assert limit.is_met(SimpleNamespace(ttft_ms=500.0))
    assert not limit.is_met(SimpleNamespace(ttft_ms=500.001))


def test_one_token_has_no_pace_to_keep_and_an_answer_that_never_came_is_a_miss():
    nothing = SimpleNamespace(ttfo_ms=None, tpot_ms=None, itl_p99_ms=None, ttst_ms=None)
    met = {metric: RequestLimit(metric, 9.0).is_met(nothing) for metric in ("ttfo", "tpot", "itl", "ttst")}
    assert met == {"ttfo": False, "tpot": True, "itl": True, "ttst": True}


def test_the_limits_of_one_request_are_those_of_all_conditions():
    slo = Slo.parse("ttft_p95<=800ms and attainment(tpot<=20ms)>=99% and failures<=1%")
    assert slo.request_limits == (RequestLimit("ttft", 800.0), RequestLimit("tpot", 20.0))
    assert slo.primary == LatencyLimit(RequestLimit("ttft", 800.0), "p95")
    assert Slo.parse("failures<=1%").primary is None
