import pytest

from pd_locust.analysis.report import build
from pd_locust.analysis.run import prefix_of
from pd_locust.errors import HistoryError


def refusal(files, **options):
    with pytest.raises(HistoryError) as caught:
        build(files.prefix, **options)
    return str(caught.value).replace(f"{files.prefix.parent}/", "")


RECORDS_REMEDY = "it must be a PREFIX_requests.csv as pd_locust wrote it; --history-only reports without it"
HISTORY_REMEDY = "it must be a PREFIX_stats_history.csv as Locust wrote it (--csv PREFIX --csv-full-history)"


def test_a_prefix_without_files_says_how_to_get_them(files):
    assert refusal(files) == (
        "run_requests.csv and run_stats_history.csv: no such file; "
        "run locust with --csv run --csv-full-history"
    )


def test_history_only_does_not_ask_for_records(files, success):
    files.write_requests(success())

    assert refusal(files, history_only=True).startswith(
        "run_stats_history.csv: no such file; run locust with"
    )


def test_an_empty_file(files):
    files.requests.write_text("")

    assert refusal(files) == f"run_requests.csv: the file is empty; {RECORDS_REMEDY}"


def test_a_header_and_nothing_else(files):
    files.write_requests()

    assert refusal(files) == f"run_requests.csv: a header and no rows; {RECORDS_REMEDY}"


def test_missing_columns_are_named(files, success):
    files.write_requests(success())
    files.requests.write_text(files.requests.read_text().replace("ttft_ms", "ttft_s"))

    assert refusal(files) == f"run_requests.csv, line 1: no column ttft_ms; {RECORDS_REMEDY}"


def test_something_that_is_not_csv(files):
    files.requests.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\n")

    assert refusal(files).startswith("run_requests.csv, line 1: no column v, run, phase, tier")


def test_an_open_quote_in_the_middle(files, success):
    files.write_requests(success(message="MARK"), success())
    files.requests.write_text(files.requests.read_text().replace("MARK", '"open'))

    assert refusal(files) == f"run_requests.csv, line 2: a quote is never closed; {RECORDS_REMEDY}"


def test_a_line_cut_in_the_middle_of_the_file(files, success):
    files.write_requests(success(), success(message="MARK"), success())
    files.requests.write_text(files.requests.read_text().replace("MARK", "\n"))

    assert refusal(files) == (
        f"run_requests.csv, line 3: the line ends before column body_bytes; {RECORDS_REMEDY}"
    )


def test_a_line_with_too_many_cells(files, success):
    files.write_requests(success(), success(message="MARK"), success())
    files.requests.write_text(files.requests.read_text().replace("MARK", "a,b"))

    assert refusal(files) == (
        f"run_requests.csv, line 3: more than the 36 cells of the header; {RECORDS_REMEDY}"
    )


def test_text_where_a_number_belongs(files, success):
    files.write_requests(success(), success(ttft_ms="fast"), success())

    assert refusal(files) == f"run_requests.csv, line 3: ttft_ms is 'fast', not a number; {RECORDS_REMEDY}"


def test_an_empty_cell_that_is_never_empty(files, success):
    files.write_requests(success(), success(sent_unix_us=None))

    assert refusal(files) == f"run_requests.csv, line 3: sent_unix_us is empty; {RECORDS_REMEDY}"


def test_a_word_that_is_none_of_the_known_ones(files, success):
    files.write_requests(success(), success(outcome="great"))

    assert refusal(files) == (
        f"run_requests.csv, line 3: outcome 'great' is none of success, failure, cut; {RECORDS_REMEDY}"
    )


def test_records_of_another_version(files, success):
    files.write_requests(success(), success(v=2))

    assert refusal(files) == (
        "run_requests.csv, line 3: record version 2, this pd-locust reads 1; "
        "report with the version that recorded it"
    )


def test_a_cut_anywhere_in_the_last_line_loses_nothing_else(files, success):
    files.write_requests(success(0, ttft_ms=100), success(1000, ttft_ms=200), success(2000, ttft_ms=900))
    whole = files.requests.read_bytes()
    last_line_at = whole[:-1].rindex(b"\n") + 1

    for end in range(last_line_at + 1, len(whole)):
        files.requests.write_bytes(whole[:end])
        report = build(files.prefix)
        assert report.levels.rows[0]["ttft_mean_ms"] == 150
        assert report.doubts[0].seen == "the last line (4) has no end and was left out"


def test_an_empty_history(files):
    files.history.write_text("")

    assert refusal(files) == f"run_stats_history.csv: the file is empty; {HISTORY_REMEDY}"


def test_a_history_of_another_tool(files):
    files.history.write_text("time,value\n1,2\n")

    assert refusal(files).startswith("run_stats_history.csv, line 1: no column Timestamp, User Count, Type")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1,\n "seed": }', "run_run.json, line 2: not JSON (Expecting value)"),
        ('{"format": 2}', "run_run.json: format 2 where this version reads 1"),
        ("[]", "run_run.json: format None where this version reads 1"),
        (
            '{"format": 1, "tiers": [{"name": "short"}]}',
            "run_run.json: not as this version writes it (KeyError('prompt_tokens'))",
        ),
    ],
)
def test_a_run_file_that_cannot_be_read(files, success, text, message):
    files.write_requests(success())
    (files.prefix.parent / "run_run.json").write_text(text)

    assert refusal(files) == f"{message}; delete the file to report without it"


@pytest.mark.parametrize(
    "name", ["run", "run_requests.csv", "run_stats_history.csv", "run_stats.csv", "run_run.json"]
)
def test_a_prefix_is_found_from_any_file_of_the_run(tmp_path, name):
    assert prefix_of(tmp_path / name) == tmp_path / "run"
