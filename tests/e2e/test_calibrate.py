"""pd-locust calibrate as people call it, and a run that asks for more than it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from locust_process import STREAM

pytestmark = pytest.mark.e2e


def test_a_calibration_is_printed_kept_and_warned_by(tmp_path, run_locust):
    # The limit is none: whether a machine that runs tests can keep one is not the question.
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path), "HOME": str(tmp_path)}
    finished = subprocess.run(
        [sys.executable, "-m", "pd_locust.cli", "calibrate", "--streams", "2,4", "--limit-ms", "1e6", "--json", "-"],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.splitlines() == ["measuring 2 streams", "measuring 4 streams"]
    document = json.loads(finished.stdout)
    assert (document["format"], document["streams"]) == (1, 4)
    small, large = document["levels"]
    assert (small["streams"], large["streams"]) == (2, 4)
    # 64 tokens 8 ms apart after 200 ms: 68 events in 0.7 s a stream, or somewhat later on a busy machine.
    assert 120 < small["events_per_s"] < 210
    assert 240 < large["events_per_s"] < 420
    assert large["requests"] > 20
    assert large["error_p50_ms"] < 50

    run = run_locust(STREAM, "--users", "6", "--spawn-rate", "6", "--run-time", "4s", env=env)

    assert run.returncode == 0, run.output
    assert run.description()["calibration"] == document
    doubts = [doubt for doubt in run.description()["doubts"] if doubt["code"] == "beyond-calibration"]
    assert [doubt["seen"] for doubt in doubts] == [
        "6 users a process, where this machine was measured to carry 4"
    ]
    assert "where this machine was measured to carry 4" in run.output
