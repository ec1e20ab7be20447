import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from pd_locust.analysis.export import to_json, write_tables
from pd_locust.analysis.render import render_terminal, to_markdown
from pd_locust.analysis.report import build
from pd_locust.language import ENGLISH, Language, Speech

GOLDEN = Path(__file__).parents[1] / "golden"
CHINESE = Speech.of(Language.ZH)
TABLES = ("single_stream", "concurrency", "capacity", "levels")


@pytest.fixture
def report(files, success, failure):
    """One of everything: single streams, a concurrency run, a sweep that finds its end, a failure, doubts."""
    files.write_run(
        command=["locust", "-f", "locustfiles/pd_benchmark.py", "--headless"],
        target={"base_url": "http://127.0.0.1:8000/v1", "model": "Qwen3.5-9B", "simulated": True},
        tiers=[
            {"name": "short", "prompt_tokens": 16, "max_tokens": 100},
            {"name": "long", "prompt_tokens": 6330, "max_tokens": 100},
        ],
        seed=7,
        labels={"pairs": "2", "tp": "1"},
        slo="ttft_mean<=500ms",
        headroom=0.2,
        versions={"pd_locust": "0.1.0", "locust": "2.47.0"},
    )
    users = range(100)
    files.write_requests(
        *(success(1000 * n, phase="single/short", users=1, ttft_ms=45 + n, ttst_ms=55 + n) for n in range(5)),
        *(
            success(1000 * n, phase="single/long", tier="long", users=1, ttft_ms=80.5, prompt_tokens=6330)
            for n in range(5, 10)
        ),
        *(
            success(20_000 + 10 * n, phase="concurrency/short/100", users=100, part="wave", ttft_ms=900 + n)
            for n in users
        ),
        *(
            success(21_000 + 1000 * turn + 10 * n, phase="concurrency/short/100", users=100, ttft_ms=300 + n)
            for turn in range(3)
            for n in users
        ),
        failure(
            24_000, phase="concurrency/short/100", users=100, message="HTTP 503: no <b>worker</b> | [red]"
        ),
        *(
            success(
                40_000 + 10_000 * place + 1000 * n // level,
                phase=f"sweep/short/{level}",
                users=level,
                part="settling" if n < level else "sample",
                ttft_ms=ttft_ms + n % 100,
            )
            for place, (level, ttft_ms) in enumerate([(64, 200.0), (179, 278.0), (190, 510.0)])
            for n in range(3 * level)
        ),
        success(90_000, phase="sweep/short/190", users=190, outcome="cut", e2e_ms=None, part="tail"),
    )
    return build(files.prefix)


def printed(report, width, say=ENGLISH):
    """What a pipe of that width gets."""
    out = io.StringIO()
    render_terminal(report, Console(file=out, width=width), say)
    return out.getvalue()


@pytest.mark.parametrize(
    ("say", "name"), [(ENGLISH, "report.md"), (CHINESE, "report.zh.md")], ids=["en", "zh"]
)
def test_markdown_is_as_it_was(report, say, name):
    assert to_markdown(report, say) == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("say", "name"), [(ENGLISH, "report.txt"), (CHINESE, "report.zh.txt")], ids=["en", "zh"]
)
def test_a_terminal_is_as_it_was(report, say, name):
    text = printed(replace(report, prefix=Path("reports/run")), 100, say)

    assert text == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_is_wide_enough_and_no_number_is_shortened(report, width):
    for say in (ENGLISH, CHINESE):
        lines = printed(report, width, say).splitlines()

        # A Chinese character takes two columns.
        assert max(map(cell_len, lines)) <= width
        assert not any("…" in line for line in lines)


def test_a_narrow_terminal_says_which_columns_it_leaves_out(report):
    assert "left out at this width" not in printed(report, 100)
    assert "left out at this width: in flight, tok/s" in printed(report, 75)


def test_the_answer_comes_before_the_tables(report):
    text = printed(report, 100)

    answer = (
        "short: 179 users keep ttft_mean<=500ms (mean 326.6 ms, 358 requests); plan with 143 (20 % headroom)."
    )
    assert answer in " ".join(text.split())
    assert text.index("short: 179 users") < text.index("Single stream")


def test_a_message_of_the_server_is_never_markup(report):
    assert "HTTP 503: no <b>worker</b> | [red]" in printed(report, 100)
    assert r"HTTP 503: no &lt;b>worker&lt;/b> \| [red]" in to_markdown(report)


def test_several_runs_in_one_file_are_numbered(files, success):
    files.write_requests(success(0), success(1000))
    assert " run " not in printed(build(files.prefix), 100)

    files.write_requests(success(0), success(1000), success(9000, run=2), success(10000, run=2))
    assert "| run | tier | users |" in to_markdown(build(files.prefix))


def test_json_is_plain_data_with_stable_keys(report):
    document = json.loads(json.dumps(to_json(report), allow_nan=False))

    assert list(document) == [
        *("format", "source", "run", "slo", "headroom", "pairs", "answers"),
        *TABLES,
        *("failures", "cut", "warnings", "notes"),
    ]
    assert document["source"] == "requests"
    assert document["run"]["target"]["model"] == "Qwen3.5-9B"
    assert document["cut"] == 1
    assert document["capacity"][0]["max_users"] == 179
    assert document["concurrency"][2]["in_flight"] is None
    assert list(document["warnings"][0]) == ["code", "where", "seen", "cause", "remedy"]


def test_csv_files_have_the_columns_and_values_of_the_json(report, files):
    paths = write_tables(report, files.prefix)

    assert [path.name for path in paths] == [f"run_{table}.csv" for table in TABLES]
    document = to_json(report)
    for path, table in zip(paths, TABLES, strict=True):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows == [
            {name: "" if value is None else str(value) for name, value in row.items()}
            for row in document[table]
        ]


def test_a_table_without_rows_is_written_too_so_that_no_old_one_stays(files, success):
    files.write_requests(success(0), success(1000))

    single_stream, *_ = write_tables(build(files.prefix), files.prefix)

    assert single_stream.read_text().startswith(
        "run,tier,nominal_tokens,prompt_tokens,requests,failed,success_share,"
    )
    assert single_stream.read_text().count("\n") == 1
