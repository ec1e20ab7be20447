from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from locust_process import BENCHMARK, STREAM, Run

pytestmark = pytest.mark.e2e

KEY = "sk-secret-0123456789abcdef"
SHORT_RUN = ("--users", "6", "--spawn-rate", "6", "--run-time", "4s", "--pd-max-tokens", "16")


def environment(**variables: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PD_", "OPENAI_", "LOCUST_"))
    }
    return kept | variables


def test_without_a_host_the_simulated_service_is_measured(run_locust):
    run = run_locust(STREAM, *SHORT_RUN, env=environment(), timeout_s=60)
    assert run.returncode == 0, run.output
    assert run.description()["target"]["simulated"] is True
    assert run.description()["labels"] == {"pairs": "8"}
    assert {record["tier"] for record in run.records()} == {"short", "medium", "long"}


def test_every_finished_stream_is_one_post_one_ttft_one_tpot_and_one_in_aggregated(simulator, run_locust):
    service = simulator("--time-scale", "0.3")
    run = run_locust(STREAM, "--host", service.url, *SHORT_RUN)
    assert run.returncode == 0, run.output
    finished = [record for record in run.records() if record["outcome"] == "success"]
    stats = run.stats()
    for tier in ("short", "medium", "long"):
        of_tier = sum(record["tier"] == tier for record in finished)
        assert of_tier > 0
        for kind in ("POST", "TTFT", "TPOT"):
            assert int(stats[kind, tier]["Request Count"]) == of_tier, (kind, tier)
    assert int(stats["", "Aggregated"]["Request Count"]) == len(finished)
    assert not [record for record in run.records() if record["outcome"] == "cut"]


def test_prompts_have_the_length_of_their_tier_and_none_is_sent_twice(simulator, run_locust):
    service = simulator("--time-scale", "0.3", "--prefix-cache")
    run = run_locust(STREAM, "--host", service.url, *SHORT_RUN, "--pd-tiers", "short,medium,long,xlong")
    nominal = {"short": 16, "medium": 850, "long": 6330, "xlong": 20890}
    for record in run.records():
        assert int(record["prompt_tokens"]) == nominal[record["tier"]]
        assert int(record["cached_tokens"]) == 0
    seeds = {
        run.description()["seed"],
        run_locust(STREAM, "--host", service.url, *SHORT_RUN).description()["seed"],
    }
    assert len(seeds) == 2


def test_custom_events_reach_any_listener_with_the_tier_as_name(simulator, run_locust, tmp_path):
    service = simulator("--time-scale", "0.3")
    locustfile = tmp_path / "listening.py"
    locustfile.write_text(
        f"""
import atexit, json, sys
sys.path.insert(0, {str(STREAM.parent)!r})
from pd_stream import *
seen = []
@events.request.add_listener
def listen(request_type, name, response_time, exception, **_):
    seen.append([request_type, name, response_time, exception is None])
@events.quit.add_listener
def write(**_):
    json.dump(seen, open("seen.json", "w"))
"""
    )
    run_locust(locustfile, "--host", service.url, *SHORT_RUN, "--pd-tiers", "short")
    seen = json.loads((tmp_path / "seen.json").read_text())
    kinds = {kind: [row for row in seen if row[0] == kind] for kind in ("POST", "TTFT", "TPOT")}
    assert len(kinds["POST"]) == len(kinds["TTFT"]) == len(kinds["TPOT"]) > 0
    assert {row[1] for row in seen} == {"short"}
    for post, ttft in zip(kinds["POST"], kinds["TTFT"], strict=True):
        # Equal where the client was held up until a whole answer lay there to be read.
        assert 0 < ttft[2] <= post[2]


