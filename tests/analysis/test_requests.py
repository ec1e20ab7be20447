import pytest

from pd_locust.analysis.report import build
from pd_locust.language import Language, Speech
from pd_locust.slo import Slo

CHINESE = Speech.of(Language.ZH)


def test_a_single_stream_counts_every_request_of_its_phase(files, success):
    files.write_run(tiers=[{"name": "short", "prompt_tokens": 25, "max_tokens": 256}])
    files.write_requests(
        success(0, phase="single/short", users=1, part="wave", ttft_ms=40, ttst_ms=49, e2e_ms=500),
        success(500, phase="single/short", users=1, ttft_ms=50, ttst_ms=60, e2e_ms=1000),
        success(1500, phase="single/short", users=1, ttft_ms=60, ttst_ms=74, e2e_ms=1000),
    )

    (row,) = build(files.prefix).single_stream.rows

    assert row["requests"] == 3
    assert row["nominal_tokens"] == 25
    assert row["prompt_tokens"] == 16
    assert row["ttft_mean_ms"] == 50
    assert row["ttft_p50_ms"] == 50
    assert row["ttft_p95_ms"] == pytest.approx(59)
    assert row["ttft_p99_ms"] == pytest.approx(59.8)
    assert row["tpot_mean_ms"] == 9
    assert row["e2e_mean_ms"] == pytest.approx(833.333333)
    # 100 tokens in 0.5 s, 1 s and 1 s.
    assert row["stream_tokens_per_s"] == pytest.approx((200 + 100 + 100) / 3)
    # First gaps of 9, 10 and 14 ms, each less the request's median gap of 9.
    assert row["pd_handoff_p50_ms"] == 1
    assert row["success_share"] == 1
    assert row["cached_share"] == 0


def test_a_handoff_is_not_guessed_from_a_few_chunks(files, success):
    files.write_requests(success(phase="single/short", users=1, text_chunks=7))

    assert build(files.prefix).single_stream.rows[0]["pd_handoff_p50_ms"] is None


def two_users_a_second_each(success, **changes):
    """User 1 starts at 0, 1, 2, 3 s and user 2 half a second later; every request takes 1 s."""
    ttfts_ms = [1000, 2000, 100, 200, 300, 400, 500, 600]
    return [
        success(500 * number, part="wave" if number < 2 else "sample", ttft_ms=ttft_ms, **changes)
        for number, ttft_ms in enumerate(ttfts_ms)
    ]


def test_a_concurrency_run_is_shown_whole_steady_and_as_its_first_wave(files, success):
    files.write_requests(*two_users_a_second_each(success, phase="concurrency/short/2"))

    rows = {row["part"]: row for row in build(files.prefix, pairs=2).concurrency.rows}

    assert [(part, row["requests"]) for part, row in rows.items()] == [
        ("all", 8),
        ("steady", 6),
        ("first wave", 2),
    ]
    names = ("ttft_mean_ms", "ttft_p50_ms", "ttft_p95_ms", "ttft_p99_ms")
    assert [rows["all"][name] for name in names] == pytest.approx([637.5, 450, 1650, 1930])
    assert [rows["steady"][name] for name in names] == pytest.approx([350, 350, 575, 595])
    assert [rows["first wave"][name] for name in names] == pytest.approx([1500, 1500, 1950, 1990])


def test_rates_are_of_the_time_in_which_the_load_was_full(files, success):
    files.write_requests(*two_users_a_second_each(success, phase="concurrency/short/2"))

    steady = build(files.prefix, pairs=2).concurrency.rows[1]

    # First to last sending of the sample: 1.0 s to 3.5 s, in which 5 requests of 100 tokens ended.
    assert steady["window_s"] == 2.5
    assert steady["in_flight"] == 2
    assert steady["requests_per_s"] == 2
    assert steady["output_tokens_per_s"] == 200
    assert steady["output_tokens_per_s_per_pair"] == 100
    assert steady["little_residual_share"] == 0
    # 5 of 6 within 500 ms.
    assert steady["attainment_share"] == pytest.approx(5 / 6)
    assert steady["goodput_per_s"] == pytest.approx(2 * 5 / 6)


def test_a_first_wave_has_latencies_but_no_rates(files, success):
    files.write_requests(*two_users_a_second_each(success, phase="concurrency/short/2"))

    wave = build(files.prefix, pairs=2).concurrency.rows[2]

    assert wave["tpot_mean_ms"] == 9
    rates = ("in_flight", "requests_per_s", "output_tokens_per_s", "output_tokens_per_s_per_pair")
    assert [wave[name] for name in rates] == [None] * 4


@pytest.mark.parametrize(
    ("labels", "option", "per_pair"),
    [({}, None, None), ({"pairs": "4"}, None, 50), ({"pairs": "4"}, 8, 25), ({"pairs": "many"}, None, None)],
)
def test_throughput_per_pair_needs_the_number_of_pairs(files, success, labels, option, per_pair):
    files.write_run(labels=labels)
    files.write_requests(*two_users_a_second_each(success, phase="concurrency/short/2"))

    assert build(files.prefix, pairs=option).concurrency.rows[1]["output_tokens_per_s_per_pair"] == per_pair


