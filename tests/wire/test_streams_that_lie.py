"""The table "Streams that lie" of docs/measurement.md, a test or more for each row, with literal times."""

from __future__ import annotations

import http.client
import json

import pytest
from wire.hand_made import DONE, chunk, event, role, text, usage
from wire.reading import MS, read

from pd_locust.wire.events import failure_of
from pd_locust.wire.replay import replay

STOP = chunk({}, "stop")
PING = b": ping\n\n"


# Where the clock stops.


def test_role_only_chunk_does_not_stop_the_ttft_clock():
    record = read(
        (4, role()), (200, text("Hi")), (208, text(" you", "stop")), (208.1, usage(2)), (208.1, DONE)
    )
    assert (record.outcome, record.ttft_ms, record.ttst_ms, record.tpot_ms) == ("success", 200.0, 208.0, 8.0)


def test_the_role_in_the_same_read_as_the_first_token_costs_nothing():
    record = read((200, role() + text("Hi")), (210, STOP + DONE))
    assert (record.ttft_ms, record.text_chunks) == (200.0, 1)


def test_empty_delta_usage_and_comment_are_not_tokens():
    early = (
        10,
        PING + role() + text("") + chunk({}) + chunk({"content": None}) + usage(0) + event({"choices": []}),
    )
    record = read(early, (150, text("Hi", "length")), (151, usage(1) + DONE))
    assert (record.ttft_ms, record.text_chunks, record.output_tokens) == (150.0, 1, 1)


def test_late_usage_chunk_does_not_move_tpot():
    tokens = [(100 + 10 * n, text("a")) for n in range(11)]
    record = read((1, role()), *tokens, (201, STOP), (700, usage(11)), (900, DONE))
    assert (record.tpot_ms, record.itl_max_ms, record.e2e_ms) == (10.0, 10.0, 900.0)


def test_slow_close_moves_neither_tpot_nor_e2e():
    record = read(
        (100, text("a")), (110, text("b", "stop")), (111, usage(2) + DONE), (990, b"\n"), (990, b": bye\n\n")
    )
    assert (record.tpot_ms, record.e2e_ms) == (10.0, 111.0)


def test_one_output_token_has_no_tpot():
    record = read((100, text("Hi", "length")), (101, usage(1) + DONE))
    assert (record.outcome, record.ttft_ms, record.e2e_ms) == ("success", 100.0, 101.0)
    assert (record.tpot_ms, record.ttst_ms, record.itl_p50_ms) == (None, None, None)


def test_several_tokens_in_the_only_chunk_have_no_tpot_either():
    record = read((100, text("one two three", "stop")), (101, usage(3) + DONE))
    assert (record.output_tokens, record.tpot_ms) == (3, None)


def test_reasoning_stops_the_ttft_clock_and_the_answer_the_ttfo_clock():
    record = read(
        (5, role()),
        (100, chunk({"reasoning_content": "Hm"})),
        (110, chunk({"reasoning_content": "."})),
        (400, text("Hi", "stop")),
        (401, usage(3) + DONE),
    )
    assert (record.ttft_ms, record.ttfo_ms, record.text_chunks) == (100.0, 400.0, 3)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_only_has_a_ttft_and_no_ttfo(field):
    record = read(
        (5, role()),
        (100, chunk({field: "Hm"})),
        (110, chunk({field: "Hm"}, "length")),
        (111, usage(2) + DONE),
    )
    assert (record.outcome, record.ttft_ms, record.ttfo_ms, record.tpot_ms) == ("success", 100.0, None, 10.0)


def test_without_thinking_ttfo_is_ttft():
    record = read((100, text("a")), (110, text("b", "stop") + DONE))
    assert (record.ttft_ms, record.ttfo_ms) == (100.0, 100.0)


def test_tool_call_arguments_are_tokens_and_the_name_alone_is_not():
    def call(**function):
        return chunk({"tool_calls": [{"index": 0, "function": function}]})

    record = read(
        (50, call(name="weather", arguments="")),
        (100, call(arguments='{"city"')),
        (120, call(arguments=': "Ulm"}')),
        (121, chunk({}, "tool_calls") + usage(12) + DONE),
    )
    assert (record.outcome, record.ttft_ms, record.ttfo_ms, record.text_chunks) == ("success", 100.0, None, 2)
    assert record.finish_reason == "tool_calls"


