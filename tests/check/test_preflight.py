from __future__ import annotations

import socket

from check.scripted import Answer, chunk, model_list, sse, tokens
from rich.cells import cell_len

from pd_locust.check.preflight import Timeouts
from pd_locust.check.render import render
from pd_locust.stream import Category

REFUSES_IGNORE_EOS = Answer.json(
    {"detail": [{"type": "extra_forbidden", "msg": "Unexpected fields: ignore_eos"}]}, 422
)


def generate(body):
    return Answer(body=tokens(body["max_tokens"]))


def step(seen, name):
    return next(found for found in seen.steps if found.name == name)


def failed(seen):
    (found,) = [found for found in seen.steps if found.status == "failed"]
    return found


def codes(seen):
    return [doubt.code for doubt in seen.doubts]


def test_a_good_service_passes_every_step_and_tells_its_numbers(simulator, check):
    seen = check(simulator().url)
    assert seen.ok
    assert [(found.name, found.status) for found in seen.steps] == [
        ("environment", "ok"), ("resolve", "ok"), ("connect", "ok"), ("tls", "skipped"), ("models", "ok"),
        ("one token", "ok"), ("stream", "ok"),
    ]  # fmt: skip
    assert (seen.model, seen.ignore_eos, seen.doubts) == ("qwen3.5-9b", True, ())
    one, stream = step(seen, "one token"), step(seen, "stream")
    assert (one.facts["output_tokens"], one.facts["tpot_ms"], one.facts["finish_reason"]) == (
        1,
        None,
        "length",
    )
    assert (stream.facts["output_tokens"], stream.facts["text_chunks"], stream.facts["cached_tokens"]) == (
        32,
        32,
        0,
    )
    assert stream.facts["content_type"].startswith("text/event-stream")
    assert 0 < stream.facts["ttft_ms"] < stream.facts["e2e_ms"]
    assert "not buffered" in stream.seen
    assert stream.facts["role"] == "in an event of its own"
    assert '"role":"assistant"' in stream.body[0]


def test_the_steps_are_told_as_they_end(simulator, check):
    told = []
    seen = check(simulator().url, on_step=told.append)
    assert tuple(told) == seen.steps


def test_the_place_of_the_role_is_seen(simulator, scripted, check):
    together = Answer(body=sse(chunk(role="assistant", content="hi"), chunk("stop"), "[DONE]"))
    with_text = check(scripted(lambda _: together).url, model="m")
    none = check(simulator("--role-chunk", "none").url)
    assert step(with_text, "stream").facts["role"] == "with the first text"
    assert step(none, "stream").facts["role"] is None
    assert "no role" in step(none, "stream").seen


def test_a_wrong_key_is_told_at_the_models_and_appears_nowhere(simulator, check):
    seen = check(simulator("--api-key", "sk-right").url, api_key="sk-wrong-key")
    assert failed(seen).name == "models"
    assert seen.failure.category is Category.AUTH
    assert "the key or the base URL" in failed(seen).advice[0]
    assert step(seen, "stream").status == "skipped"
    assert "sk-wrong-key" not in str(seen)


def test_no_key_where_one_is_needed_says_that_none_was_sent(simulator, check):
    seen = check(simulator("--api-key", "sk-right").url)
    assert failed(seen).advice[0].startswith("no key was sent")


def test_a_key_that_the_service_repeats_is_concealed_even_when_it_is_cut_off(scripted, check):
    key = "sk-proj-abcdefghijklmnop"
    for words in (f"Incorrect API key provided: {key}.", "x" * 190 + key):
        service = scripted(lambda _, words=words: Answer.json({"error": words}, 401))
        seen = check(service.url, api_key=key, model="m", headers={"X-Tenant": "tenant-secret"})
        assert seen.failure.category is Category.AUTH
        assert "sk-proj" not in str(seen)
        assert service.asked[0][0]["Authorization"] == f"Bearer {key}"


def test_unknown_model_on_a_known_path_names_the_models_there(simulator, check):
    seen = check(simulator().url, model="qwen")
    assert codes(seen) == ["model-not-listed"]
    assert seen.failure.category is Category.NOT_FOUND
    assert failed(seen).advice[0] == "the path is right, the model 'qwen' is unknown: there is qwen3.5-9b"


def test_a_router_with_an_odd_model_list_is_only_doubted(scripted, check):
    listing = Answer(200, model_list("unknown").body.decode(), "text/plain")
    seen = check(scripted(generate, models=listing).url, model="qwen3.5-9b")
    assert (seen.ok, seen.model, codes(seen)[0]) == (True, "qwen3.5-9b", "model-not-listed")


