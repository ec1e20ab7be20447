import json
import os
import pty
import subprocess
import sys

import pytest

from pd_locust.cli import main

pytestmark = pytest.mark.usefixtures("at_the_runs")


@pytest.fixture
def at_the_runs(runs, monkeypatch):
    monkeypatch.chdir(runs["base"].parent)


def test_a_report_writes_its_files_beside_the_run(capsys):
    assert main(["report", "base"]) == 0

    assert (
        capsys.readouterr()
        .out.replace("\n", " ")
        .endswith(
            "wrote base_report.html, base_report.md, base_single_stream.csv, base_concurrency.csv, "
            "base_capacity.csv, base_levels.csv "
        )
    )


def test_a_report_speaks_the_language_of_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("PD_LANG", "zh")

    assert main(["report", "base", "--no-files"]) == 0
    assert "short：96 并发满足 ttft_mean<=500ms" in capsys.readouterr().out


def test_json_keys_are_english_in_every_language(capsys):
    assert main(["report", "base", "--no-files", "--json", "-", "--lang", "zh"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["levels"][0]["verdict"] == "PASS"
    low, mean, high = (
        document["capacity"][0][name] for name in ("interval_low_ms", "limited_mean_ms", "interval_high_ms")
    )
    assert low < mean < high < 500


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "base", "--lang", "fr"], "--lang fr: expected en or zh"),
        (["report", "base", "--headroom", "100"], "--headroom 100: expected per cent from 0 to below 100"),
        (["report", "base", "--pairs", "0"], "--pairs 0: expected a whole number from 1 on"),
        (["plan", "base", "--rate", "short"], "--rate 'short': 'short' is not understood; expected TIER="),
        (
            ["plan", "base", "--rate", "long=1"],
            "--rate long: this run found no capacity for it; tiers with a",
        ),
        (["compare", "base", "same", "--html", "no/such/file"], "--html no/such/file: No such file"),
        (["compare", "base", "nothing"], "nothing_requests.csv and nothing_stats_history.csv: no such file"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(capsys, arguments, sentence):
    assert main(arguments) == 2

    error = capsys.readouterr().err
    assert error.startswith(f"pd-locust: {sentence}")
    assert error.count("\n") == 1


def test_a_plan_says_what_was_measured_and_what_was_not(capsys):
    assert main(["plan", "base", "--rate", "short=30", "--headroom", "20%"]) == 0

    answer, *_ = text = capsys.readouterr().out.splitlines()
    assert answer == "short 30/s: 2 pairs with 20 % headroom, 3 with one to spare."
    assert any(line.startswith("- measured: short alone, 96 users, TTFT mean ") for line in text)
    assert any(line.startswith("- not known: whether prefill or decode binds.") for line in text)


def test_a_comparison_shows_what_differs_first(capsys):
    assert main(["compare", "base", "slow"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["slow compared with base", "tp: 1 → 2"]


def test_what_takes_its_time_is_said_on_a_terminal_and_never_in_a_file(tmp_path):
    command = [sys.executable, "-m", "pd_locust.cli", "report", "base", "--no-files", "--lang", "zh"]
    terminal, ours = pty.openpty()
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=ours, env={**os.environ, "TERM": "xterm"})
        os.close(ours)
        seen = b""
        try:
            while piece := os.read(terminal, 4096):
                seen += piece
        except OSError:
            pass  # the other end is closed: how a terminal ends on Linux
        assert process.wait(60) == 0
    os.close(terminal)
    assert "正在读取 base" in seen.decode()

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout == (tmp_path / "out").read_text()