def test_completion_text_is_text():
    record = read((80, event({"choices": [{"text": "Hi", "finish_reason": "stop"}]})), (81, DONE))
    assert (record.outcome, record.ttft_ms, record.ttfo_ms) == ("success", 80.0, 80.0)


# Counting.


def test_many_tokens_in_a_chunk_are_counted_by_usage():
    chunks = [(100 + 40 * n, text("one two three four")) for n in range(4)]
    record = read(*chunks, (221, STOP + usage(16) + DONE))
    assert (record.output_tokens, record.tokens_source, record.text_chunks) == (16, "usage", 4)
    assert (record.tpot_ms, record.itl_p50_ms) == (8.0, 40.0)  # 120 ms / 15 tokens; 40 ms a chunk
    assert not record.buffered


def test_without_usage_the_chunks_are_counted_and_the_record_says_so():
    record = read((100, text("a")), (110, text("b")), (120, text("c", "stop")), (121, DONE))
    assert (record.output_tokens, record.tokens_source, record.tpot_ms) == (3, "chunks", 10.0)
    assert record.prompt_tokens is None


def test_usage_in_every_chunk_is_the_last_one_and_not_the_sum():
    parts = [
        (100 + n, chunk({"content": "a"}, usage={"prompt_tokens": 16, "completion_tokens": n + 1}))
        for n in range(5)
    ]
    record = read(*parts, (105, STOP + DONE))
    assert (record.output_tokens, record.prompt_tokens) == (5, 16)


def test_usage_inside_the_finish_chunk_counts():
    last = chunk({"content": "b"}, "length", usage={"prompt_tokens": 9, "completion_tokens": 2})
    record = read((100, text("a")), (110, last), (111, DONE))
    assert (record.outcome, record.output_tokens, record.prompt_tokens) == ("success", 2, 9)


def test_cached_tokens_are_read_and_absent_is_not_zero():
    details = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 64}}
    known = read((1, text("a", "stop")), (2, event({"choices": [], "usage": details}) + DONE))
    unknown = read((1, text("a", "stop")), (2, usage(1) + DONE))
    null = read((1, text("a", "stop")), (2, event({"usage": {"prompt_tokens_details": None}}) + DONE))
    assert (known.cached_tokens, unknown.cached_tokens, null.cached_tokens) == (64, None, None)


def test_usage_of_zero_beside_text_is_no_count():
    record = read((100, text("a")), (110, text("b", "stop")), (111, usage(0) + DONE))
    assert (record.output_tokens, record.tokens_source, record.tpot_ms) == (2, "chunks", 10.0)


@pytest.mark.parametrize("where", ["first", "last", "beside usage"])
def test_empty_choices_are_neither_token_nor_end(where):
    empty = event({"choices": []})
    parts = {
        "first": empty + role() + text("a") + STOP + usage(1),
        "last": role() + text("a") + STOP + usage(1) + empty,
        "beside usage": role() + text("a") + usage(1) + STOP,
    }
    record = read((100, parts[where] + DONE))
    assert (record.outcome, record.text_chunks, record.output_tokens) == ("success", 1, 1)


def test_empty_finish_reason_is_not_an_end():
    record = read((100, text("a", "")), (110, text("b", "")))
    assert (record.category, record.finish_reason) == ("truncated", None)


# Ends.


def test_no_done_with_finish_reason_and_clean_end_is_a_success_until_the_clean_end():
    record = read((100, text("a")), (110, text("b", "stop")), (130, b""))
    assert (record.outcome, record.e2e_ms, record.tpot_ms) == ("success", 130.0, 10.0)


def test_done_without_finish_reason_is_a_success_only_with_usage():
    with_usage = read((100, text("a") + usage(1) + DONE))
    without = read((100, text("a") + DONE))
    assert (with_usage.outcome, without.outcome, without.category) == ("success", "failure", "truncated")


def test_a_body_without_any_event_is_truncated():
    record = read()
    assert (record.category, record.ttft_ms, record.output_tokens) == ("truncated", None, None)


def test_a_body_cut_in_mid_stream_is_truncated_and_keeps_its_tokens_apart():
    record = read((100, role() + text("a")), (110, text("b")), (115, http.client.IncompleteRead(b"")))
    assert (record.outcome, record.category, record.text_chunks, record.ttft_ms) == (
        "failure",
        "truncated",
        2,
        100.0,
    )