def test_an_unknown_model_is_recognised_behind_a_400_and_a_503(scripted, check):
    for status in (400, 503):
        service = scripted(
            lambda _, status=status: Answer.json({"error": "no"}, status), models=model_list("a", "b")
        )
        assert (
            failed(check(service.url, model="c"))
            .advice[0]
            .endswith("the model 'c' is unknown: there are a, b")
        )


def test_404_everywhere_says_that_the_path_is_wrong(scripted, check):
    service = scripted(generate, root="/nothing/here")
    seen = check(service.url, model="m")
    assert seen.failure.category is Category.NOT_FOUND
    assert failed(seen).advice[0] == (
        f"the path is wrong: neither {service.url}/v1/chat/completions nor {service.url}/v1/models exists"
    )
    assert ".../v1" in failed(seen).advice[1]


def test_a_wrong_path_beside_the_usual_one_is_corrected(scripted, check):
    service = scripted(generate, models=model_list("m"))
    seen = check(f"{service.url}/api", model="m")
    assert failed(seen).advice[0].endswith(f"try --host {service.url}/v1")


def test_404_with_the_model_listed_points_to_a_missing_worker(scripted, check):
    seen = check(scripted(lambda _: Answer(404), models=model_list("m")).url)
    assert "path and model are right" in failed(seen).advice[0]
    assert "no worker of a role" in failed(seen).advice[1]


def test_a_service_without_a_model_list_is_no_error_when_the_model_is_given(scripted, check):
    service = scripted(generate)
    seen = check(service.url, model="m")
    assert seen.ok
    assert "no model list" in step(seen, "models").seen
    assert service.asked[0][1]["model"] == "m"


def test_without_a_model_or_a_list_the_check_asks_for_one(scripted, check):
    seen = check(scripted(generate).url)
    assert failed(seen).name == "models"
    assert "--pd-model" in failed(seen).advice[0]


def test_several_models_are_listed_to_choose_from(scripted, check):
    seen = check(scripted(generate, models=model_list("a", "b")).url)
    assert "a, b" in failed(seen).seen
    assert seen.model is None


def test_a_key_that_may_generate_but_not_list_is_no_failure(scripted, check):
    forbidden = Answer.json({"error": "missing scope: model.read"}, 403)
    assert check(scripted(generate, models=forbidden).url, model="m").ok


def test_ignore_eos_refused_is_left_out_and_said(scripted, check):
    service = scripted(lambda body: REFUSES_IGNORE_EOS if "ignore_eos" in body else generate(body))
    seen = check(service.url, model="m")
    assert (seen.ok, seen.ignore_eos, codes(seen)[0]) == (True, False, "no-ignore-eos")
    assert ["ignore_eos" in body for _, body in service.asked] == [True, False, False]


def test_a_400_that_is_not_about_ignore_eos_stays_a_failure(scripted, check):
    service = scripted(lambda _: Answer.json({"error": {"message": "unknown field top_q"}}, 400))
    seen = check(service.url, model="m", extra_body={"top_q": 1})
    assert seen.failure.category is Category.REJECTED
    assert seen.ignore_eos
    assert failed(seen).advice[0] == "a field of --extra-body: top_q"


def test_extra_body_reaches_the_service_but_does_not_change_the_length(scripted, check):
    service = scripted(generate)
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 4096}
    assert check(service.url, model="m", extra_body=extra).ok
    assert [body["max_tokens"] for _, body in service.asked] == [1, 32]
    assert service.asked[0][1]["chat_template_kwargs"] == {"enable_thinking": False}


def test_local_proxy_failed_is_a_proxy_on_this_machine_not_pd(scripted, check):
    answer = Answer.json(
        {"error": {"message": "local proxy failed: no provider", "type": "proxy_error"}}, 502
    )
    for models in (None, answer):
        seen = check(scripted(lambda _: answer, models=models).url, model="m")
        assert seen.failure.category is Category.LOCAL_PROXY
        assert "is itself such a proxy" in failed(seen).advice[0]
        assert "stop the desktop proxy" in failed(seen).advice[1]


def test_a_web_page_is_called_a_web_page(scripted, check):
    page = Answer(200, "<!DOCTYPE html><html><title>Sign in</title></html>", "text/html")
    seen = check(scripted(lambda _: page, models=page).url, model="m")
    assert failed(seen).advice[0].startswith("a web page (Sign in) answers")


def test_a_redirect_names_the_address_to_use(scripted, check):
    moved = Answer(308, "", "text/plain", Location="https://llm.test/v1/chat/completions")
    seen = check(scripted(lambda _: moved).url, model="m")
    assert "https://llm.test/v1/chat/completions" in failed(seen).advice[0]


