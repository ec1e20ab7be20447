"""How long a silent server is waited for, without a timer for every read."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

from pd_locust.wire.timing import DRAIN_S

if TYPE_CHECKING:
    from pd_locust.wire.answer import Answer

_LOOK_S = 0.05


class Patience:
    """Before the first token the wait may be long, between tokens shorter, after the end short.

    Use as a context manager around the reading of one answer. gevent makes and destroys a timer at every wait of a
    socket that has a timeout: a quarter of all CPU time, eight microseconds an event. So the socket has none, and
    one thread (a greenlet under Locust) looks at all streams twenty times a second. It ends a silent one by shutting
    its socket down; the reader then finds `expired`. Never early, and late by a tenth of a second at most.
    """

    def __init__(self, sock: socket.socket, answer: Answer, *, first_token_s: float, idle_s: float) -> None:
        self.expired = False
        self._sock = sock
        self._answer = answer
        self._limit_s = first_token_s
        self._idle_s = idle_s
        self._seen_reads = answer.reads
        self._silent_since_s = self._started_s = time.monotonic()
        self._has_text = False

    def __enter__(self) -> Self:
        self._sock.settimeout(None)
        _watch.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        _watch.discard(self)

    def first_text(self) -> None:
        """Wait less from now on, and for the next read instead of the first text."""
        self._limit_s, self._has_text = self._idle_s, True
        self._answer.has_text()

    def done(self) -> None:
        """Wait for nothing but the end of the body."""
        self._limit_s, self._has_text = DRAIN_S, True

    def look(self, now_s: float) -> None:
        """End the stream if its first text, or after that anything, has not come for too long."""
        reads = self._answer.reads
        if reads != self._seen_reads:
            self._seen_reads, self._silent_since_s = reads, now_s
        waits_since_s = self._silent_since_s if self._has_text else self._started_s
        if now_s - waits_since_s > self._limit_s and not self.expired:
            self.expired = True
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)


class _Watch:
    """Looks at everybody's patience, in a thread that starts when it is first needed, in each process."""

    def __init__(self) -> None:
        self._watched: set[Patience] = set()
        self._watching_pid: int | None = None

    def add(self, patience: Patience) -> None:
        self._watched.add(patience)
        # A thread does not come along when a process is forked. Noted before start(), which lets others run: asking
        # is_alive() here gave each of 179 users that began at once a thread of its own, a fifth of all CPU time.
        if self._watching_pid != os.getpid():
            self._watching_pid = os.getpid()
            threading.Thread(target=self._run, name="pd_locust patience", daemon=True).start()

    def discard(self, patience: Patience) -> None:
        self._watched.discard(patience)

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            now_s = time.monotonic()
            for patience in tuple(self._watched):
                patience.look(now_s)


_watch = _Watch()
