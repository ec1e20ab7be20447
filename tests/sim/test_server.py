import json
import re
import socket
import struct
import time

import pytest

from pd_sim.__main__ import main


def read_all(link):
    """Read until a chunked body ends or the peer closes."""
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        received = link.recv(65_536)
        if not received:
            break
        data += received
    return data


def test_the_ready_line_says_where_and_what(sim):
    assert re.fullmatch(
        r"pd_sim ready http://127\.0\.0\.1:\d+ model=qwen3\.5-9b profile=qwen3\.5-9b-8p8d pairs=8\n",
        sim.ready_line,
    )


def test_a_stream_is_role_then_tokens_then_finish_then_usage_then_done(sim, parse_events):
    status, headers, body = sim.chat({"x-request-id": "order"}.items(), max_tokens=3)
    assert status == 200
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["x-request-id"] == "order"
    role, *tokens, finish, usage, done = parse_events(body)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    words = [token["choices"][0]["delta"]["content"] for token in tokens]
    assert len(set(words)) == len(words) == 3
    assert all(token["choices"][0]["finish_reason"] is None for token in tokens)
    assert finish["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 16,
        "completion_tokens": 3,
        "total_tokens": 19,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert done == "[DONE]"


def test_usage_comes_only_when_asked_for(sim, parse_events):
    _, _, body = sim.chat(stream_options=None)
    assert all("usage" not in found for found in parse_events(body)[:-1])


def test_one_token_is_a_whole_stream(sim, text_of, parse_events):
    _, _, body = sim.chat(max_tokens=1)
    assert len(text_of(body).split()) == 1
    assert parse_events(body)[-2]["usage"]["completion_tokens"] == 1


def test_max_completion_tokens_wins_over_max_tokens_and_sixteen_is_the_default(sim, text_of):
    assert len(text_of(sim.chat(max_completion_tokens=2, max_tokens=9)[2]).split()) == 2
    assert len(text_of(sim.chat(max_tokens=None)[2]).split()) == 16


def test_without_stream_one_json_object_comes_after_the_models_time(sim):
    status, headers, body = sim.chat(stream=False, stream_options=None, max_tokens=3)
    answer = json.loads(body)
    assert (status, headers["content-type"], answer["object"]) == (200, "application/json", "chat.completion")
    assert len(answer["choices"][0]["message"]["content"].split()) == 3
    assert answer["usage"]["completion_tokens"] == 3


def test_any_prefix_before_the_path_is_accepted(sim, body_of, text_of):
    status, _, body = sim.send("POST", "/api/v1/chat/completions", body_of())
    assert status == 200
    assert len(text_of(body).split()) == 4


def test_the_connection_serves_the_next_request(sim, body_of):
    connection = sim.connect()
    ports = set()
    for _ in range(3):
        connection.request("POST", "/v1/chat/completions", json.dumps(body_of()))
        ports.add(connection.sock.getsockname()[1])
        assert connection.getresponse().read().endswith(b"data: [DONE]\n\n")
    connection.close()
    assert len(ports) == 1


def test_connection_close_is_obeyed(sim, body_of):
    connection = sim.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps(body_of()), {"Connection": "close"})
    response = connection.getresponse()
    assert response.read().endswith(b"data: [DONE]\n\n")
    assert response.headers["connection"] == "close"
    assert connection.sock is None


def test_a_request_may_arrive_byte_by_byte(sim, raw_request, body_of):
    with sim.socket() as link:
        for byte in raw_request(json.dumps(body_of())):
            link.send(bytes([byte]))
        assert b"data: [DONE]" in read_all(link)


def test_pipelined_requests_are_answered_in_order(sim, raw_request, body_of):
    body = json.dumps(body_of())
    with sim.socket() as link:
        link.sendall(raw_request(body, "first") + raw_request(body, "second"))
        both = b""
        while both.count(b"data: [DONE]") < 2:
            both += link.recv(65_536)
    assert both.index(b"chatcmpl-first") < both.index(b"[DONE]") < both.index(b"chatcmpl-second")


def test_a_client_that_waits_for_100_continue_gets_it(sim, raw_request, body_of):
    request = raw_request(json.dumps(body_of())).replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
    head, body = request.split(b"\r\n\r\n", 1)
    with sim.socket() as link:
        link.sendall(head + b"\r\n\r\n")
        assert link.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        link.sendall(body)
        assert b"data: [DONE]" in read_all(link)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"messages": []}, 400, "at least one message"),
        ({"messages": None}, 400, "at least one message"),
        ({"messages": ["hello"]}, 400, "an object with a role"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "content of a message"),
        ({"model": "gpt-0"}, 404, "'gpt-0' does not exist"),
        ({"max_tokens": 0}, 400, "at least 1"),
        ({"max_tokens": "4"}, 400, "whole number"),
        ({"min_tokens": 4}, 400, "max_tokens=1 of the prefill leg"),
        ({"n": 2}, 400, "n must be 1"),
        ({"stream": "yes"}, 400, "stream must be true or false"),
        ({"stream": False}, 400, "only allowed with stream=true"),
        ({"max_tokens": 65_536}, 400, "context length of 65536"),
    ],
)
def test_a_bad_body_is_refused_in_openais_shape(sim, fields, status, message):
    got, headers, body = sim.chat(**fields)
    error = json.loads(body)["error"]
    assert (got, error["code"], headers["content-type"]) == (status, status, "application/json")
    assert message in error["message"]


