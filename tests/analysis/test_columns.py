"""Judging columns of a file and judging records one by one must never disagree."""

import csv
import random

import pytest

from pd_locust.analysis.columns import Columns
from pd_locust.analysis.levels import load_requests
from pd_locust.errors import HistoryError
from pd_locust.plateau import EVERYTHING, FIRST_WAVE, STEADY, Plateau
from pd_locust.record import Outcome, RequestRecord
from pd_locust.slo import DEFAULT_SLO, RequestLimit, Slo


@pytest.fixture
def frame(files, success, failure):
    """300 requests of 8 users in which everything that may be absent is absent now and then."""
    dice = random.Random(1)

    def changes():
        ttft_ms = round(dice.expovariate(1 / 400), 3)
        return {
            "phase": "sweep/short/8",
            "users": 8,
            "ttft_ms": ttft_ms,
            "ttfo_ms": dice.choice([ttft_ms, None]),
            "tpot_ms": dice.choice([dice.gauss(9, 1), None]),
            "e2e_ms": ttft_ms + 900,
            "cached_tokens": dice.choice([0, 700, None]),
            "prompt_tokens": dice.choice([850, None]),
            "output_tokens": dice.choice([100, 1, None]),
            "tokens_source": dice.choice(["usage", "chunks", None]),
            "buffered": dice.choice([0, 1]),
            "reconnected": dice.choice([0, 1]),
            "loop_lag_ms": dice.choice([0.2, 3.0, None]),
        }

    rows = []
    for number in range(300):
        part = "wave" if number < 8 else "settling" if number < 16 else "sample"
        kind = dice.choices(["good", "failed", "cut"], [16, 3, 1])[0]
        if kind == "failed":
            rows.append(failure(150 * number, phase="sweep/short/8", users=8, part=part))
        else:
            rows.append(success(150 * number, **changes(), part=part))
            if kind == "cut":
                rows[-1] |= {"outcome": "cut", "e2e_ms": None}
    files.write_requests(*rows)
    return load_requests(files.requests)[0]


@pytest.mark.parametrize("parts", [EVERYTHING, STEADY, FIRST_WAVE], ids=["all", "steady", "wave"])
@pytest.mark.parametrize(
    "limit",
    [
        "ttft_mean<=500ms",
        "ttft_p95<=800ms and tpot_mean<=9ms",
        "ttfo_p50<=300ms",
        "attainment(ttft<=1s, tpot<=10ms)>=90%",
        "attainment(ttfo<=1s)>=40% and failures<=20%",
    ],
)
def test_a_plateau_of_columns_is_the_plateau_of_records(files, frame, limit, parts):
    with files.requests.open(newline="") as file:
        records = [RequestRecord.from_row(row) for row in list(csv.reader(file))[1:]]

    of_columns, of_records = (
        Plateau.of(rows, phase="sweep/short/8", tier="short", users=8, slo=Slo.parse(limit), parts=parts)
        for rows in (Columns(frame), records)
    )

    assert of_columns == of_records
    assert of_columns.finished > 0


def test_columns_are_told_with_none_where_nothing_is(files, success, failure):
    files.write_requests(success(0, ttft_ms=100), failure(1000), success(2000, ttfo_ms=None))
    rows = Columns(load_requests(files.requests)[0])

    assert rows.column("ttft_ms") == [100, None, 100]
    assert rows.column("tokens_source") == ["usage", None, "usage"]
    assert rows.values("ttfo_ms") == [100]
    assert rows.latencies_ms("ttfo_ms") == [100, float("inf")]
    assert rows.met([RequestLimit("ttfo", 500.0)]) == [True, False, False]
    assert rows[1:].ended(Outcome.SUCCESS).column("sent_unix_us") == [2_000_000]


def test_an_empty_selection_decides_nothing(frame):
    nothing = Columns(frame)[:0]

    plateau = Plateau.of(nothing, phase="sweep/short/8", tier="short", users=8, slo=DEFAULT_SLO)

    assert (plateau.finished, plateau.verdict, plateau.ttft.mean) == (0, "INCONCLUSIVE", None)


def test_a_last_line_that_was_cut_is_found_however_long_it_is(files, success):
    files.write_requests(success(0), success(1000))
    with files.requests.open("a") as file:
        file.write("1," + "x" * 200_000)

    frame, (doubt,) = load_requests(files.requests)

    assert len(frame) == 2
    assert doubt.seen == "the last line (4) has no end and was left out"


def test_a_file_larger_than_what_is_read_at_a_time_keeps_every_row_and_its_types(files, success, failure):
    rows = [
        failure(number) if number % 1000 == 999 else success(number, run=1, ttft_ms=number)
        for number in range(20_000)
    ]
    files.write_requests(*rows)
    assert files.requests.stat().st_size > 2_000_000

    frame, doubts = load_requests(files.requests)

    assert (len(frame), doubts) == (20_000, [])
    assert frame["ttft_ms"].sum() == sum(number for number in range(20_000) if number % 1000 != 999)
    assert frame["outcome"].value_counts().to_dict() == {"success": 19_980, "failure": 20}


def test_a_word_among_numbers_is_named_by_its_line_even_far_down(files, success):
    rows = [success(number) for number in range(20_000)]
    rows[15_000] |= {"ttft_ms": "fast"}
    files.write_requests(*rows)

    with pytest.raises(HistoryError, match=r"line 15002: ttft_ms is 'fast', not a number"):
        load_requests(files.requests)