def test_requests_sent_while_users_were_added_belong_to_no_level(files, success):
    files.write_requests(
        success(0, users=None, part="ramp", ttft_ms=900),
        success(1000, users=2, ttft_ms=100),
        success(2000, users=2, ttft_ms=200),
    )

    (row,) = build(files.prefix).levels.rows

    assert (row["users"], row["requests"], row["ttft_mean_ms"]) == (2, 2, 150)


def test_two_stays_at_the_same_level_are_two_rows(files, success):
    up_and_down = [
        *(success(1000 * second, users=1) for second in range(3)),
        *(success(3000 + 500 * half, users=2) for half in range(6)),
        success(6000, users=1, part="settling"),
        *(success(7000 + 1000 * second, users=1) for second in range(3)),
    ]
    files.write_requests(*up_and_down)

    rows = build(files.prefix).concurrency.rows

    assert [(row["users"], row["requests"], row["window_s"], row["in_flight"]) for row in rows] == [
        (1, 3, 2.0, 1.0),
        (2, 6, 2.5, pytest.approx(1.8)),
        (1, 3, 2.0, 1.0),
    ]


def test_test_runs_in_one_file_are_told_apart(files, success):
    files.write_requests(success(0), success(1000), success(9000, run=2), success(10000, run=2))

    rows = build(files.prefix).levels.rows

    assert [(row["run"], row["requests"], row["window_s"]) for row in rows] == [(1, 2, 1.0), (2, 2, 1.0)]


def test_tiers_that_run_at_once_share_their_users_and_are_not_called_idle(files, success):
    files.write_requests(*(success(500 * n, tier="short" if n % 2 else "long", users=2) for n in range(200)))

    report = build(files.prefix)

    assert {row["tier"]: row["requests"] for row in report.levels.rows} == {"long": 100, "short": 100}
    assert [doubt.code for doubt in report.doubts] == ["no-upper-bound", "no-upper-bound"]
    assert "several tiers were under load at once: users counts all of them together" in report.notes
    assert report.answers[1] == (
        "short: at least 2 users of all tiers together keep ttft_mean<=500ms (mean 100.0 ms, 100 requests); "
        "plan with 1 (20 % headroom)."
    )
    assert "所有档位合计至少 2 并发" in CHINESE(report.answers[1])


def test_a_count_of_one_request_a_user_is_answered_from_its_first_wave(files, success):
    counted = {"phase": "concurrency/short/2", "part": "wave"}
    files.write_requests(success(0, **counted), success(10, **counted))

    assert build(files.prefix).answers == (
        "short at 2 users: TTFT mean 100.0 ms, p95 100.0 ms; TPOT mean 9.0 ms; 100 % of 2 requests succeeded.",
    )