def test_what_is_not_json_is_refused(sim):
    assert sim.send("POST", "/v1/chat/completions", "{")[0] == 400
    assert sim.send("POST", "/v1/chat/completions", "[]")[0] == 400


def test_unknown_paths_and_methods_are_refused(sim):
    assert sim.send("GET", "/v1/completions")[0] == 404
    status, headers, _ = sim.send("GET", "/v1/chat/completions")
    assert (status, headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("request_bytes", "status_line"),
    [
        (b"GET /health HTTP/1.0\r\n\r\n", b"HTTP/1.1 505 "),
        (b"hello\r\n\r\n", b"HTTP/1.1 400 "),
        (b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 411 "),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 400 "),
        (b"POST /tokenize HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"HTTP/1.1 413 "),
        (b"GET /" + b"x" * 70_000, b"HTTP/1.1 431 "),
    ],
)
def test_what_is_not_the_http_spoken_here_is_answered_and_closed(sim, request_bytes, status_line):
    with sim.socket() as link:
        link.sendall(request_bytes)
        answer = read_all(link)
    assert answer.startswith(status_line)
    assert b"Connection: close" in answer


def test_the_truth_is_what_the_socket_saw(sim):
    sent_ns = time.perf_counter_ns()
    link = sim.raw_chat("truth", max_tokens=30)
    seen = b""
    first_ns = None
    while not seen.endswith(b"0\r\n\r\n"):
        seen += link.recv(65_536)
        if first_ns is None and b'"content":" ' in seen:
            first_ns = time.perf_counter_ns()
    end_ns = time.perf_counter_ns()
    link.close()
    truth = sim.get("/truth")["truth"]
    assert sent_ns < truth["received_ns"] < truth["first_token_ns"] < first_ns
    assert truth["first_token_ns"] < truth["last_token_ns"] == truth["done_ns"] < end_ns
    assert (truth["tokens"], truth["prompt_tokens"], truth["cached_tokens"]) == (30, 16, 0)
    # The model says 4.91 ms and 29 x 0.64; the clock of a busy machine may only add to that.
    assert truth["first_token_ns"] - truth["received_ns"] > 4.8e6
    assert first_ns - sent_ns - (truth["first_token_ns"] - truth["received_ns"]) < 100e6


def test_the_role_chunk_comes_long_before_the_first_token(start):
    link = start("--time-scale", "5").raw_chat("early", max_tokens=1)
    sent_ns = time.perf_counter_ns()
    assert b'"role":"assistant"' in link.recv(65_536)
    role_ns = time.perf_counter_ns()
    assert b'"content":" ' in link.recv(65_536)
    token_ns = time.perf_counter_ns()
    link.close()
    # 245 ms of the model against the time of a round trip.
    assert token_ns - role_ns > 2 * (role_ns - sent_ns)


def test_the_role_chunk_can_wait_for_the_first_token_or_be_left_out(start, parse_events):
    waiting = start("--time-scale", "0.1", "--role-chunk", "with-first-token").raw_chat(max_tokens=1)
    together = waiting.recv(65_536)
    waiting.close()
    assert together.startswith(b"HTTP/1.1 200")
    assert together.index(b'"role":"assistant"') < together.index(b'"content":" ')
    _, _, body = start("--time-scale", "0.1", "--role-chunk", "none").chat(max_tokens=1)
    assert parse_events(body)[0]["choices"][0]["delta"]["content"].startswith(" ")


def test_the_finish_chunk_can_carry_the_last_token(start, parse_events, text_of):
    _, _, body = start("--time-scale", "0.1", "--finish-carries-token").chat(max_tokens=3)
    choice = parse_events(body)[-3]["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["delta"]["content"].startswith(" ")
    assert len(text_of(body).split()) == 3


def test_truth_can_be_read_from_a_moment_on_and_cleared(sim):
    sim.chat({"x-request-id": "old"}.items())
    moment_ns = time.perf_counter_ns()
    sim.chat({"x-request-id": "new"}.items())
    assert set(sim.get(f"/truth?since={moment_ns}")) == {"new"}
    assert sim.send("DELETE", "/truth")[0] == 200
    assert sim.get("/truth") == {}
    assert sim.send("GET", "/truth?since=yesterday")[0] == 400


def test_a_client_that_leaves_frees_its_place(sim):
    link = sim.raw_chat("leaver", max_tokens=30_000)
    while b'"content":" ' not in link.recv(65_536):
        pass
    assert sim.metric("vllm:num_requests_running") == 1
    link.close()
    assert sim.settled("vllm:num_requests_running", 0)
    assert sim.metric("vllm:kv_cache_usage_perc") == 0
    truth = sim.get("/truth")["leaver"]
    assert truth["done_ns"] is None
    assert 0 < truth["tokens"] < 30_000


def test_metrics_count_tokens_and_first_token_times(start):
    sim = start("--time-scale", "0.1")
    sim.chat(max_tokens=5)
    sim.chat(max_tokens=5, stream=False, stream_options=None)
    assert sim.metric("vllm:generation_tokens_total") == 10
    assert sim.metric("vllm:prompt_tokens_total") == 32
    assert sim.metric("vllm:prompt_tokens_by_source_total") == 32
    assert sim.metric("vllm:request_success_total") == 2
    # A reply that is not streamed shows no first token.
    assert sim.metric("vllm:time_to_first_token_seconds_count") == 1
    assert sim.metric("vllm:time_to_first_token_seconds_sum") > 0.0048


def test_the_key_guards_v1_but_not_health(start):
    sim = start("--api-key", "secret")
    assert sim.send("GET", "/health")[0] == 200
    for authorization, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401)):
        got, _, body = sim.send("GET", "/v1/models", headers=authorization.items())
        assert (got, json.loads(body)["error"]["type"]) == (status, "AuthenticationError")
        assert sim.chat(authorization.items())[0] == 401
    key = {"Authorization": "Bearer secret"}.items()
    assert sim.send("GET", "/v1/models", headers=key)[0] == 200
    assert sim.chat(key)[0] == 200


