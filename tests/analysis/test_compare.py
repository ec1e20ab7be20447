import json
from collections import Counter
from math import prod

import pandas as pd
import pytest
from analysis.virtual import SWEEP, slower, write_run

from pd_locust.analysis.compare import Finding, compare
from pd_locust.analysis.compare_view import comparison_json, comparison_page, summary
from pd_locust.analysis.report import build
from pd_locust.errors import ConfigError
from pd_locust.slo import Slo

THOUSAND = [("concurrency/short/64", "short", 64, 1000)]


def findings(compared):
    return {(line.place[2], line.measure.name): line.finding for line in compared.lines}


def test_equal_deployments_raise_at_most_five_alarms_in_a_hundred_comparisons(tmp_path):
    levels = THOUSAND + [(f"sweep/short/{users}", "short", users, 4 * users) for users in (8, 12, 16)]
    reports = [
        build(write_run(tmp_path / f"run{seed}", levels, seed=seed, max_tokens=16)) for seed in range(100)
    ]

    compared = [compare(old, new) for old, new in zip(reports, [*reports[1:], reports[0]], strict=True)]
    alarms = [
        any(one.finding is not Finding.SAME for one in (*each.lines, *each.averages)) for each in compared
    ]

    assert len(alarms) == 100
    assert sum(alarms) <= 5


def test_a_true_difference_of_five_per_cent_is_found_with_a_thousand_requests(tmp_path):
    found = Counter()
    for seed in range(6):
        old = write_run(tmp_path / f"old{seed}", THOUSAND, seed=seed, max_tokens=64)
        new = write_run(
            tmp_path / f"new{seed}", THOUSAND, seed=500 + seed, max_tokens=64, profile=slower(0.05)
        )
        lines = compare(build(old), build(new)).lines
        found.update(line.measure.name for line in lines if line.finding is Finding.SLOWER)

    names = ("tok_s", "ttft_mean", "ttft_p95", "tpot_mean", "e2e_mean")
    assert {name: found[name] for name in names} == dict.fromkeys(names, 6)


def test_the_faster_of_two_runs_is_called_faster(runs):
    compared = findings(compare(build(runs["slow"]), build(runs["base"])))

    assert compared[64, "tpot_mean"] is Finding.FASTER
    assert compared[64, "tok_s"] is Finding.FASTER


def test_ttft_at_the_knee_is_shown_and_not_judged(runs):
    compared = findings(compare(build(runs["base"]), build(runs["slow"])))

    # 96 users are the largest level that passes: more than 80 % of the capacity.
    assert compared[96, "ttft_p95"] is Finding.KNEE
    assert compared[400, "e2e_mean"] is Finding.KNEE
    assert compared[400, "tpot_mean"] is Finding.SLOWER
    assert compared[64, "ttft_mean"] is Finding.SLOWER


def test_a_percentile_with_a_handful_of_requests_beyond_it_has_no_interval(tmp_path):
    old, new = (build(write_run(tmp_path / f"run{seed}", THOUSAND, seed=seed)) for seed in (1, 2))

    lines = {line.measure.name: line for line in compare(old, new).lines}

    assert lines["ttft_p99"].ratio.low is None
    assert lines["ttft_p99"].finding is Finding.SAME
    assert lines["ttft_p95"].ratio.low < 1 < lines["ttft_p95"].ratio.high


def test_the_capacity_has_the_brackets_of_both_runs_as_its_interval(files, success, tmp_path):
    def found(name, passed, failed):
        files.prefix = tmp_path / name
        files.requests = tmp_path / f"{name}_requests.csv"
        levels = {passed: 200, failed: 900}
        files.write_requests(
            *(
                success(10_000 * place + 10 * n, phase=f"sweep/short/{users}", users=users, ttft_ms=ttft_ms)
                for place, (users, ttft_ms) in enumerate(levels.items())
                for n in range(100)
            )
        )
        return build(files.prefix)

    (line,) = compare(found("a", 100, 110), found("b", 121, 130)).capacities
    assert (line.ratio.value, line.ratio.low, line.ratio.high) == pytest.approx((1.21, 1.1, 1.3))
    assert line.finding is Finding.MORE

    (line,) = compare(found("a", 100, 110), found("b", 109, 120)).capacities
    assert line.finding is Finding.SAME


def test_what_differs_in_the_set_up_comes_first(runs):
    assert compare(build(runs["base"]), build(runs["slow"])).differences == (("tp", "1", "2"),)


def test_a_sentence_a_measure_says_for_which_tiers_it_changed(runs):
    throughput, ttft_mean, _, tpot = summary(compare(build(runs["base"]), build(runs["slow"])))

    assert throughput.startswith("tok/s: slower for short (-")
    assert ttft_mean.startswith("TTFT mean: slower for short (+")
    assert tpot.startswith("TPOT mean: slower for short (+")
    same = summary(compare(build(runs["base"]), build(runs["same"])))
    assert same[0] == "tok/s: no difference that this sample can show for short."


def test_levels_that_are_too_short_to_show_a_difference_show_it_together(tmp_path):
    levels = [(f"sweep/short/{users}", "short", users, 4 * users) for users in (8, 12, 16, 24, 32, 64, 400)]
    old = build(write_run(tmp_path / "old", levels))
    new = build(write_run(tmp_path / "new", levels, seed=7, profile=slower(0.05)))

    compared = compare(old, new)

    each = [line for line in compared.lines if line.measure.name == "ttft_mean"]
    assert [line.finding for line in each] == [*[Finding.SAME] * 5, *[Finding.KNEE] * 2]
    average = next(one for one in compared.averages if one.measure.name == "ttft_mean")
    assert (average.levels, average.finding) == (5, Finding.SLOWER)
    assert average.ratio.value == pytest.approx(prod(line.ratio.value for line in each[:5]) ** (1 / 5))
    assert 1.01 < average.ratio.low < 1.05 < average.ratio.high < 1.07


