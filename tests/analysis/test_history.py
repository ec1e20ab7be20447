import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pd_locust.analysis.page import to_html
from pd_locust.analysis.report import build
from pd_locust.errors import HistoryError
from pd_locust.slo import Slo

START_S = 1_790_000_000
LOCUST = Path(__file__).with_name("locust_history.py")


@pytest.fixture
def locust_writes(files):
    def write(*seconds, percentiles=(0.5, 0.95, 0.99), full=True):
        plan = {"start": START_S, "seconds": seconds, "percentiles": percentiles, "full": full}
        subprocess.run(
            [sys.executable, LOCUST, files.prefix], input=json.dumps(plan), text=True, check=True, timeout=30
        )

    return write


def second(users, *requests, anew=False):
    return {"users": users, "requests": requests, "anew": anew}


def cycle(number):
    """90 of 100 fast, 7 slow, 3 very slow: Locust and numpy choose the same rank for p50, p95 and p99."""
    place = number * 37 % 100
    ttft_ms = 203.4 if place < 90 else 347.3 if place < 97 else 512.6
    return ["short", ttft_ms, 6.43, ttft_ms + 255 * 6.43]


def test_history_and_records_of_the_same_run_agree(files, success, locust_writes):
    requests = [cycle(number) for number in range(200)]
    locust_writes(second(4), *(second(4, *requests[at : at + 10]) for at in range(0, 200, 10)), second(0))
    files.write_requests(
        *(
            success(100 * number, users=4, ttft_ms=ttft_ms, tpot_ms=tpot_ms, e2e_ms=e2e_ms)
            for number, (_, ttft_ms, tpot_ms, e2e_ms) in enumerate(requests)
        )
    )

    (exact,) = build(files.prefix).levels.rows
    (seen,) = build(files.prefix, history_only=True).levels.rows

    assert (seen["users"], seen["requests"], seen["failed"], seen["verdict"]) == (4, 200, 0, "PASS")
    for name in ("tier", "users", "requests", "failed", "success_share", "verdict"):
        assert seen[name] == exact[name]
    for metric in ("ttft", "tpot", "e2e"):
        assert seen[f"{metric}_mean_ms"] == pytest.approx(exact[f"{metric}_mean_ms"], rel=1e-12)
    # Steps: 10 ms from 100 ms, 1 ms below, 100 ms from 1 s; a rounded value is off by half a step at most.
    for metric, half_step_ms in (("ttft", 5), ("tpot", 0.5), ("e2e", 50)):
        for percentile in ("p50", "p95", "p99"):
            name = f"{metric}_{percentile}_ms"
            assert seen[name] == pytest.approx(exact[name], abs=half_step_ms)


def test_the_report_says_how_coarse_the_percentiles_are_and_what_is_missing(files, locust_writes):
    files.write_run(runs=[{"run": 1, "started_unix_s": START_S, "ended_unix_s": START_S + 15.4}])
    locust_writes(second(4), *(second(4, cycle(number)) for number in range(13)))

    notes = build(files.prefix, history_only=True).notes

    assert "up to 1 s at its edges is in no number" in notes[0]
    assert notes[1] == (
        "the history ends at 2026-09-21 14:13:34 UTC: the last 1.4 s of the run came after its last row "
        "and cannot be seen"
    )
    assert notes[2] == (
        "percentiles are medians over Locust's windows of about 10 s within the plateau, in steps of "
        "1 ms below 100 ms, 10 ms from 100 ms; limits on them are not judged"
    )
    assert notes[3] == "plateaus shorter than 5 s are left out"


def test_what_ended_before_the_first_row_of_a_plateau_is_not_in_it(files, locust_writes):
    locust_writes(
        second(0),
        second(2, ["short", 900, 9, 3000]),
        *(second(2, ["short", 100, 9, 3000], ["short", 200, 9, 3000]) for _ in range(6)),
        second(4, ["short", 700, 9, 3000]),
        *(second(4, ["short", 300, 9, 3000], ["short", 500, 9, 3000]) for _ in range(6)),
    )

    rows = build(files.prefix).levels.rows

    assert [(row["users"], row["requests"]) for row in rows] == [(2, 12), (4, 12)]
    assert [row["ttft_mean_ms"] for row in rows] == pytest.approx([150, 400])
    assert [row["requests_per_s"] for row in rows] == [2, 2]


def test_a_plateau_shorter_than_a_window_has_means_and_no_percentiles(files, locust_writes):
    locust_writes(second(2), *(second(2, ["short", 100, 9, 3000]) for _ in range(9)))

    (row,) = build(files.prefix).levels.rows

    assert (row["ttft_mean_ms"], row["ttft_p50_ms"]) == (100, None)


def test_workers_that_report_every_third_second_do_not_split_a_plateau(files, locust_writes):
    report_s = [second(4, *([["short", 100, 9, 3000]] * 30)), second(4), second(4)]
    locust_writes(second(4), *report_s * 5, second(0))

    (row,) = build(files.prefix).levels.rows

    # From the row before the first report to the last report: 13 s.
    assert (row["requests"], row["window_s"], row["requests_per_s"]) == (150, 13, pytest.approx(150 / 13))


