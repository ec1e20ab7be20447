"""What a user does with a connection that ends, against a server that does exactly that."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from wire.hand_made import DONE, text, usage
from wire.reading import SEEN
from wire.scripted_server import READ, RESET, ScriptedServer

from pd_locust.endpoint import Endpoint, secrets_of
from pd_locust.load.users import StreamUser
from pd_locust.stream import Category, Failure, StreamTiming
from pd_locust.wire.connection import Connection

pytestmark = pytest.mark.alone

BODY = text("Hi", "stop") + usage(1) + DONE
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def user_of(server: ScriptedServer) -> StreamUser:
    user = StreamUser.__new__(StreamUser)
    user.connection = Connection(Endpoint.parse(server.url), {}, now=time.perf_counter_ns)
    health = SimpleNamespace(cpu_share=None, loop_lag_ms=lambda _ns: None)
    user.session = SimpleNamespace(cutting=False, unix_us=lambda: 7, health=health, secrets=[])
    user._connect_ms = None
    assert user.connection.open() is None
    return user


def second_request(*end: object) -> tuple[StreamTiming, bool, int]:
    """How the second request on a connection fared which `end` awaits; whether it was sent anew; connections."""
    with ScriptedServer(((READ, ANSWER, READ, *end), (READ, ANSWER))) as server:
        user = user_of(server)
        _, first = user._exchange(SEEN, b"{}", kept=True)
        assert first.failure is None
        seen, timing = user._exchange(SEEN, b"{}", kept=True)
        user.connection.close()
        return timing, seen.reconnected, server.accepted


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced():
    timing, reconnected, connections = second_request(RESET)

    assert (timing.failure, reconnected, connections) == (None, True, 2)


def test_a_request_that_the_server_lets_wait_and_drops_is_a_failure_and_not_sent_again():
    timing, reconnected, connections = second_request(1.2, RESET)

    assert str(timing.failure.category) == "reset"
    assert timing.end_ns - timing.sent_ns > 1_100_000_000
    assert (reconnected, connections) == (False, 1)


def test_a_key_that_the_service_repeats_is_in_no_record():
    with ScriptedServer(((READ, ANSWER),)) as server:
        user = user_of(server)
        user.session.secrets = secrets_of("sk-secret-1234", {"X-Key": "another secret"})
        failure = Failure(Category.AUTH, "HTTP 401: invalid key sk-secret-1234 (another secret)")
        record = user._record(SEEN, StreamTiming(0, end_ns=1, failure=failure), cut=False)
        user.connection.close()

    assert record.message == "HTTP 401: invalid key *** (***)"