def test_runs_of_other_output_lengths_are_refused(runs, tmp_path):
    tiers = [{"name": "short", "prompt_tokens": 16, "max_tokens": 256}]
    other = write_run(tmp_path / "other", THOUSAND, tiers=tiers)

    with pytest.raises(ConfigError) as caught:
        compare(build(runs["base"]), build(other))

    assert str(caught.value) == (
        f"unlike runs: tier short is 16 tokens in, 32 out in {runs['base']} and 16 tokens in, 256 out in {other}; "
        "only runs of equal lengths can be compared"
    )


def test_runs_under_other_limits_are_refused(runs, tmp_path):
    other = write_run(tmp_path / "other", THOUSAND, slo="ttft_p95<=300ms")

    with pytest.raises(
        ConfigError,
        match=r"ttft_mean<=500ms, .* by ttft_p95<=300ms; record both with one --pd-slo, or compare them with --slo$",
    ):
        compare(build(runs["base"]), build(other))

    slo = Slo.parse("ttft_mean<=400ms")
    assert compare(build(write_run(tmp_path / "base", THOUSAND), slo=slo), build(other, slo=slo)).lines


def test_runs_without_a_common_level_are_refused(tmp_path):
    old = build(write_run(tmp_path / "old", THOUSAND))
    new = build(write_run(tmp_path / "new", [("concurrency/short/32", "short", 32, 100)]))

    with pytest.raises(ConfigError, match="have no level in common: hold the same ones in both"):
        compare(old, new)


def test_json_has_every_measure_with_stable_keys(runs):
    compared = comparison_json([compare(build(runs["base"]), build(runs["slow"]))])

    document = json.loads(json.dumps(compared, allow_nan=False))["comparisons"][0]
    assert list(document) == [
        *("old", "new", "differences", "summary", "capacity", "failures", "averages", "lines"),
    ]
    assert document["differences"] == [{"name": "tp", "old": "1", "new": "2"}]
    assert list(document["lines"][0]) == [
        *("tier", "phase", "users", "measure", "old", "new", "ratio", "ratio_low", "ratio_high", "finding"),
    ]
    assert len(document["lines"]) == 4 * 10
    assert len(document["averages"]) == 10


def test_curves_of_all_runs_lie_over_each_other(runs):
    base, same, slow = (build(runs[name]) for name in ("base", "same", "slow"))

    html = comparison_page([compare(base, same), compare(base, slow)])

    chart = html.split('id="ttft_short"')[1].split("</figure>")[0]
    assert [name in chart for name in ("</i>base<", "</i>same<", "</i>slow<")] == [True] * 3
    assert chart.count('<path class="line') == 3
    assert "http" not in html


def edited(prefix, rows, **values):
    """The run, with these values in some rows of its records."""
    path = prefix.with_name(f"{prefix.name}_requests.csv")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    frame.loc[frame.index[rows], list(values)] = list(values.values())
    frame.to_csv(path, index=False)
    return prefix


def test_failures_are_told_however_fast_the_survivors_are(tmp_path):
    half = edited(
        write_run(tmp_path / "half", THOUSAND),
        slice(None, None, 2),
        outcome="failure",
        category="server_error",
    )
    whole = write_run(tmp_path / "whole", THOUSAND, seed=1)

    compared = compare(build(whole), build(half))

    assert [(one.place[1:], one.old, one.new) for one in compared.failures] == [(("short", 64), 0.0, 0.5)]
    assert summary(compared)[-1] == "short at 64 users: 50 % of requests failed, 0 % before."
    assert comparison_json([compared])["comparisons"][0]["failures"] == [
        {"phase": "concurrency", "tier": "short", "users": 64, "old": 0.0, "new": 0.5}
    ]


def test_a_capacity_that_was_lost_or_found_is_told(runs, tmp_path):
    broken = edited(
        write_run(tmp_path / "broken", SWEEP), slice(None), outcome="failure", category="server_error"
    )

    (lost,) = compare(build(runs["base"]), build(broken)).capacities
    (found,) = compare(build(broken), build(runs["base"])).capacities

    assert (lost.old.max_concurrency, lost.new.max_concurrency) == (96, None)
    assert (lost.finding, lost.ratio.value) == (Finding.FEWER, 0)
    assert (found.finding, found.ratio) == (Finding.MORE, None)
    json.dumps(comparison_json([compare(build(broken), build(runs["base"]))]), allow_nan=False)


def test_a_level_that_the_load_generator_limited_is_shown_and_not_judged(runs, tmp_path):
    late = edited(write_run(tmp_path / "late", SWEEP, profile=slower(0.3)), slice(None), loop_lag_ms="200.0")

    compared = compare(build(runs["base"]), build(late))

    assert {line.finding for line in compared.lines} == {Finding.LIMITED}
    assert {(one.levels, one.finding) for one in compared.averages} == {(0, Finding.LIMITED)}
    assert "limited by the load generator, not judged for short" in summary(compared)[0]
    assert compared.capacities == ()
