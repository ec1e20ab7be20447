"""Connection against real sockets whose other end follows a script."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
import zlib
from itertools import islice

import pytest
from wire.hand_made import DONE, chunk, role, text, usage
from wire.reading import SEEN
from wire.scripted_server import HALF_CLOSE, HOLD, READ, RESET, ScriptedServer

from pd_locust.endpoint import Endpoint
from pd_locust.prompt import PromptText, prefixes
from pd_locust.record import RequestRecord
from pd_locust.wire.chat import ChatRequest
from pd_locust.wire.chunked import ChunkedResponse, ask_for_stamps
from pd_locust.wire.connection import Connection

# Silences of a tenth of a second are told from slow machines.
pytestmark = pytest.mark.alone

HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}
BODY = ChatRequest.build(model="m", text=" some words", max_tokens=8, ignore_eos=True).body(
    "able also area army"
)
START, END = role() + text("Hi"), text(" you", "stop") + usage(2) + DONE
ANSWER = START + END
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
LAST = b"0\r\n\r\n"


def framed(body):
    return b"%x\r\n%b\r\n" % (len(body), body)


def sized(body, *fields):
    lines = b"".join(field + b"\r\n" for field in fields)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), lines, body)


WHOLE = CHUNKED + framed(ANSWER) + LAST


def connect(server, **options):
    url = server if isinstance(server, str) else server.url
    return Connection(Endpoint.parse(url), HEADERS, now=time.perf_counter_ns, **options)


def exchange(connection):
    """Record of one request on an open connection, and how long the user was kept."""
    sent_ns = time.perf_counter_ns()
    connection.send("request-1", BODY)
    timing = connection.receive(sent_ns)
    took_s = (time.perf_counter_ns() - sent_ns) / 1e9
    assert timing.keep_alive is connection.is_open
    return RequestRecord.from_timing(SEEN, timing), timing, took_s


def ask(*script, **options):
    with ScriptedServer((script,)) as server:
        connection = connect(server, **options)
        assert connection.open() is None
        try:
            return exchange(connection)
        finally:
            connection.close()


def is_the_answer(record):
    return (record.outcome, record.text_chunks, record.output_tokens, record.finish_reason) == (
        "success",
        2,
        2,
        "stop",
    )


# The request that goes out.


def test_the_request_is_one_write_with_its_length_its_id_and_no_wish_for_compression():
    with ScriptedServer(((READ, WHOLE),)) as server:
        connection = connect(server)
        connection.open()
        exchange(connection)
        connection.close()
    (request,) = server.requests
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.in_one_piece
    assert request.headers == {
        "Host": f"127.0.0.1:{server.port}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Content-Length": str(len(BODY)),
        "x-request-id": "request-1",
    }
    assert request.body == BODY


def test_the_body_is_json_that_streams_counts_and_fixes_the_output_length():
    body = json.loads(BODY)
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "able also area army some words"}],
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def test_min_tokens_is_never_sent_and_extra_fields_win():
    plain = ChatRequest.build(
        model="m", text="", max_tokens=1, ignore_eos=False, extra={"temperature": 0, "max_tokens": 3}
    )
    body = json.loads(plain.body("able"))
    assert (body["max_tokens"], body["temperature"]) == (3, 0)
    assert {"min_tokens", "ignore_eos"}.isdisjoint(body)


def test_every_request_of_a_connection_has_its_own_prefix_and_the_same_length():
    request = ChatRequest.build(model="m", text=str(PromptText(20, 7)), max_tokens=8, ignore_eos=True)
    with ScriptedServer(((READ, WHOLE) * 5,)) as server:
        connection = connect(server)
        connection.open()
        for prefix in islice(prefixes(7), 5):
            connection.send("r", request.body(prefix))
            connection.receive(time.perf_counter_ns())
        connection.close()
    contents = [json.loads(request.body)["messages"][0]["content"] for request in server.requests]
    assert len({" ".join(content.split()[:4]) for content in contents}) == 5
    assert len({content.split(maxsplit=4)[4] for content in contents}) == 1
    assert len({request.headers["Content-Length"] for request in server.requests}) == 1


def test_the_key_stands_in_authorization_and_nowhere_else():
    with ScriptedServer(((READ, WHOLE),)) as server:
        endpoint = Endpoint.parse(server.url)
        connection = Connection(
            endpoint, HEADERS | {"Authorization": "Bearer k-123"}, now=time.perf_counter_ns
        )
        connection.open()
        exchange(connection)
        connection.close()
    (request,) = server.requests
    assert request.headers.pop("Authorization") == "Bearer k-123"
    assert "k-123" not in request.line + str(request.headers) + request.body.decode()
    assert "k-123" not in repr(connection)


def test_a_path_below_the_host_is_kept():
    with ScriptedServer(((READ, WHOLE),)) as server:
        connection = connect(f"{server.url}/api/v3")
        connection.open()
        exchange(connection)
        connection.close()
    assert server.requests[0].line == "POST /api/v3/chat/completions HTTP/1.1"


# Bodies.


@pytest.mark.parametrize(
    "script",
    [
        (CHUNKED, framed(START), 0.15, framed(END), LAST),
        (sized(ANSWER)[: -len(END)], 0.15, END),
        (CLOSING, START, 0.15, END),
        (b"HTTP/1.0 200 OK\r\n\r\n", START, 0.15, END),
        (b"HTTP/1.1 100 Continue\r\n\r\n", CHUNKED, framed(START), 0.15, framed(END), LAST),
        (CHUNKED, framed(START), 0.15, framed(END), b"0\r\nX-Checksum: 7\r\nServer-Timing: x\r\n\r\n"),
        (CHUNKED, framed(START), 0.15, framed(END)[:20], 0.01, framed(END)[20:], LAST),
        (CHUNKED, *(framed(START[at : at + 1]) for at in range(len(START))), 0.15, framed(END), LAST),
        (CHUNKED.replace(b"\r\n", b"\n"), framed(START), 0.15, framed(END), LAST),
        (CHUNKED, b"%x;name=value\r\n%b\r\n" % (len(START), START), 0.15, framed(END), LAST),
        (CLOSING, START, 0.15, END, HALF_CLOSE),
    ],
    ids=[
        "chunked", "sized", "close-delimited", "HTTP/1.0", "100-continue", "trailers", "chunk in pieces",
        "one byte a chunk", "bare line feeds in the head", "chunk extension", "half-closed",
    ],
)  # fmt: skip
def test_the_first_token_is_not_delayed_to_the_end_of_the_body(script):
    record, _, _ = ask(READ, *script)
    assert is_the_answer(record)
    assert record.ttft_ms < 120
    assert record.e2e_ms >= 150
    assert record.tpot_ms >= 30  # two tokens of which the second came 150 ms later


@pytest.mark.parametrize("encoding", [b"gzip", b"x-gzip", b"deflate", b"GZIP"])
def test_a_body_that_is_compressed_unasked_is_read_as_it_comes(encoding):
    packer = zlib.compressobj(wbits=15 if encoding == b"deflate" else 31)
    start = packer.compress(START) + packer.flush(zlib.Z_SYNC_FLUSH)
    end = packer.compress(END) + packer.flush()
    head = CHUNKED.replace(b"Transfer", b"Content-Encoding: " + encoding + b"\r\nTransfer")
    record, timing, _ = ask(READ, head, framed(start), 0.15, framed(end), LAST)
    assert is_the_answer(record)
    assert (record.ttft_ms < 120, record.e2e_ms >= 150, timing.keep_alive) == (True, True, True)


def test_an_error_body_that_is_compressed_shows_its_words():
    packed = gzip.compress(b'{"error": "busy"}')
    answer = sized(packed, b"Content-Encoding: gzip").replace(b"200 OK", b"503 X")
    assert ask(READ, answer)[0].message == "HTTP 503: busy"


@pytest.mark.parametrize(
    ("encoding", "says"),
    [(b"gzip", "Content-Encoding gzip"), (b"br", "Content-Encoding br"), (b"zstd", "zstd")],
)
def test_a_body_that_cannot_be_unpacked_is_a_fault_of_the_protocol(encoding, says):
    record, _, _ = ask(READ, sized(b"\x0b\x02\x80hello", b"Content-Encoding: " + encoding))
    assert (record.category, record.status) == ("protocol", 200)
    assert says in record.message


def test_several_chunks_in_one_read_are_each_a_chunk():
    record, _, _ = ask(READ, WHOLE.replace(framed(ANSWER), framed(START) + framed(END)))
    assert is_the_answer(record)


def test_a_slow_trickle_of_bytes_is_a_stream_like_any_other():
    pieces = [piece for at in range(0, len(WHOLE), 40) for piece in (WHOLE[at : at + 40], 0.002)]
    record, timing, _ = ask(READ, *pieces)
    assert is_the_answer(record)
    assert (record.reads > 5, timing.keep_alive) == (True, True)


# Keeping the connection.


@pytest.mark.parametrize("answer", [WHOLE, sized(ANSWER)], ids=["chunked", "sized"])
def test_one_connection_serves_many_requests(answer):
    with ScriptedServer(((READ, answer) * 4,)) as server:
        connection = connect(server)
        connection.open()
        for _ in range(4):
            record, timing, _ = exchange(connection)
            assert is_the_answer(record)
            assert timing.keep_alive
        connection.close()
    assert (connection.opened, server.accepted) == (1, 1)


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_what_is_said_to_an_idle_connection_is_no_answer_to_the_next_request(secure, speaking_tls, trusting):
    unasked = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    scripts = ((READ, WHOLE, 0.05, unasked, HOLD), (READ, WHOLE))
    with ScriptedServer(scripts, tls=speaking_tls if secure else None) as server:
        connection = connect(server, tls=trusting)
        connection.open()
        assert is_the_answer(exchange(connection)[0])
        time.sleep(0.15)
        with pytest.raises(ConnectionResetError):
            connection.send("request-2", BODY)
        connection.close()
        connection.open()
        assert is_the_answer(exchange(connection)[0])
        connection.close()


def test_an_error_status_and_an_error_inside_a_stream_keep_the_connection():
    refusal = sized(b'{"error": "busy"}').replace(b"200 OK", b"503 Service Unavailable")
    failed = CHUNKED + framed(START + b'data: {"error": "dead"}\n\n') + LAST
    with ScriptedServer(((READ, refusal, READ, failed, READ, WHOLE),)) as server:
        connection = connect(server)
        connection.open()
        assert exchange(connection)[0].category == "server_error"
        assert exchange(connection)[0].category == "stream_error"
        assert is_the_answer(exchange(connection)[0])
        connection.close()
    assert server.accepted == 1


@pytest.mark.parametrize("leave", [(), (0.02, RESET)], ids=["closed", "reset"])
def test_a_kept_connection_that_the_peer_left_may_be_tried_again(leave):
    with ScriptedServer(((READ, WHOLE, *leave), (READ, WHOLE))) as server:
        connection = connect(server)
        connection.open()
        exchange(connection)
        time.sleep(0.04)
        with pytest.raises(ConnectionError):
            exchange(connection)
        connection.close()
        assert connection.open() is None
        assert is_the_answer(exchange(connection)[0])
        connection.close()
    assert connection.opened == 2


def test_an_empty_reply_may_be_tried_again():
    with ScriptedServer(((READ,),)) as server:
        connection = connect(server)
        connection.open()
        with pytest.raises(ConnectionError):
            exchange(connection)
        assert not connection.is_open


def test_sending_on_a_closed_connection_may_be_tried_again():
    connection = connect("http://127.0.0.1:9")
    with pytest.raises(ConnectionError):
        connection.send("r", BODY)
    with pytest.raises(ConnectionError):
        connection.receive(0)


def test_an_answer_that_had_begun_is_a_failure_and_not_to_be_tried_again():
    record, _, _ = ask(READ, b"HTTP/1.1 200 OK\r\nContent-", 0.02, RESET)
    assert (record.category, record.status) == ("reset", 200)


@pytest.mark.parametrize(
    "script",
    [
        (CLOSING, ANSWER),
        (sized(ANSWER, b"Connection: close"),),
        (b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER),),
        (sized(ANSWER)[:-5],),
        (CHUNKED, framed(ANSWER)),
        (CHUNKED, framed(START), b"what?\r\n", HOLD),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", WHOLE),
    ],
    ids=[
        "close-delimited",
        "Connection: close",
        "HTTP/1.0",
        "cut in the body",
        "no last chunk",
        "broken framing",
        "early hints",
    ],
)
def test_a_connection_that_cannot_be_trusted_is_not_kept(script):
    _, timing, took_s = ask(READ, *script)
    assert not timing.keep_alive
    assert took_s < 0.9


@pytest.mark.parametrize("rest", [(HOLD,), (b": ping\n\n", 0.3) * 20], ids=["silence", "pings"])
def test_a_body_that_never_ends_after_done_costs_a_reconnect_and_a_second(rest):
    pings = [framed(step) if isinstance(step, bytes) else step for step in rest]
    record, timing, took_s = ask(READ, CHUNKED, framed(ANSWER), *pings)
    assert is_the_answer(record)
    assert record.e2e_ms < 300
    assert not timing.keep_alive
    assert 0.9 < took_s < 1.8


# Sending again.


def second_exchange(*end, stop=lambda: False):
    """The second request on a connection that `end` awaits: its timing, and how many connections there were."""
    with ScriptedServer(((READ, WHOLE, READ, *end), (READ, WHOLE))) as server:
        connection = connect(server)
        first = connection.exchange("request-1", BODY)
        assert (first.failure, first.reconnected, first.connect_ms > 0) == (None, False, True)
        timing = connection.exchange("request-2", BODY, stop=stop)
        connection.close()
        return timing, server.accepted


def test_a_request_on_a_kept_connection_that_the_server_had_closed_is_sent_again():
    timing, connections = second_exchange(RESET)
    assert (timing.failure, timing.reconnected, timing.connect_ms > 0, connections) == (None, True, True, 2)


def test_a_request_that_the_server_lets_wait_and_drops_is_a_failure_and_not_sent_again():
    timing, connections = second_exchange(1.2, RESET)
    assert timing.failure.category == "reset"
    assert timing.end_ns - timing.sent_ns > 1_100_000_000
    assert (timing.reconnected, timing.connect_ms, connections) == (False, None, 1)


def test_nothing_is_sent_again_once_the_run_ends():
    timing, connections = second_exchange(RESET, stop=lambda: True)
    assert (timing.failure.category, connections) == ("reset", 1)


def test_a_request_on_a_fresh_connection_is_not_sent_again():
    with ScriptedServer(((READ, RESET), (READ, WHOLE))) as server:
        timing = connect(server).exchange("request-1", BODY)
        assert (timing.failure.category, timing.reconnected, server.accepted) == ("reset", False, 1)


def test_a_run_that_ends_while_a_connection_is_opened_sends_nothing():
    with ScriptedServer(((READ, WHOLE),)) as server:
        connection = connect(server)
        timing = connection.exchange("request-1", BODY, stop=lambda: True)
        connection.close()
    assert (timing.failure.category, timing.status, server.requests) == ("reset", None, [])


def test_a_connection_that_cannot_be_opened_is_the_failure_of_the_request():
    timing = connect("http://127.0.0.1:9").exchange("request-1", BODY)
    assert (timing.failure.category, timing.connect_ms > 0, timing.text_ns) == ("refused", True, [])


# What breaks.


def test_a_reset_in_mid_stream_is_a_reset_with_its_tokens_kept_apart():
    record, timing, _ = ask(READ, CHUNKED, framed(START), 0.02, RESET)
    assert (record.category, record.text_chunks, timing.keep_alive) == ("reset", 1, False)


@pytest.mark.parametrize(
    "script",
    [
        (CHUNKED, framed(START)),
        (CHUNKED, framed(START), framed(END)[:30]),
        (sized(ANSWER)[:-40],),
        (CLOSING, START),
    ],
    ids=["between chunks", "inside a chunk", "sized", "close-delimited"],
)
def test_a_body_that_is_cut_is_truncated(script):
    record, _, _ = ask(READ, *script)
    assert (record.outcome, record.category) == ("failure", "truncated")
    assert record.text_chunks >= 1


def test_a_broken_chunk_header_is_truncated():
    record, _, _ = ask(READ, CHUNKED, framed(START), b"zz\r\n", HOLD)
    assert (record.category, record.text_chunks) == ("truncated", 1)


def test_a_negative_chunk_size_neither_hangs_nor_succeeds():
    record, _, took_s = ask(
        READ, CHUNKED, framed(START), b"-5\r\n", 0.05, b"hello\r\n", HOLD, idle_timeout_s=0.2
    )
    assert record.outcome == "failure"
    assert took_s < 1


def test_an_answer_without_a_body_is_truncated():
    assert ask(READ, sized(b""))[0].category == "truncated"
    assert ask(READ, b"HTTP/1.1 204 No Content\r\n\r\n")[0].category == "truncated"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"220 smtp ready\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"\r\n\r\n",
        b"\xff" * 100 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 200 + b"\r\n",
        b"x" * 70_000,
    ],
    ids=[
        "SSH",
        "TLS",
        "SMTP",
        "HTTP/2",
        "no status",
        "blank",
        "bytes",
        "long header",
        "many headers",
        "long line",
    ],
)
def test_what_is_not_http_is_a_fault_of_the_protocol(answer):
    record, timing, _ = ask(READ, answer)
    assert (record.category, timing.keep_alive) == ("protocol", False)
    assert len(record.message) <= 200


def test_retry_after_is_read_in_seconds_and_its_date_form_is_left_out():
    def limited(value):
        answer = sized(b"{}", b"Retry-After: " + value).replace(b"200 OK", b"429 Too Many Requests")
        record, timing, _ = ask(READ, answer)
        assert record.category == "rate_limited"
        return timing.retry_after_s

    assert (limited(b"7"), limited(b" 0 ")) == (7.0, 0.0)
    assert (limited(b"Fri, 31 Dec 1999 23:59:59 GMT"), limited(b"-1"), limited(b"1e3")) == (None, None, None)


def test_an_error_body_that_never_ends_is_left_when_enough_is_known():
    endless = (b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n", *[framed(b"x" * 30_000)] * 4, HOLD)
    record, timing, took_s = ask(READ, *endless, first_token_timeout_s=5)
    assert (record.category, timing.keep_alive) == ("server_error", False)
    assert took_s < 1


# A late reader.


class LateReader:
    """A clock whose reader is once busy for half a second, at the first look after it was set."""

    busy_s = 0.0

    def __call__(self):
        busy_s, self.busy_s = self.busy_s, 0.0
        time.sleep(busy_s)
        return time.perf_counter_ns()


def read_late(head, role_part, text_part, end_part, **ends):
    """Role after 50 ms, text after 150, read after 550; the rest after 1,150."""
    script = (READ, head, 0.05, framed(role_part), 0.1, framed(text_part), 1.0, framed(end_part) + LAST, HOLD)
    with ScriptedServer((script,), tls=ends.get("server")) as server:
        clock = LateReader()
        connection = Connection(Endpoint.parse(server.url), HEADERS, now=clock, tls=ends.get("client"))
        assert connection.open() is None
        clock.busy_s = 0.5
        record, _, _ = exchange(connection)
        connection.close()
    assert is_the_answer(record)
    assert record.ttst_ms > 1_100
    return record.ttft_ms


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")
def test_how_long_a_piece_without_data_has_waited_is_not_taken_off_the_next_read():
    token = framed(text(" you"))
    size_line, rest = token[:4], token[4:]
    assert size_line.endswith(b"\r\n")
    with (
        ScriptedServer(
            ((READ, CHUNKED, 0.1, framed(text("Hi")), 0.1, size_line, 0.6, rest, LAST),)
        ) as server,
        socket.create_connection(("127.0.0.1", server.port)) as sock,
    ):
        assert ask_for_stamps(sock)
        sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        answer = ChunkedResponse(sock)
        answer.stamp(sock)
        answer.begin()
        now = answer.clock(time.perf_counter_ns)
        answer.read1()
        now()
        answer.has_text()
        time.sleep(0.4)  # the size line comes after 0.1 s and waits for 0.3 s
        assert answer.read1() == text(" you")
        assert time.perf_counter_ns() - now() < 100_000_000


def test_no_read_is_earlier_than_the_one_before_it():
    """What came with the headers has the time of reading; what was stamped after it had come before that."""
    # More than http.client's buffer, all there before it is read: the rest is a read of its own, with a stamp.
    texts = framed(b"".join(text("some words " * 20) for _ in range(60)))
    with ScriptedServer(((READ, CHUNKED, texts, framed(chunk({}, "stop") + DONE), LAST),)) as server:
        connection = connect(server)
        assert connection.open() is None
        sent_ns = time.perf_counter_ns()
        connection.send("request-1", BODY)
        time.sleep(0.1)
        timing = connection.receive(sent_ns)
        connection.close()

    assert len(timing.text_ns) == 60
    assert timing.reads >= 2
    assert timing.text_ns == sorted(timing.text_ns)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's stamps are Linux's")
def test_a_token_that_waited_for_a_late_reader_has_the_time_at_which_it_came():
    assert 140 < read_late(CHUNKED, role(), text("Hi"), END) < 400


def test_inside_tls_and_compression_a_token_has_the_time_at_which_it_was_read(speaking_tls, trusting):
    squeezed = zlib.compressobj(wbits=31)
    parts = [
        squeezed.compress(part) + squeezed.flush(zlib.Z_SYNC_FLUSH) for part in (role(), text("Hi"), END)
    ]
    gzipped = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")

    assert read_late(CHUNKED, role(), text("Hi"), END, server=speaking_tls, client=trusting) > 500
    assert read_late(gzipped, *parts) > 500


# Silence.


def test_silence_before_the_headers_is_no_first_token():
    record, timing, took_s = ask(READ, HOLD, first_token_timeout_s=0.1)
    assert (record.category, record.status, timing.keep_alive) == ("no_first_token", None, False)
    assert 0.1 <= took_s < 0.5


def test_silence_inside_the_headers_is_no_first_token():
    record, _, took_s = ask(READ, CHUNKED[:30], HOLD, first_token_timeout_s=0.1)
    assert record.category == "no_first_token"
    assert took_s < 0.5


@pytest.mark.parametrize(
    ("status", "category"), [(b"200 OK", "no_first_token"), (b"503 Unavailable", "server_error")]
)
def test_headers_that_trickle_and_never_end_are_given_up(status, category):
    trickle = [step for _ in range(60) for step in (b"x", 0.02)]
    record, timing, took_s = ask(
        READ, b"HTTP/1.1 " + status + b"\r\nx-slow: ", *trickle, HOLD, first_token_timeout_s=0.2
    )
    assert (record.category, timing.keep_alive) == (category, False)
    assert 0.2 <= took_s < 0.7


def test_an_error_body_that_falls_silent_is_left_when_patience_ends():
    body = (b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n", framed(b"oh"), HOLD)
    record, _, took_s = ask(READ, *body, first_token_timeout_s=0.2)
    assert (record.category, record.message) == ("server_error", "HTTP 500: oh")
    assert took_s < 0.7


def test_silence_before_the_first_token_is_no_first_token():
    record, _, took_s = ask(READ, CHUNKED, framed(role()), HOLD, first_token_timeout_s=0.1)
    assert (record.category, record.status) == ("no_first_token", 200)
    assert took_s < 0.5


def test_pings_alone_are_no_first_token():
    pings = [step for _ in range(20) for step in (framed(b": ping\n\n"), 0.05)]
    record, _, took_s = ask(READ, CHUNKED, *pings, first_token_timeout_s=0.15)
    assert record.category == "no_first_token"
    assert took_s < 0.6


def test_silence_between_tokens_is_stalled():
    record, timing, took_s = ask(
        READ, CHUNKED, framed(START), HOLD, first_token_timeout_s=5, idle_timeout_s=0.1
    )
    assert (record.category, record.text_chunks, timing.keep_alive) == ("stalled", 1, False)
    assert took_s < 0.6


def test_pings_do_not_hide_a_stall_between_tokens():
    pings = [step for _ in range(20) for step in (framed(b": ping\n\n"), 0.05)]
    record, _, took_s = ask(
        READ, CHUNKED, framed(START), *pings, first_token_timeout_s=5, idle_timeout_s=0.15
    )
    assert (record.category, record.text_chunks) == ("stalled", 1)
    assert took_s < 0.6


def test_a_token_after_a_wait_shorter_than_the_timeout_is_no_stall():
    steps = [step for _ in range(4) for step in (framed(text("a")), 0.06)]
    record, _, _ = ask(READ, CHUNKED, *steps, framed(chunk({}, "stop") + DONE), LAST, idle_timeout_s=0.15)
    assert (record.outcome, record.text_chunks) == ("success", 4)


def test_closing_wakes_the_reader():
    import threading  # noqa: PLC0415 - this test alone

    with ScriptedServer(((READ, CHUNKED, framed(START), HOLD),)) as server:
        connection = connect(server)
        connection.open()
        timer = threading.Timer(0.1, connection.close)
        timer.start()
        record, _, took_s = exchange(connection)
        timer.join()
    assert (record.outcome, record.text_chunks) == ("failure", 1)
    assert took_s < 0.6


# Opening.


def failure_of_opening(url, **options):
    connection = connect(url, **options)
    failure = connection.open()
    assert not connection.is_open
    assert connection.opened == 0
    return failure


def test_a_port_where_nobody_listens_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert failure_of_opening(f"http://127.0.0.1:{port}").category == "refused"


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..invalid", "a" * 64 + ".invalid"])
def test_a_name_that_does_not_resolve_is_dns(host):
    assert failure_of_opening(f"http://{host}").category == "dns"


def test_a_listener_that_does_not_shake_hands_is_a_connect_timeout():
    with ScriptedServer(((HOLD,),)) as server:
        failure = failure_of_opening(f"https://127.0.0.1:{server.port}", connect_timeout_s=0.1)
    assert failure.category == "connect_timeout"


def test_ipv6_is_spoken_with_brackets_in_the_host_header():
    try:
        server = ScriptedServer(((READ, WHOLE),), family=socket.AF_INET6).__enter__()
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with server:
        connection = connect(server)
        assert connection.open() is None
        assert is_the_answer(exchange(connection)[0])
        connection.close()
    assert server.requests[0].headers["Host"] == f"[::1]:{server.port}"


# TLS.


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", folder / "key.pem", "-out", folder / "cert.pem",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def speaking_tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


@pytest.fixture
def trusting(certificate):
    return ssl.create_default_context(cafile=certificate / "cert.pem")


def test_a_self_signed_certificate_is_a_tls_failure_with_its_reason(speaking_tls):
    with ScriptedServer(((HOLD,),), tls=speaking_tls) as server:
        failure = failure_of_opening(server.url)
    assert failure.category == "tls"
    assert "self-signed certificate" in failure.message.replace("self signed", "self-signed")


def test_a_certificate_for_another_name_is_a_tls_failure(speaking_tls, trusting):
    with ScriptedServer(((HOLD,),), tls=speaking_tls) as server:
        failure = failure_of_opening(f"https://localhost:{server.port}", tls=trusting)
    assert failure.category == "tls"


def test_plain_http_behind_https_is_a_tls_failure():
    with ScriptedServer(((b"HTTP/1.1 400 Bad Request\r\n\r\n", HOLD),)) as server:
        failure = failure_of_opening(f"https://127.0.0.1:{server.port}")
    assert failure.category == "tls"


def test_tls_behind_http_is_a_fault_of_the_protocol_or_a_reset(speaking_tls):
    with ScriptedServer(((READ,),), tls=speaking_tls) as server:
        connection = connect(f"http://127.0.0.1:{server.port}")
        assert connection.open() is None
        try:
            assert exchange(connection)[0].category in {"protocol", "reset"}
        except ConnectionError:
            assert not connection.is_open


def test_a_trusted_certificate_carries_streams_and_is_kept(speaking_tls, trusting):
    with ScriptedServer(((READ, WHOLE) * 2,), tls=speaking_tls) as server:
        connection = connect(server, tls=trusting)
        assert connection.open() is None
        for _ in range(2):
            record, timing, _ = exchange(connection)
            assert is_the_answer(record)
            assert timing.keep_alive
        connection.close()


def test_what_tls_has_read_beyond_the_first_read_is_not_waited_for(speaking_tls, trusting):
    # One record of 12 KB: the first read takes 8 KB of it, and the socket has nothing more to say.
    whole = CHUNKED + framed(b":" + b" " * 12_000 + b"\n\n") + framed(ANSWER) + LAST
    with ScriptedServer(((READ, whole, HOLD),), tls=speaking_tls) as server:
        connection = connect(server, tls=trusting, first_token_timeout_s=2)
        connection.open()
        record, _, took_s = exchange(connection)
        connection.close()
    assert is_the_answer(record)
    assert took_s < 1


@pytest.mark.parametrize("leave", [(), (0.02, RESET)], ids=["closed", "reset"])
def test_a_kept_tls_connection_that_the_peer_left_may_be_tried_again(speaking_tls, trusting, leave):
    with ScriptedServer(((READ, WHOLE, *leave), (READ, WHOLE)), tls=speaking_tls) as server:
        connection = connect(server, tls=trusting)
        connection.open()
        exchange(connection)
        time.sleep(0.04)
        with pytest.raises(ConnectionError):
            exchange(connection)
        connection.close()
        assert connection.open() is None
        assert is_the_answer(exchange(connection)[0])
        connection.close()


def test_a_tls_stream_that_is_cut_is_truncated_or_reset(speaking_tls, trusting):
    with ScriptedServer(((READ, CHUNKED, framed(START)),), tls=speaking_tls) as server:
        connection = connect(server, tls=trusting)
        connection.open()
        record, _, _ = exchange(connection)
    assert record.category in {"truncated", "reset"}
    assert record.text_chunks == 1