def test_a_body_that_ends_inside_an_event_is_truncated_not_malformed():
    record = read((100, text("a")), (110, text("b", "stop")[:30]))
    assert (record.category, record.message) == ("truncated", "the body ended inside an event")


def test_a_reset_in_mid_stream_is_a_reset():
    record = read((100, text("a")), (110, ConnectionResetError(104, "reset")))
    assert (record.category, record.text_chunks) == ("reset", 1)


def test_what_breaks_after_done_no_longer_matters():
    for breakage in (ConnectionResetError(), TimeoutError(), http.client.IncompleteRead(b"")):
        record = read((100, text("a", "stop") + usage(1) + DONE), (900, breakage))
        assert (record.outcome, record.e2e_ms) == ("success", 100.0)


def test_a_body_that_goes_on_for_more_than_a_second_after_done_is_left():
    late = [(100 + 400 * n, PING) for n in range(1, 10)]
    record = read((100, text("a", "stop") + usage(1) + DONE), *late)
    assert (record.outcome, record.e2e_ms, record.reads) == ("success", 100.0, 4)  # 100, 500, 900, 1300


# Silence.


def test_no_byte_for_the_first_token_timeout_is_no_first_token():
    record = read((30_000, TimeoutError()))
    assert (record.category, record.ttft_ms, record.e2e_ms) == ("no_first_token", None, 30_000.0)


def test_role_and_pings_are_no_answer_to_the_first_token_timeout():
    pings = [(second * 1_000, PING) for second in range(1, 100)]
    record = read((5, role()), *pings, first_token_limit_ns=30_000 * MS)
    assert (record.category, record.e2e_ms, record.reads) == ("no_first_token", 31_000.0, 32)


def test_a_first_token_in_the_read_that_passes_the_limit_still_counts():
    record = read((31_000, text("a", "stop") + usage(1) + DONE), first_token_limit_ns=30_000 * MS)
    assert (record.outcome, record.ttft_ms) == ("success", 31_000.0)


def test_silence_between_tokens_is_stalled():
    record = read((100, text("a")), (60_100, TimeoutError()))
    assert (record.category, record.ttft_ms, record.text_chunks) == ("stalled", 100.0, 1)


def test_pings_do_not_hide_a_stall_between_tokens():
    pings = [(100 + second * 1_000, PING) for second in range(1, 100)]
    record = read((100, text("a")), *pings, first_token_limit_ns=5_000 * MS, idle_limit_ns=10_000 * MS)
    assert (record.category, record.e2e_ms) == ("stalled", 11_100.0)


def test_events_without_text_are_no_stall():
    hidden = [(100 + second * 1_000, text("")) for second in range(1, 20)]
    record = read((100, text("a")), *hidden, (20_000, STOP + DONE), idle_limit_ns=10_000 * MS)
    assert record.outcome == "success"


# Errors inside a 200.


def test_an_error_after_tokens_is_a_stream_error_and_its_tokens_are_kept_apart():
    error = event({"error": {"message": "CUDA out of memory", "type": "InternalServerError", "code": 500}})
    record = read((100, role() + text("a")), (110, text("b")), (120, error), (120, DONE))
    assert (record.outcome, record.category, record.message) == (
        "failure",
        "stream_error",
        "CUDA out of memory",
    )
    assert (record.text_chunks, record.output_tokens, record.tokens_source) == (2, 2, "chunks")


@pytest.mark.parametrize(
    "error", ["engine is dead", {"message": "engine is dead"}, {"detail": ["engine is dead"]}]
)
def test_an_error_before_the_first_token_has_no_tokens(error):
    record = read((20, role()), (30, event({"error": error})), (31, DONE))
    assert (record.category, record.message) == ("stream_error", "engine is dead")
    assert (record.ttft_ms, record.text_chunks, record.output_tokens) == (None, 0, None)


def test_an_error_that_repeats_the_finish_is_still_an_error():
    record = read((100, text("a", "stop")), (110, event({"error": "late"})), (110, usage(1) + DONE))
    assert (record.category, record.message) == ("stream_error", "late")


def test_the_first_error_is_the_one_that_is_told():
    record = read((100, event({"error": "first"}) + event({"error": "second"}) + text("a", "abort")))
    assert record.message == "first"