def test_the_model_list_has_the_one_model(sim):
    (card,) = sim.get("/v1/models")["data"]
    assert (card["id"], card["max_model_len"]) == ("qwen3.5-9b", 65_536)


def test_tokenize_agrees_with_usage(sim, parse_events):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]
    _, _, body = sim.send("POST", "/tokenize", {"model": "qwen3.5-9b", "messages": messages})
    counted = json.loads(body)
    _, _, stream = sim.chat(messages=messages)
    assert counted["count"] == len(counted["tokens"]) == 12
    assert parse_events(stream)[-2]["usage"]["prompt_tokens"] == 12
    assert json.loads(sim.send("POST", "/tokenize", {"prompt": "a b c"})[2])["count"] == 3


def test_tokenize_can_be_switched_off(start):
    assert start("--no-tokenize").send("POST", "/tokenize", {"prompt": "a"})[0] == 404


def test_a_repeated_prompt_is_cached_only_when_asked_for(start, sim, parse_events):
    caching = start("--time-scale", "0.1", "--prefix-cache")
    cached = [parse_events(caching.chat(words=850)[2])[-2]["usage"] for _ in range(2)]
    # 850 words are 13 full blocks of 64.
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in cached] == [0, 832]
    assert caching.get("/truth")
    fresh = [parse_events(sim.chat(words=850)[2])[-2]["usage"] for _ in range(2)]
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in fresh] == [0, 0]


def test_a_stream_may_end_early_unless_ignore_eos_is_set(start, parse_events):
    sim = start("--time-scale", "0.1", "--eos-probability", "1")
    *_, finish, usage, _ = parse_events(sim.chat(max_tokens=9)[2])
    assert (finish["choices"][0]["finish_reason"], usage["usage"]["completion_tokens"]) == ("stop", 1)
    *_, finish, usage, _ = parse_events(sim.chat(max_tokens=9, ignore_eos=True)[2])
    assert (finish["choices"][0]["finish_reason"], usage["usage"]["completion_tokens"]) == ("length", 9)


def test_linear_streams_slow_each_other_by_ten_milliseconds(start):
    sim = start("--profile", "linear")
    links = [sim.raw_chat(f"user-{number}", max_tokens=2) for number in range(3)]
    for link in links:
        read_all(link)
        link.close()
    waits_ms = sorted((t["first_token_ns"] - t["received_ns"]) / 1e6 for t in sim.get("/truth").values())
    # 30, 40 and 50 ms in the model.
    assert all(wait_ms > model_ms - 0.1 for wait_ms, model_ms in zip(waits_ms, (30, 40, 50), strict=True))


def test_sigterm_during_a_stream_exits_0_at_once_and_quietly(start):
    sim = start()
    link = sim.raw_chat(max_tokens=30_000)
    link.recv(65_536)
    assert sim.stop() == (0, "", "")
    link.close()


def test_the_simulator_ends_with_its_parents_pipe(start):
    sim = start("--exit-with-stdin")
    sim.process.stdin.close()
    assert sim.process.wait(timeout=20) == 0


def test_a_taken_port_is_one_sentence_and_exit_1(sim, capsys):
    assert main(["--port", str(sim.port)]) == 1
    assert capsys.readouterr().err.startswith(f"cannot listen on 127.0.0.1:{sim.port}: ")


def test_a_large_prompt_passes(sim, parse_events):
    _, _, body = sim.chat(words=20_881)
    assert parse_events(body)[-2]["usage"]["prompt_tokens"] == 20_890


def test_the_server_outlives_a_client_that_resets(sim):
    for _ in range(3):
        link = sim.raw_chat(max_tokens=100)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()
    assert sim.settled("vllm:num_requests_running", 0)
    assert sim.chat()[0] == 200
