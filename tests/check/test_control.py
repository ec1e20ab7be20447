"""What is asked beside the streams, of services that answer something else than what was asked."""

import pytest
from wire.scripted_server import READ, ScriptedServer

from pd_locust.check.control import ControlPlane
from pd_locust.endpoint import Endpoint


def counts_of(body: bytes) -> list[int | None]:
    """Both ways of counting a prompt, each answered with status 200 and this body."""
    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with ScriptedServer(((READ, answer),) * 2) as server:
        control = ControlPlane(Endpoint.parse(server.url), {}, verify=True)
        return [control.count_by_usage({}), control.count_by_tokenizer("m", [])]


@pytest.mark.parametrize(
    "body", [b"<html>a portal</html>", b'data: {"usage": {"prompt_tokens": 9}}\n\n', b"", b"[]", b"{}"]
)
def test_what_is_no_count_is_none_and_ends_no_run(body):
    assert counts_of(body) == [None, None]


def test_what_is_a_count_is_read():
    assert counts_of(b'{"usage": {"prompt_tokens": 9}, "count": 8}') == [9, 8]
