"""Of streams that can be read at the same time, those that await their first text go first under gevent."""

from __future__ import annotations

import gevent
import gevent.socket
import pytest

from pd_locust.load.sockets import GeventReadiness
from pd_locust.wire.chunked import ChunkedResponse

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b"4\r\nword\r\n"


class Stream:
    """A service's end, and a greenlet that notes each read of the client's end in `order`."""

    def __init__(self, name: str, order: list[str], *, has_text: bool) -> None:
        self.service, client = gevent.socket.socketpair()
        self.service.sendall(HEAD)
        answer = ChunkedResponse(client, readiness=GeventReadiness(client))
        answer.begin()
        if has_text:
            self.service.sendall(TOKEN)
            assert answer.read1() == b"word"
            answer.has_text()

        def read() -> None:
            answer.read1()
            order.append(name)

        self.reading = gevent.spawn(read)


@pytest.mark.parametrize("position", [0, 7, 19])
def test_a_first_text_does_not_wait_for_its_turn(position):
    order: list[str] = []
    streams = [
        Stream("first text" if at == position else "later text", order, has_text=at != position)
        for at in range(20)
    ]
    gevent.sleep(0.01)
    for stream in streams:
        stream.service.sendall(TOKEN)
    gevent.joinall([stream.reading for stream in streams], timeout=10, raise_error=True)

    assert order == ["first text"] + ["later text"] * 19


def test_the_next_answer_on_the_same_connection_is_urgent_again():
    service, client = gevent.socket.socketpair()
    for _ in range(2):
        service.sendall(HEAD)
        answer = ChunkedResponse(client, readiness=GeventReadiness(client))
        answer.begin()
        assert client._read_event.priority > 0
        service.sendall(TOKEN)
        answer.read1()
        answer.has_text()
        assert client._read_event.priority == 0