@pytest.mark.parametrize(
    ("finish", "category", "told"),
    [
        ("abort", "aborted", "finish_reason abort"),
        ({"type": "abort", "message": "request cancelled"}, "aborted", "request cancelled"),
        ({"type": "abort", "message": None}, "aborted", "finish_reason abort"),
        (
            {"type": "abort", "message": "KVTransferError(bootstrap_room=7): failed"},
            "kv_transfer",
            "KVTransferError",
        ),
        ({"type": "abort", "message": "out of kvcache space"}, "kv_transfer", "kvcache"),
        ("error", "aborted", "finish_reason error"),
    ],
)
def test_a_finish_that_is_no_finish_is_a_failure(finish, category, told):
    record = read((100, text("a")), (110, chunk({}, finish)), (111, DONE))
    assert (record.outcome, record.category) == ("failure", category)
    assert told in record.message


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "function_call"])
def test_the_four_accepted_finishes_are_successes_also_inside_an_object(reason):
    assert read((100, text("a", reason) + DONE)).outcome == "success"
    assert read((100, text("a", {"type": reason}) + DONE)).finish_reason == reason


def test_a_bare_json_error_without_data_is_a_failure_with_its_message():
    body = b'{"error":{"message":"prompt is longer than 4096 tokens","type":"BadRequestError","code":400}}'
    record = read((12, body))
    assert (record.category, record.message) == ("stream_error", "prompt is longer than 4096 tokens")