def test_rows_do_not_read_500_for_504(simulator, run_locust):
    # In this profile TTFT is 20 ms + 10 ms for each request in flight: 48 or 49 users wait just over 500 ms.
    service = simulator("--profile", "linear")
    run = run_locust(
        STREAM, "--host", service.url, "--users", "49", "--spawn-rate", "49", "--run-time", "8s",
        "--pd-tiers", "short", "--pd-max-tokens", "2", "--html", "run.html",
    )  # fmt: skip
    row = run.stats()["TTFT", "short"]
    percentiles = {row[name] for name in ("50%", "66%", "75%", "95%", "99%")}
    assert any(float(value) % 10 for value in percentiles), percentiles
    assert any(float(value) % 1 for value in (run.stats()["TPOT", "short"][name] for name in ("50%", "95%")))
    html = (run.prefix.parent / "run.html").read_text()
    assert "TTFT" in html
    assert "TPOT" in html


def test_ctrl_c_lets_requests_in_flight_finish_and_loses_no_record(simulator, tmp_path):
    service = simulator()
    prefix = tmp_path / "run"
    command = [
        sys.executable, "-m", "locust", "-f", str(STREAM), "--headless", "--only-summary", "--csv", str(prefix),
        "--host", service.url, "--users", "5", "--spawn-rate", "5", "--pd-tiers", "short", "--pd-max-tokens", "200",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path
    ) as process:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and len(service.truth()) < 12:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=40)[0]
    run = Run(prefix, process.returncode, output)
    records = run.records()
    streamed = [request_id for request_id in service.truth() if request_id.startswith("pd")]
    assert run.returncode == 0, output
    assert sorted(record["request_id"] for record in records) == sorted(streamed)
    assert {record["outcome"] for record in records} == {"success"}
    assert int(run.stats()["", "Aggregated"]["Request Count"]) == len(records)
    assert run.description()["runs"][0]["ended_unix_s"] is not None


CTRL_C_IN_A_STREAM = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from pd_stream import *
from pd_locust.wire.connection import Connection

receive, streams = Connection.receive, []

def pressed_at_the_tenth(connection, sent_ns, **options):
    streams.append(sent_ns)
    if len(streams) == 10:
        os.kill(os.getpid(), signal.SIGINT)
    return receive(connection, sent_ns, **options)

Connection.receive = pressed_at_the_tenth
"""


def test_ctrl_c_while_a_stream_is_being_read_cuts_no_stream(simulator, run_locust, tmp_path):
    service = simulator("--time-scale", "0.3")
    locustfile = tmp_path / "pressed.py"
    locustfile.write_text(CTRL_C_IN_A_STREAM.format(folder=str(STREAM.parent)))

    alone = ("--pd-no-check", "--pd-model", "qwen3.5-9b", "--pd-max-tokens", "64")
    run = run_locust(locustfile, "--host", service.url, "--users", "4", "--spawn-rate", "4", *alone)

    assert run.returncode == 0, run.output
    assert {record["outcome"] for record in run.records()} == {"success"}
    assert 10 <= len(run.records()) < 30
    assert "Traceback" not in run.output


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["one process", "two workers"])
def test_requests_that_outlast_the_drain_are_recorded_as_cut(simulator, run_locust, processes):
    service = simulator()
    run = run_locust(
        STREAM, "--host", service.url, "--users", "4", "--spawn-rate", "4", "--run-time", "4s", "--pd-drain", "0.3",
        "--pd-tiers", "short", "--pd-max-tokens", "3000", *processes,
    )  # fmt: skip
    records = run.records()
    assert len(records) == 4
    assert {record["outcome"] for record in records} == {"cut"}
    assert {record["category"] for record in records} == {""}
    assert run.returncode == 0, run.output


def test_users_of_a_worker_that_is_late_are_sampled_once_they_are_there(simulator, run_locust, tmp_path):
    service = simulator("--time-scale", "0.3")
    locustfile = tmp_path / "late.py"
    locustfile.write_text(
        f"""
import sys
sys.path.insert(0, {str(STREAM.parent)!r})
from pd_stream import *
import gevent
from locust.runners import WorkerRunner
start = WorkerRunner.spawn_users
def late(self, *args, **options):
    gevent.sleep(1.5 * self.worker_index)
    start(self, *args, **options)
