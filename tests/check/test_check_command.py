from __future__ import annotations

import json

KEY = "sk-secret-of-the-test"


def test_a_good_service_is_exit_code_0_and_the_key_is_not_shown(simulator, run_check):
    finished = run_check("--host", simulator("--api-key", KEY).url, "--api-key", KEY)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "fine: qwen3.5-9b can be measured" in finished.stdout
    assert "\x1b" not in finished.stdout
    assert max(map(len, finished.stdout.splitlines())) <= 100
    assert KEY not in finished.stdout + finished.stderr


def test_url_key_and_model_come_from_the_environment(simulator, run_check):
    service = simulator("--api-key", KEY)
    finished = run_check(PD_BASE_URL=service.url, OPENAI_API_KEY=KEY, PD_MODEL="qwen3.5-9b")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert KEY not in finished.stdout


def test_a_failed_check_is_exit_code_1_and_says_what_to_try(simulator, run_check):
    finished = run_check("--host", simulator("--api-key", "sk-other").url, "--api-key", KEY)
    assert finished.returncode == 1
    assert "auth: HTTP 401" in finished.stdout
    assert "1. the key or the base URL" in finished.stdout
    assert KEY not in finished.stdout + finished.stderr


def test_json_replaces_the_steps(simulator, run_check):
    finished = run_check("--host", simulator().url, "--json", "-")
    document = json.loads(finished.stdout)
    assert (document["ok"], document["model"], document["category"]) == (True, "qwen3.5-9b", None)
    assert document["steps"][-1]["facts"]["output_tokens"] == 32


def test_json_to_a_file_keeps_the_steps_on_the_terminal(simulator, run_check, tmp_path):
    finished = run_check("--host", simulator("--fault", "status-503").url, "--json", "check.json")
    assert finished.returncode == 1
    assert "server_error" in finished.stdout
    assert json.loads((tmp_path / "check.json").read_text())["category"] == "server_error"


def test_usage_errors_are_exit_code_2_and_one_sentence(run_check):
    for options, words in (
        ((), "no base URL"),
        (("--host", "ftp://x"), "expected http://"),
        (("--host", "http://127.0.0.1:9", "--extra-body", "{"), "is not JSON"),
        (("--host", "http://127.0.0.1:9", "--header", "Authorization: x"), "set by pd_locust"),
        (("--host", "http://127.0.0.1:9", "--api-key", "two words"), "the API key contains spaces"),
    ):
        finished = run_check(*options)
        assert finished.returncode == 2, (options, finished.stdout)
        assert words in finished.stderr
        assert len(finished.stderr.splitlines()) == 1
