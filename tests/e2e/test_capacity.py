from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from statistics import fmean

import pytest
import requests
from locust_process import ROOT, Run, running_simulator

pytestmark = pytest.mark.e2e

CAPACITY = ROOT / "locustfiles" / "pd_capacity.py"
# TTFT is 20 ms and 10 ms more for every request in flight: 12 users wait 140 ms, 13 wait 150.
LIMIT_MS = 145.0
A_USER_MS = 10.0
OPTIONS = (
    "--pd-tiers", "short", "--pd-max-tokens", "8", "--pd-start", "4", "--pd-slo", f"ttft_mean<={LIMIT_MS:g}ms",
    "--pd-level-max-s", "20",
)  # fmt: skip
LEVEL = re.compile(r"^ +short +(\d+) users +(PASS|FAIL|INCONCLUSIVE) +ttft mean ([\d.]+),", re.MULTILINE)
ANSWER = re.compile(
    r"^short: (\d+) users keep the limit \(ttft mean ([\d.]+), ([\d.]+) to ([\d.]+) ms", re.MULTILINE
)


def levels_printed(run):
    return [(int(users), verdict, float(mean_ms)) for users, verdict, mean_ms in LEVEL.findall(run.output)]


def answer_of(run):
    said = ANSWER.search(run.output)
    assert said, run.output
    return int(said[1]), *map(float, said.groups()[1:])


def means_the_service_knows(service, run):
    """Mean TTFT of every level's sample, by the service's own clock: a busy machine makes it slower than planned."""
    truth = service.truth()
    ttft_ms = defaultdict(list)
    for record in run.records():
        if record["part"] == "sample":
            seen = truth[record["request_id"]]
            ttft_ms[int(record["users"])].append((seen["first_token_ns"] - seen["received_ns"]) / 1e6)
    return {users: fmean(values) for users, values in ttft_ms.items()}


def is_limited(row):
    return (row["loop_lag_p99_ms"] or 0) > 0.05 * LIMIT_MS or (row["client_cpu_share"] or 0) > 0.85


def report(prefix, *options):
    command = [sys.executable, "-m", "pd_locust.cli", "report", str(prefix), "--no-files", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def started(service, prefix, *options):
    command = [
        sys.executable, "-m", "locust", "-f", str(CAPACITY), "--headless", "--only-summary", "--csv", str(prefix),
        "--host", service.url, *OPTIONS, *options,
    ]  # fmt: skip
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=prefix.parent
    )


def wait_for(condition, limit_s=15):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def wait_for_text(log, text, seen=0):
    """Wait until the log has this text more often than it was seen before."""
    wait_for(lambda: log.read_text().count(text) > seen)


def read_until_judged(process, levels):
    """What a search prints until so many of its levels have a verdict that decides something."""
    output = ""
    for line in process.stdout:
        output += line
        judged = [verdict for _, verdict, _ in LEVEL.findall(output)]
        if len(judged) - judged.count("INCONCLUSIVE") >= levels:
            return output
    raise AssertionError(output)


@pytest.mark.alone
@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["one process", "two workers"])
def test_the_answer_is_within_one_user_of_the_truth_and_the_report_says_the_same(
    simulator, run_locust, processes
):
    # Of levels during which the machine was taken away the search says that nothing is known; one search of three
    # must have known a level beyond its answer.
    for _ in range(3):
        service = simulator("--profile", "linear")
        run = run_locust(CAPACITY, "--host", service.url, *OPTIONS, *processes)
        assert run.returncode == 0, run.output
        users, mean_ms, low_ms, high_ms = answer_of(run)
        truth_ms = means_the_service_knows(service, run)
        said = json.loads(report(run.prefix, "--json", "-"))

        assert users <= 12
        assert low_ms <= mean_ms <= high_ms <= LIMIT_MS
        assert truth_ms[users] <= LIMIT_MS
        unknown = {row["users"] for row in said["levels"] if is_limited(row)}
        beyond = [tried for tried in sorted(truth_ms) if tried > users and tried not in unknown]
        if beyond:
            break
    # Of the users tried beyond, the fewest were too many, or the answer is one user too low at most.
    assert truth_ms[beyond[0]] > LIMIT_MS - A_USER_MS
    assert len({record["worker"] for record in run.records()}) == (2 if processes else 1)

    judged = [(row["users"], row["verdict"], round(row["ttft_mean_ms"], 1)) for row in said["levels"]]
    assert sorted(judged) == sorted(levels_printed(run))
    (capacity,) = said["capacity"]
    assert (capacity["max_users"], round(capacity["ttft_mean_ms"], 1)) == (users, mean_ms)
    table = [line for line in report(run.prefix).splitlines() if line.startswith("short")]
    assert len(table) > 3
    assert [line for line in table if line not in run.output] == []


