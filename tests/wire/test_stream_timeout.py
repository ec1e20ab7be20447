import socket
import subprocess
import sys
from textwrap import dedent
from types import SimpleNamespace

import pytest

from pd_locust.wire.connection import StreamTimeout

# As under Locust: threads are greenlets, and starting one lets others run.
USERS_THAT_BEGIN_AT_ONCE = """
    from gevent import monkey
    monkey.patch_all()
    import gevent, socket, threading
    from pd_locust.wire.connection import StreamTimeout

    class ChunkedResponse:
        reads = 0

    def user():
        with StreamTimeout(socket.socket(), ChunkedResponse(), first_token_s=9, idle_s=9):
            gevent.sleep(0.1)

    for _ in range(2):
        gevent.joinall([gevent.spawn(user) for _ in range(50)], raise_error=True)
    print(sum(thread.name == "pd_locust stream timeouts" for thread in threading.enumerate()))
"""

A_FORKED_WORKER = """
    import os, socket
    from pd_locust.wire.connection import StreamTimeout

    class ChunkedResponse:
        reads = 0

    def silent_stream():
        ours, theirs = socket.socketpair()
        with StreamTimeout(ours, ChunkedResponse(), first_token_s=0.1, idle_s=0.1) as timeout:
            ours.recv(1)
        print(timeout.expired, flush=True)

    silent_stream()
    if os.fork() == 0:
        silent_stream()
    else:
        os.wait()
"""


def output_of(script: str) -> list[str]:
    command = [sys.executable, "-c", dedent(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert not done.returncode, done.stderr
    return done.stdout.split()


def test_streams_that_begin_at_once_are_watched_by_one_thread():
    assert output_of(USERS_THAT_BEGIN_AT_ONCE) == ["1"]


def test_a_silent_stream_of_a_forked_process_is_ended_as_well():
    assert output_of(A_FORKED_WORKER) == ["True", "True"]


@pytest.mark.parametrize(("has_text", "expires_s"), [(False, 10), (True, 19)], ids=["before text", "after"])
def test_patience_counts_from_the_sending_until_there_is_text_and_then_from_the_last_read(
    has_text, expires_s
):
    ours, theirs = socket.socketpair()
    answer = SimpleNamespace(reads=0, has_text=lambda: None)
    with ours, theirs, StreamTimeout(ours, answer, first_token_s=10, idle_s=10) as timeout:
        began_s = timeout._started_s
        answer.reads = 5
        if has_text:
            timeout.first_text()
        for at_s in (9, expires_s - 0.1):
            timeout.look(began_s + at_s)
        assert not timeout.expired
        timeout.look(began_s + expires_s + 0.1)
        assert timeout.expired