def test_a_plain_json_answer_is_not_streamed():
    body = {"object": "chat.completion", "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}
    record = read((300, json.dumps(body).encode()))
    assert (record.outcome, record.category, record.ttft_ms) == ("failure", "not_streamed", None)


def test_empty_contents_with_usage_of_ten_are_no_text():
    record = read((100, role()), *[(100 + n, text("")) for n in range(10)], (110, STOP + usage(10) + DONE))
    assert (record.category, record.ttft_ms, record.output_tokens) == ("no_text", None, 10)
    assert record.message == "10 tokens counted, no text in any event"


def test_local_proxy_failed_is_not_an_error_of_the_service():
    record = read((3, event({"error": {"message": "local proxy failed: dial tcp 127.0.0.1:7890"}})))
    assert record.category == "local_proxy"


def test_an_event_that_is_not_json_is_malformed_and_shown():
    record = read((100, text("a")), (110, b"data: {broken\n\n"), (120, text("b", "stop") + usage(2) + DONE))
    assert (record.outcome, record.category, record.text_chunks) == ("failure", "malformed", 2)
    assert record.message == "event is not a chat-completion chunk: {broken"


# Framing: the same record as the tidy form.


TIDY = role() + text("Grüße") + text(" 東京", "stop") + usage(2) + DONE


@pytest.mark.parametrize(
    "body",
    [
        TIDY.replace(b"\n", b"\r\n"),
        TIDY.replace(b"data: ", b"data:"),
        TIDY.replace(b"data: ", b": ping\n\nevent: message\nid: 7\ndata: "),
        b"\xef\xbb\xbf" + TIDY,
        TIDY.replace(b"\n\n", b"\n\r\n"),
    ],
    ids=["CRLF", "no space", "comments, event and id lines", "byte order mark", "mixed line ends"],
)
def test_an_untidy_form_reads_like_the_tidy_one(body):
    tidy, record = read((100, TIDY)), read((100, body))
    assert (record.outcome, record.ttft_ms, record.text_chunks, record.output_tokens) == (
        "success",
        100.0,
        2,
        2,
    )
    assert (tidy.outcome, tidy.ttft_ms, tidy.text_chunks, tidy.output_tokens) == ("success", 100.0, 2, 2)


def test_data_split_from_its_json_takes_the_time_of_the_json():
    first = text("Hi")
    record = read((100, role() + first[:6]), (200, first[6:]), (210, text(" you", "stop") + usage(2) + DONE))
    assert (record.ttft_ms, record.tpot_ms) == (200.0, 10.0)


def test_a_character_split_across_reads_is_one_character():
    first = text("東")
    cut = first.index("東".encode()) + 1
    record = read((100, first[:cut]), (110, first[cut:]), (120, STOP + usage(1) + DONE))
    assert (record.outcome, record.ttft_ms) == ("success", 110.0)


def test_an_event_takes_the_time_of_the_read_that_ended_it():
    first = text("Hi")
    record = read((100, first[:-1]), (130, first[-1:]), (140, STOP + DONE))
    assert record.ttft_ms == 130.0


def test_many_events_in_one_read_share_its_time():
    record = read((100, role() + text("a") + text("b") + text("c")), (110, STOP + usage(3) + DONE))
    assert (record.ttft_ms, record.ttst_ms, record.text_chunks, record.tpot_ms) == (100.0, 100.0, 3, 0.0)


def test_everything_in_one_burst_is_marked_as_buffered():
    record = read((900, role() + b"".join(text("a") for _ in range(64)) + STOP + usage(64) + DONE))
    assert (record.outcome, record.ttft_ms, record.buffered) == ("success", 900.0, True)


def test_bursts_of_sixteen_chunks_are_marked_as_buffered():
    bursts = [(100 + 160 * n, b"".join(text("a") for _ in range(16))) for n in range(4)]
    record = read(*bursts, (581, STOP + usage(64) + DONE))
    assert record.buffered


def test_a_steady_stream_is_not_marked_as_buffered():
    record = read(*[(100 + 10 * n, text("a")) for n in range(64)], (731, STOP + usage(64) + DONE))
    assert not record.buffered


def test_a_stream_labelled_application_json_is_a_stream():
    body = role() + text("Hi", "stop") + usage(1) + DONE
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert replay(head + body)["outcome"] == "success"


def test_json_labelled_text_event_stream_is_not_a_stream():
    body = b'{"choices": [{"message": {"content": "Hi"}}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert replay(head + body)["category"] == "not_streamed"


# Statuses.


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, "rejected"),
        (401, "auth"),
        (403, "auth"),
        (404, "not_found"),
        (405, "not_found"),
        (408, "server_timeout"),
        (413, "rejected"),
        (422, "rejected"),
        (429, "rate_limited"),
        (500, "server_error"),
        (502, "server_error"),
        (503, "server_error"),
        (504, "server_error"),
    ],
)
def test_a_status_has_its_own_category_and_shows_the_words_of_the_server(status, category):
    body = b'{"error": {"message": "the words"}}'
    verdict = replay(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
    assert (verdict["outcome"], verdict["category"]) == ("failure", category)
    assert verdict["message"] == f"HTTP {status}: the words"
    assert (verdict["text_chunks"], verdict["output_tokens"]) == (0, None)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": "Unauthorized"}', "HTTP 500: Unauthorized"),
        (b'{"detail": [{"loc": ["body"], "msg": "field required"}]}', "HTTP 500: field required"),
        (b'{"message": "no such model", "code": 5}', "HTTP 500: no such model"),
        (b"upstream connect error\nreset", "HTTP 500: upstream connect error reset"),
        (b"", "HTTP 500"),
        (b"{}", "HTTP 500: {}"),
        (b"x" * 500, "HTTP 500: " + "x" * 199 + "…"),
        (b"\xff\xfe", "HTTP 500: \ufffd\ufffd"),
        (b'{"x": ' + b"[" * 600 + b"]" * 600 + b"}", "HTTP 500: an error nested too deeply to be shown"),
    ],
)
def test_an_error_body_of_any_shape_is_told_in_one_line(body, message):
    assert replay(b"HTTP/1.1 500 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))["message"] == message


def test_a_tokens_in_an_error_status_are_not_tokens():
    body = text("Hi", "stop") + DONE
    verdict = replay(b"HTTP/1.1 503 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    assert (verdict["category"], verdict["text_chunks"]) == ("server_error", 0)


def test_kv_words_in_a_5xx_name_the_kv_transfer_and_in_a_4xx_do_not():
    body = b"KV transfer timed out"
    answer = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b"
    assert replay(answer % (500, len(body), body))["category"] == "kv_transfer"
    assert replay(answer % (400, len(body), body))["category"] == "rejected"


def test_local_proxy_failed_in_a_502_is_not_an_error_of_the_service():
    assert replay(b"HTTP/1.1 502 X\r\n\r\nlocal proxy failed")["category"] == "local_proxy"


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (http.client.RemoteDisconnected(), "reset"),
        (BrokenPipeError(), "reset"),
        (http.client.BadStatusLine("SSH-2.0"), "protocol"),
        (http.client.LineTooLong("header line"), "protocol"),
        (OSError(113, "No route to host"), "reset"),
    ],
)
def test_an_error_of_the_transport_has_a_category(error, category):
    assert failure_of(error).category == category