def test_the_confidence_of_the_run_is_that_of_its_report(files, success):
    # Mean 490, 16 batches of four with a standard error of 2.6: +- 2.8 of them at 95 % (four looks), 4.7 at 99.9 %.
    rows = [success(100 * n, ttft_ms=480.0 + 20 * (n // 8 % 2), phase="sweep/short/2") for n in range(64)]
    files.write_requests(*rows)
    verdicts = []
    for confidence in (0.95, 0.999):
        files.write_run(confidence=confidence)
        verdicts.append(build(files.prefix).levels.rows[0]["verdict"])

    assert verdicts == ["PASS", "INCONCLUSIVE"]


def test_failures_are_counted_by_category_and_never_as_latencies(files, success, failure):
    files.write_requests(
        success(0, ttft_ms=100),
        failure(500),
        failure(1000),
        failure(1500, category="auth", message="HTTP 401: bad key"),
        success(2000, ttft_ms=300),
        success(2500, outcome="cut", e2e_ms=None),
    )

    report = build(files.prefix)

    (level,) = report.levels.rows
    assert (level["requests"], level["failed"], level["success_share"]) == (5, 3, 0.4)
    assert (level["ttft_mean_ms"], level["attainment_share"], level["verdict"]) == (200, 0.4, "FAIL")
    assert [(row["category"], row["count"], row["share"]) for row in report.failures.rows] == [
        ("server_error", 2, 0.4),
        ("auth", 1, 0.2),
    ]
    assert report.failures.rows[1]["example"] == "HTTP 401: bad key"
    assert "--pd-api-key" in report.failures.rows[1]["hint"]
    assert report.cut == 1


def test_a_run_in_which_everything_failed_still_gives_every_table(files, failure):
    files.write_requests(
        failure(0, phase="single/short", users=1),
        failure(1000, phase="concurrency/short/2"),
        failure(2000, phase="sweep/short/2"),
    )

    report = build(files.prefix)

    assert report.single_stream.rows[0]["ttft_mean_ms"] is None
    assert report.concurrency.rows[0]["success_share"] == 0
    assert report.capacity.rows[0]["max_users"] is None
    assert report.capacity.rows[0]["first_failed_users"] == 2
    assert report.levels.rows[0]["verdict"] == "FAIL"
    (answer,) = report.answers
    assert answer == "short at 2 users: none of 1 requests succeeded."


def sweep(success, tier, levels):
    """Levels given as {users: TTFTs}, 10 s apart, with a request every 10 ms."""
    return [
        success(
            10_000 * step + 10 * n, phase=f"sweep/{tier}/{users}", tier=tier, users=users, ttft_ms=ttft_ms
        )
        for step, (users, ttfts_ms) in enumerate(levels.items())
        for n, ttft_ms in enumerate(ttfts_ms)
    ]


def test_capacity_names_the_largest_level_that_passed_and_the_smallest_that_failed(files, success):
    files.write_requests(
        *sweep(success, "short", {64: [200] * 20, 179: [278] * 18 + [600] * 2, 190: [510] * 20}),
    )

    report = build(files.prefix)

    (row,) = report.capacity.rows
    assert (row["max_users"], row["planned_users"], row["samples"]) == (179, 143, 20)
    assert row["ttft_mean_ms"] == pytest.approx(310.2)
    assert (row["first_failed_users"], row["first_failed_mean_ms"]) == (190, 510)
    assert [row[f"users_by_{statistic}"] for statistic in ("mean", "p50", "p95", "p99")] == [179, 179, 64, 64]
    (answer,) = report.answers
    assert answer == (
        "short: 179 users keep ttft_mean<=500ms (mean 310.2 ms, 20 requests); plan with 143 (20 % headroom)."
    )


def test_without_a_failed_level_the_answer_is_at_least(files, success):
    files.write_requests(*sweep(success, "short", {64: [200] * 20}))

    (answer,) = build(files.prefix, headroom=0.5).answers
    assert answer.startswith("short: at least 64 users keep ttft_mean<=500ms (mean 200.0 ms, 20 requests)")
    assert answer.endswith("plan with 32 (50 % headroom).")


def test_a_given_limit_replaces_the_one_of_the_run(files, success):
    files.write_run(slo="ttft_mean<=250ms")
    files.write_requests(*sweep(success, "short", {64: [200] * 20, 128: [300] * 20}))

    assert build(files.prefix).capacity.rows[0]["max_users"] == 64
    (row,) = build(files.prefix, slo=Slo.parse("ttft_p50<=300ms")).capacity.rows
    assert row["max_users"] == 128
    (row,) = build(files.prefix, slo=Slo.parse("tpot_mean<=5ms")).capacity.rows
    assert row["first_failed_mean_ms"] == 9


def test_a_sweep_decides_the_capacity_where_there_is_one(files, success):
    files.write_requests(*sweep(success, "short", {64: [200] * 20}), success(900_000, users=900))

    report = build(files.prefix)

    assert report.capacity.rows[0]["max_users"] == 64
    assert [row["users"] for row in report.levels.rows] == [64]


def test_tiers_stand_in_the_order_in_which_the_run_declares_them(files, success):
    files.write_run(
        tiers=[{"name": name, "prompt_tokens": 16, "max_tokens": 8} for name in ("short", "long")]
    )
    files.write_requests(*sweep(success, "long", {64: [200] * 2}), *sweep(success, "short", {64: [200] * 2}))

    assert [row["tier"] for row in build(files.prefix).capacity.rows] == ["short", "long"]


def test_a_doubt_of_the_live_run_is_told_once(files, success):
    lag = {"code": "lag", "where": "short", "seen": "9 ms", "cause": "one core", "remedy": "--processes"}
    stale = {"code": "few-samples", "where": "short at 2 users", "seen": "x", "cause": "y", "remedy": "z"}
    files.write_run(doubts=[lag, lag, stale])
    files.write_requests(success(0), success(1000))

    doubts = build(files.prefix).doubts

    assert [doubt.code for doubt in doubts] == ["few-samples", "under-concurrency", "lag"]
    assert doubts[0].seen == "2 requests in the sample, p99 needs 100"


def test_a_tier_may_be_called_null(files, success):
    files.write_requests(success(0, tier="null"), success(1000, tier="null"))

    assert build(files.prefix).levels.rows[0]["tier"] == "null"


def test_a_level_that_missed_by_its_failures_says_how_many(files, success, failure):
    made = [(failure if n % 4 == 0 else success)(100 * n, phase="sweep/short/2") for n in range(200)]
    files.write_requests(*made)

    (answer,) = build(files.prefix).answers

    assert answer == (
        "short: no number of users tried kept ttft_mean<=500ms; "
        "the smallest that missed it, 2, had mean 100.0 ms, 200 requests, 50 failed."
    )
    assert "其中 50 个失败" in CHINESE(answer)