def test_a_whole_json_answer_is_not_streamed(simulator, check):
    seen = check(simulator("--fault", "not-streamed").url)
    assert seen.failure.category is Category.NOT_STREAMED
    assert "gateway that collects" in failed(seen).advice[0]


def test_a_stream_in_one_burst_is_doubted(simulator, check):
    seen = check(simulator("--fault", "burst").url)
    assert seen.ok
    assert codes(seen) == ["buffered"]


def test_an_answer_without_usage_is_counted_by_chunks_and_doubted(simulator, check):
    seen = check(simulator("--fault", "no-usage").url)
    assert codes(seen) == ["tokens-by-chunks"]
    assert "32 chunks and no usage" in step(seen, "stream").seen


def test_kv_transfer_is_named(simulator, check):
    seen = check(simulator("--fault", "kv-transfer").url)
    assert seen.failure.category is Category.KV_TRANSFER
    assert "RDMA" in failed(seen).advice[0]


def test_one_token_works_and_more_do_not_points_to_decode(scripted, check):
    cut = Answer(
        200, sse(chunk(content="one"), {"error": {"message": "decode worker lost", "code": 500}}, "[DONE]")
    )
    seen = check(scripted(lambda body: generate(body) if body["max_tokens"] == 1 else cut).url, model="m")
    assert failed(seen).name == "stream"
    assert failed(seen).advice[0].startswith("one token works, more do not")


def test_a_failure_that_passes_is_tried_again_and_doubted(scripted, check):
    answers = iter([Answer(503, "busy", "text/plain")])
    seen = check(scripted(lambda body: next(answers, None) or generate(body)).url, model="m")
    assert seen.ok
    assert "flaky" in codes(seen)


def test_a_dead_service_is_tried_twice_and_no_more(scripted, check):
    service = scripted(lambda _: Answer.json({"error": "no healthy decode worker"}, 503))
    seen = check(service.url, model="m")
    assert seen.failure.category is Category.SERVER_ERROR
    assert len(service.asked) == 2
    assert "tried twice" in failed(seen).seen


def test_a_thinking_model_is_told_with_the_switch_that_turns_it_off(scripted, check):
    seen = check(
        scripted(lambda body: Answer(body=tokens(body["max_tokens"], "reasoning_content"))).url, model="m"
    )
    assert seen.ok
    assert "reasoning only" in step(seen, "stream").seen
    doubt = next(doubt for doubt in seen.doubts if doubt.code == "thinking")
    assert "--pd-thinking off" in doubt.remedy


def test_a_first_token_without_text_is_no_failure_if_more_tokens_have_some(scripted, check):
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    silent = Answer(body=sse(chunk(role="assistant", content=""), chunk("length"), usage, "[DONE]"))
    seen = check(scripted(lambda body: silent if body["max_tokens"] == 1 else generate(body)).url, model="m")
    assert seen.ok
    assert "silent-first-token" in codes(seen)


def test_a_service_that_falls_silent_ends_the_check(simulator, check):
    seen = check(simulator("--fault", "stall-headers").url, timeouts=Timeouts(first_token_s=0.3))
    assert seen.failure.category is Category.NO_FIRST_TOKEN


def test_control_characters_of_a_server_do_not_reach_the_terminal(scripted, check):
    seen = check(scripted(lambda _: Answer(500, "\x1b[2J\x07gone", "text/plain")).url, model="m")
    shown = render(failed(seen))
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown


def test_no_line_is_wider_than_100_columns_even_in_chinese(scripted, check):
    seen = check(scripted(lambda _: Answer.json({"error": "预填充实例不可用" * 30}, 500)).url, model="m")
    lines = [line for found in seen.steps for line in render(found).splitlines()]
    assert max(map(cell_len, lines)) <= 100


def test_a_closed_port_is_refused(check):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        seen = check(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert failed(seen).name == "connect"
    assert seen.failure.category is Category.REFUSED
    assert "is the server up" in failed(seen).advice[0]


def test_an_unknown_host_is_dns_and_a_proxy_that_may_know_it_is_mentioned(check, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://user:hunter2@proxy.test:3128")
    seen = check("https://nothing.invalid")
    assert failed(seen).name == "resolve"
    assert seen.failure.category is Category.DNS
    assert "https_proxy=http://***@proxy.test:3128" in step(seen, "environment").seen
    assert "https_proxy is set" in failed(seen).advice[-1]
    assert "hunter2" not in str(seen)


def test_proxy_variables_are_named_and_ignored(simulator, check, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "127.0.0.1:9")
    seen = check(simulator().url)
    assert seen.ok
    assert "HTTP_PROXY=127.0.0.1:9: pd_locust ignores" in step(seen, "environment").seen