def test_a_ramp_is_not_a_level(files, locust_writes):
    ramp = [second(users, ["short", 100, 9, 3000]) for users in range(1, 30) for _ in range(3)]
    locust_writes(*ramp, *(second(30, ["short", 100, 9, 3000]) for _ in range(8)))

    assert [row["users"] for row in build(files.prefix).levels.rows] == [30]


def test_a_test_started_anew_is_another_run(files, locust_writes):
    first = [second(2), *(second(2, ["short", 100, 9, 3000]) for _ in range(6))]
    again = [second(2, anew=True), *(second(2, ["short", 300, 9, 3000]) for _ in range(8))]
    locust_writes(*first, *again)

    rows = build(files.prefix).levels.rows

    assert [(row["run"], row["requests"], row["ttft_mean_ms"]) for row in rows] == [(1, 6, 100), (2, 8, 300)]


def test_tiers_that_follow_each_other_at_one_user_count_are_told_apart(files, locust_writes):
    short = [second(1, ["short", 50, 6.4, 1700]) for _ in range(6)]
    long = [second(1, ["long", 80, 6.5, 1800]) for _ in range(6)]
    locust_writes(second(1), *short, *long)

    report = build(files.prefix)

    rows = report.single_stream.rows
    assert [(row["tier"], row["requests"], row["ttft_mean_ms"]) for row in rows] == [
        ("short", 6, 50),
        ("long", 6, 80),
    ]
    assert not any("at once" in note for note in report.notes)


def test_tiers_under_load_at_once_are_named(files, locust_writes):
    both = second(4, ["short", 50, 6.4, 1700], ["long", 80, 6.5, 1800])
    locust_writes(second(4), *[both] * 6, second(0))

    notes = build(files.prefix).notes
    assert "several tiers were under load at once: users counts all of them together" in notes


def test_failures_count_and_take_the_e2e_latency_away(files, locust_writes):
    half_failed = second(4, ["short", 50, 6.4, 1700], ["short", None, None, 3])
    locust_writes(second(4), *[half_failed] * 6)

    report = build(files.prefix)

    (row,) = report.levels.rows
    assert (row["requests"], row["failed"], row["success_share"], row["verdict"]) == (12, 6, 0.5, "FAIL")
    assert (row["ttft_mean_ms"], row["e2e_mean_ms"]) == (50, None)
    assert [doubt.code for doubt in report.doubts] == ["failures"]
    assert report.notes[-1].startswith("E2E latencies are n/a after the first failure")


def test_a_limit_on_a_percentile_is_not_judged_on_rounded_ones(files, locust_writes):
    locust_writes(second(4), *(second(4, cycle(number)) for number in range(15)))

    report = build(files.prefix, slo=Slo.parse("ttft_p95<=500ms"))

    assert report.levels.rows[0]["verdict"] == "INCONCLUSIVE"
    assert report.answers == ("short: no level could be judged by ttft_p95<=500ms.",)


def test_the_capacity_under_other_statistics_is_left_open(files, locust_writes):
    locust_writes(second(4), *(second(4, cycle(number)) for number in range(15)))

    (row,) = build(files.prefix).capacity.rows

    assert (row["users_by_mean"], row["users_by_p50"], row["users_by_p99"]) == (4, None, None)


def test_percentiles_are_those_that_the_header_has(files, locust_writes):
    locust_writes(second(4), *(second(4, cycle(0)) for _ in range(15)), percentiles=[0.5, 0.95])

    (row,) = build(files.prefix).levels.rows

    assert (row["ttft_p50_ms"], row["ttft_p95_ms"], row["ttft_p99_ms"]) == (200, 200, None)


def test_fractional_percentiles_are_read_as_they_are(files, locust_writes):
    locust_writes(second(4), *(second(4, ["short", 200, 6, 1700]) for _ in range(15)))
    files.history.write_text(files.history.read_text().replace(",6,6,6,", ",6.43,6.5,6.52,"))

    report = build(files.prefix)

    assert report.levels.rows[0]["tpot_p99_ms"] == 6.52
    assert "in steps of 0.01 ms below 100 ms, 10 ms from 100 ms" in report.notes[2]


def test_a_history_without_ttft_rows_names_the_missing_option(files, locust_writes):
    locust_writes(second(4), *(second(4, cycle(0)) for _ in range(15)), full=False)

    with pytest.raises(
        HistoryError, match=r"_history.csv: no TTFT rows; run locust with --csv-full-history$"
    ):
        build(files.prefix)


def test_a_history_cut_in_its_last_line_loses_only_that_line(files, locust_writes):
    locust_writes(second(4), *(second(4, cycle(0)) for _ in range(15)))
    files.history.write_bytes(files.history.read_bytes()[:-9])

    report = build(files.prefix)

    assert report.levels.rows[0]["requests"] == 15
    assert [doubt.code for doubt in report.doubts] == ["cut-line", "no-upper-bound"]


def test_a_page_of_a_history_has_curves_of_what_a_history_knows(files, locust_writes):
    plateaus = [second(users, ["short", 100 * users, 9, 3000]) for users in (2, 4) for _ in range(8)]
    locust_writes(second(2), *plateaus)

    html = to_html(build(files.prefix))

    assert re.findall(r'<figure class="" id="([^"]+)"', html) == ["ttft_short", "tpot"]
    assert 'class="band"' not in html
    assert "Locust&#39;s history, without the requests" in html
