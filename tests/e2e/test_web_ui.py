from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import requests
from locust_process import STREAM, Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

KEY = "sk-web-0123456789abcdef"


@contextmanager
def web_ui(prefix: Path, *options: str, env: dict[str, str] | None = None) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "locust", "-f", str(STREAM), "--web-host", "127.0.0.1", "--web-port", str(port),
        "--csv", str(prefix), *options,
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with prefix.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=prefix.parent, env=env)
        try:
            wait_for(lambda: answers(url))
            yield url
            process.terminate()
            process.wait(timeout=30)
        finally:
            process.kill()
            process.wait()


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


def wait_for(condition, limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def stats(url: str) -> dict:
    return requests.get(f"{url}/stats/requests", timeout=5).json()


def swarm(url: str, **fields: str) -> dict:
    form = {"user_count": "4", "spawn_rate": "4", "pd_api_key": "", "pd_model": "", **fields}
    return requests.post(f"{url}/swarm", data=form, timeout=10).json()


def stop(url: str) -> None:
    assert requests.post(f"{url}/stop", timeout=60).ok
    wait_for(lambda: stats(url)["state"] in {"stopped", "ready"})


def test_the_form_offers_the_simulated_service_and_a_run_started_there_is_recorded(tmp_path):
    prefix = tmp_path / "run"
    with web_ui(prefix, "--pd-max-tokens", "16", "--pd-sim-time-scale", "0.3") as url:
        page = requests.get(url, timeout=5).text
        assert '"host": "http://127.0.0.1:' in page
        host = page.split('"host": "')[1].split('"')[0]
        assert swarm(url, host=host)["success"]
        wait_for(
            lambda: sum(row["num_requests"] for row in stats(url)["stats"] if row["method"] == "TTFT") > 20
        )
        stop(url)
        first = Run(prefix, 0, "").records()
        assert swarm(url, host=host)["success"]
        wait_for(lambda: any(record["run"] == "2" for record in Run(prefix, 0, "").records()))
        stop(url)
        records = Run(prefix, 0, "").records()
        time.sleep(2.2)  # Locust gives the same answer for two seconds
        shown = {(row["method"], row["name"]): row["num_requests"] for row in stats(url)["stats"]}

    assert {record["run"] for record in first} == {"1"}
    assert {record["run"] for record in records} == {"1", "2"}
    assert {record["outcome"] for record in records} == {"success"}
    second = [record for record in records if record["run"] == "2"]
    assert shown["", "Aggregated"] == len(second)
    assert sum(count for (kind, _), count in shown.items() if kind == "TTFT") == len(second)
    runs = Run(prefix, 0, "").description()["runs"]
    assert [run["run"] for run in runs] == [1, 2]
    assert all(run["ended_unix_s"] for run in runs)


@pytest.mark.parametrize("way", ["option", "environment", "form"])
def test_the_key_is_in_no_page_and_in_no_file(simulator, tmp_path, way):
    service = simulator("--time-scale", "0.3", "--api-key", KEY)
    options = ("--pd-api-key", KEY) if way == "option" else ()
    env = {**os.environ, "PD_API_KEY": KEY} if way == "environment" else None
    prefix = tmp_path / "run"
    with web_ui(prefix, "--host", service.url, "--pd-max-tokens", "8", *options, env=env) as url:
        assert KEY not in requests.get(url, timeout=5).text
        assert swarm(url, host=service.url, pd_api_key=KEY if way == "form" else "")["success"]
        wait_for(lambda: sum(row["num_requests"] for row in stats(url)["stats"]) > 12)
        for path in ("/", "/stats/requests", "/stats/report?download=1", "/exceptions", "/logs", "/tasks"):
            assert KEY not in requests.get(url + path, timeout=10).text, path
        stop(url)
        assert KEY not in requests.get(url, timeout=5).text
    assert {record["outcome"] for record in Run(prefix, 0, "").records()} == {"success"}
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


def test_another_host_in_the_form_is_the_one_that_is_measured(simulator, tmp_path):
    service = simulator("--time-scale", "0.3")
    prefix = tmp_path / "run"
    with web_ui(prefix, "--pd-max-tokens", "8") as url:
        assert swarm(url, host=f"{service.url}/api")["success"]
        wait_for(lambda: sum(row["num_requests"] for row in stats(url)["stats"]) > 6)
        stop(url)
    assert len(service.truth()) > 6
    assert Run(prefix, 0, "").description()["target"] == {
        "base_url": f"{service.url}/api/v1", "model": "qwen3.5-9b", "simulated": False,
    }  # fmt: skip