@pytest.mark.alone
def test_a_search_that_is_stopped_says_what_it_knows_and_is_resumed_without_holding_that_again(
    simulator, run_locust, tmp_path
):
    service = simulator("--profile", "linear")
    prefix = tmp_path / "stopped"
    with started(service, prefix) as process:
        output = read_until_judged(process, 2)
        # Into the next level: Python raises KeyboardInterrupt in whatever is running just then.
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        output += process.communicate(timeout=30)[0]
    stopped = Run(prefix, process.returncode, output)
    assert process.returncode == 0, output
    assert "short: stopped; so far " in output
    known = [level for level in levels_printed(stopped) if level[1] != "INCONCLUSIVE"]
    assert known[0][:2] == (4, "PASS")
    assert "Capacity under" in output

    run = run_locust(CAPACITY, "--host", service.url, *OPTIONS, "--pd-resume", str(prefix))
    assert run.returncode == 0, run.output
    held_again = {users for users, _, _ in levels_printed(run)} & {users for users, _, _ in known}
    # Only the two ends of the bracket are held once more, to confirm them.
    assert 4 not in held_again
    assert len(held_again) <= 2
    assert 11 <= answer_of(run)[0] <= 12
    records = run.records()
    assert {record["run"] for record in records} == {"1", "2"}
    assert len(records) == len({record["request_id"] for record in records})
    assert [record["request_id"] for record in stopped.records()] == [
        record["request_id"]
        for record in records
        if record["run"] == "1" and record["phase"].startswith("sweep/")
    ]


def test_run_time_ends_a_search_with_what_it_knows(simulator, run_locust):
    service = simulator("--profile", "linear")
    run = run_locust(CAPACITY, "--host", service.url, *OPTIONS, "--run-time", "6s")
    assert run.returncode == 0, run.output
    assert "short: stopped; so far " in run.output
    assert "Capacity under" in run.output


def test_a_service_that_dies_ends_the_search_with_a_last_word_and_exit_code_1(tmp_path):
    prefix = tmp_path / "run"
    with running_simulator("--profile", "linear") as service:
        process = started(service, prefix)
        output = read_until_judged(process, 1)
    began_s = time.monotonic()
    with process:
        output += process.communicate(timeout=40)[0]
    assert time.monotonic() - began_s < 30
    assert process.returncode == 1, output
    assert "short: the service does not answer any more; so far " in output
    assert "Capacity under" in output
    assert "refused" in output


def test_a_level_that_the_generator_limits_is_said_to_be_so_and_decides_nothing(
    simulator, run_locust, tmp_path
):
    service = simulator("--profile", "linear")
    locustfile = tmp_path / "late.py"
    locustfile.write_text(
        f"""
import sys
from time import perf_counter
sys.path.insert(0, {str(CAPACITY.parent)!r})
import gevent
from pd_capacity import *
@events.test_start.add_listener
def be_late(**_):
    def block():
        while True:
            gevent.sleep(0.05)
            until_s = perf_counter() + 0.04
            while perf_counter() < until_s:
                pass
    gevent.spawn(block)
"""
    )
    run = run_locust(locustfile, "--host", service.url, *OPTIONS, "--pd-max-users", "4")
    verdicts = {verdict for _, verdict, _ in levels_printed(run)}
    assert verdicts == {"INCONCLUSIVE"}
    assert "(the load generator was overloaded: loop lag p99 " in run.output
    assert (
        "short: no answer, no level could be judged: 4 users could not be judged, the load generator"
        in run.output
    )


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (
            "fast",
            "limit 'fast': 'fast' is not understood; expected METRIC_STATISTIC<=NUMBERms with METRIC one of ttft",
        ),
        ("ttft_mean<=500", "'ttft_mean<=500' is not understood; expected METRIC_STATISTIC<=NUMBERms"),
        ("attainment(ttft<=1s)>=101%", "a share is at most 100 %"),
    ],
)
def test_a_wrong_limit_says_what_is_accepted_and_exits_with_2(run_locust, limit, said):
    run = run_locust(CAPACITY, *OPTIONS, "--pd-slo", limit, timeout_s=30)
    assert run.returncode == 2
    assert said in run.output
    assert "Traceback" not in run.output


def test_a_search_stopped_in_the_web_ui_begins_anew_with_the_next_start(simulator, tmp_path):
    service = simulator("--profile", "linear")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [
        sys.executable, "-m", "locust", "-f", str(CAPACITY), "--web-host", "127.0.0.1", "--web-port", str(port),
        "--csv", str(tmp_path / "run"), "--host", service.url, *OPTIONS,
    ]  # fmt: skip
    log = tmp_path / "log.txt"
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file, cwd=tmp_path) as process:
        try:
            wait_for_text(log, "Starting web interface")
            for stops in (0, 1):
                judged = log.read_text().count(" short     4 users ")
                wait_for(lambda: swarms(url, service))
                wait_for_text(log, " short     4 users ", judged)
                assert requests.post(f"{url}/stop", timeout=30).ok
                wait_for_text(log, "short: stopped; so far ", stops)
        finally:
            process.terminate()
    first_phases = {
        record["run"]: record["phase"] for record in reversed(Run(tmp_path / "run", 0, "").records())
    }
    assert first_phases == {"1": "sweep/short/4", "2": "sweep/short/4"}


def swarms(url, service):
    try:
        return requests.post(f"{url}/swarm", data={"host": service.url}, timeout=10).ok
    except requests.ConnectionError:
        return False


def test_a_service_with_a_short_context_is_searched_without_the_tier_that_is_not_held(simulator, run_locust):
    service = simulator("--max-model-len", "16384")
    run = run_locust(CAPACITY, "--host", service.url, "--pd-max-tokens", "8", "--run-time", "3s")

    assert run.returncode == 0, run.output
    assert "tier long: 6330 prompt tokens" in run.output
    assert "tier xlong" not in run.output