WorkerRunner.spawn_users = late
"""
    )
    # The master waits this long for reports before it says that all users are there.
    waits = environment(LOCUST_WAIT_FOR_WORKERS_REPORT_AFTER_RAMP_UP="0.2")
    run = run_locust(
        locustfile, "--host", service.url, "--users", "4", "--spawn-rate", "4", "--run-time", "5s",
        "--pd-max-tokens", "16", "--pd-tiers", "short", "--processes", "2", env=waits,
    )  # fmt: skip
    parts = {worker: Counter() for worker in "01"}
    for record in run.records():
        parts[record["worker"]][record["part"]] += 1
    for worker in "01":
        assert parts[worker]["wave"] == 2, parts
        assert parts[worker]["sample"] > 10 * parts[worker]["ramp"], parts


def test_the_key_is_sent_to_the_service_and_shown_nowhere(simulator, run_locust, tmp_path):
    service = simulator("--time-scale", "0.3", "--api-key", KEY)
    run = run_locust(
        STREAM, "--host", service.url, *SHORT_RUN, "--pd-tiers", "short", "--pd-api-key", KEY, "--loglevel", "DEBUG",
        "--html", "run.html", "--processes", "2",
    )  # fmt: skip
    assert run.returncode == 0, run.output
    assert {record["outcome"] for record in run.records()} == {"success"}
    assert KEY not in run.output
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("name", ["PD_API_KEY", "OPENAI_API_KEY"])
def test_key_host_and_model_come_from_the_environment(simulator, run_locust, name):
    service = simulator("--time-scale", "0.3", "--api-key", KEY)
    base = name.replace("API_KEY", "BASE_URL")
    variables = {name: KEY, base: f"{service.url}/api/v1/chat/completions", "PD_MODEL": "qwen3.5-9b"}
    run = run_locust(STREAM, *SHORT_RUN, "--pd-tiers", "short", env=environment(**variables))
    assert run.returncode == 0, run.output
    assert run.description()["target"]["base_url"] == f"{service.url}/api/v1"
    assert {record["outcome"] for record in run.records()} == {"success"}
    assert KEY not in run.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--host", "http://127.0.0.1:9/v1?key=1"), "no query string"),
        (("--host", "ftp://127.0.0.1"), "expected http://HOST"),
        (("--host", "http://127.0.0.1:9"), "refused: connection refused; nobody listens"),
        (("--pd-slo", "fast"), "expected METRIC_STATISTIC<="),
        (("--pd-tiers", "tiny"), "unknown tier 'tiny'; there are short, medium, long, xlong"),
        (("--pd-extra-body", '{"min_tokens": 5}'), "min_tokens breaks PD routers"),
        (("--pd-label", "tp"), "expected KEY=VALUE"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_configuration_that_cannot_work_is_one_sentence_and_exit_code_2(run_locust, options, sentence):
    run = run_locust(STREAM, *SHORT_RUN, *options, timeout_s=40)
    assert run.returncode == 2
    said = [line for line in run.output.splitlines() if line.startswith("pd_locust: ")]
    assert len(said) == 1, run.output
    assert sentence in said[0]
    assert "Traceback" not in run.output


def test_own_tiers_come_from_a_yaml_file(simulator, run_locust, tmp_path):
    service = simulator("--time-scale", "0.3")
    tiers = tmp_path / "tiers.yaml"
    tiers.write_text(
        "chat: {prompt_tokens: 300, max_tokens: 12}\nagent: {prompt_tokens: 3000, max_tokens: 5}\n"
    )
    run = run_locust(
        STREAM, "--host", service.url, "--users", "4", "--run-time", "4s", "--pd-tier-file", str(tiers)
    )
    assert run.returncode == 0, run.output
    seen = {(record["tier"], record["prompt_tokens"], record["output_tokens"]) for record in run.records()}
    assert seen == {("chat", "300", "12"), ("agent", "3000", "5")}


def test_a_run_in_which_every_request_fails_gives_a_report_and_exit_code_1(simulator, run_locust):
    service = simulator("--fault", "error-mid-stream")
    run = run_locust(
        BENCHMARK, "--host", service.url, "--users", "4", "--pd-single-requests", "1", "--pd-requests", "6",
        "--pd-levels", "", "--pd-tiers", "short", "--pd-max-tokens", "8",
        "--pd-model", "qwen3.5-9b", "--pd-no-check",
    )  # fmt: skip
    assert run.returncode == 1, run.output
    records = run.records()
    assert len(records) == 7
    assert {record["outcome"] for record in records} == {"failure"}
    assert {record["category"] for record in records} == {"stream_error"}
    assert ("TTFT", "short") not in run.stats()
    report = Path(f"{run.prefix}_report.md").read_text()
    assert "stream_error" in report


def test_a_failure_is_no_fast_answer_in_locusts_own_rows(simulator, run_locust):
    service = simulator("--time-scale", "0.3", "--fault", "status-503", "--fault-ratio", "0.3")
    run = run_locust(
        STREAM, "--host", service.url, *SHORT_RUN, "--pd-tiers", "short", "--pd-model", "qwen3.5-9b", "--pd-no-check",
        "--html", "run.html", "--processes", "2",
    )  # fmt: skip
    answered = [float(record["e2e_ms"]) for record in run.records() if record["outcome"] == "success"]
    failed = [record for record in run.records() if record["outcome"] == "failure"]
    assert answered
    assert failed
    for row in (("POST", "short"), ("", "Aggregated")):
        seen = run.stats()[row]
        assert int(seen["Request Count"]) == len(answered) + len(failed)
        assert int(seen["Failure Count"]) == len(failed)
        assert float(seen["Average Response Time"]) == pytest.approx(sum(answered) / len(answered))
        assert float(seen["Min Response Time"]) == pytest.approx(min(answered))


def test_a_dead_service_is_not_hammered(simulator, run_locust):
    service = simulator("--fault", "status-503")
    run = run_locust(
        STREAM, "--host", service.url, "--users", "64", "--spawn-rate", "64", "--run-time", "10s",
        "--pd-tiers", "short", "--pd-model", "qwen3.5-9b", "--pd-no-check", "--pd-max-failure-ratio", "1",
    )  # fmt: skip
    assert run.returncode == 1, run.output
    records = run.records()
    assert 64 <= len(records) <= 200
    assert {record["category"] for record in records} == {"server_error"}
    assert {record["ttft_ms"] for record in records} == {""}
    assert ("TTFT", "short") not in run.stats()
    # One cause is one row, whatever ids the messages carry.
    assert len(run.failures()) == 1


def test_a_run_that_only_fails_ends_itself_with_a_clear_last_word_and_a_report(simulator, run_locust):
    service = simulator("--fault", "error-mid-stream", "--time-scale", "0.1")
    started = time.monotonic()
    run = run_locust(
        STREAM, "--host", service.url, "--users", "60", "--spawn-rate", "60", "--run-time", "60s",
        "--pd-tiers", "short", "--pd-model", "qwen3.5-9b", "--pd-no-check", "--pd-max-tokens", "8",
    )  # fmt: skip
    assert time.monotonic() - started < 40
    assert run.returncode == 1, run.output
    last_word = next(line for line in run.output.splitlines() if line.startswith("pd_locust: run aborted"))
    assert "(--pd-max-failure-ratio 0.5)" in last_word
    assert "stream_error" in last_word
    assert "stream_error" in Path(f"{run.prefix}_report.md").read_text()


def test_without_a_check_the_simulated_service_is_measured_all_the_same(run_locust):
    run = run_locust(STREAM, "--pd-no-check", "--pd-tiers", "short", "--users", "2", "--run-time", "2s")

    assert run.returncode == 0, run.output
    assert {record["outcome"] for record in run.records()} - {"cut"} == {"success"}
    assert run.description()["target"]["model"] == "qwen3.5-9b"


def test_a_wrong_address_leaves_the_records_of_an_earlier_run_alone(run_locust, tmp_path):
    (tmp_path / "run_requests.csv").write_text("earlier")

    run = run_locust(STREAM, "--host", "htp://typo", "--users", "1", "--run-time", "1s")

    assert run.returncode == 2, run.output
    assert (tmp_path / "run_requests.csv").read_text() == "earlier"
