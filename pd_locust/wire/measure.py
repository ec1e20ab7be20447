"""The hot loop: chunks of a response body in, StreamTiming out. No socket; the clock is an argument."""

from __future__ import annotations

import http.client
import ssl
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from sseclient import SSEClient

from pd_locust.failure import Category
from pd_locust.stream import Failure
from pd_locust.wire.chat import one_line
from pd_locust.wire.timing import StreamTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pd_locust.stream import StreamTiming

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Watcher(Protocol):
    """Whoever must know early: the transport, to change its patience, and the load, to count answers."""

    def first_text(self) -> None:
        """Hear, once, that the first text has come."""

    def done(self) -> None:
        """Hear, once, that `[DONE]` has come; the rest is read only so that the connection can be kept."""


class _Nobody:
    def first_text(self) -> None:
        pass

    def done(self) -> None:
        pass


def measure(
    chunks: Iterable[bytes],
    now: Callable[[], int],
    *,
    sent_ns: int,
    status: int = 200,
    first_token_limit_ns: int | None = None,
    idle_limit_ns: int | None = None,
    watcher: Watcher | None = None,
) -> StreamTiming:
    """Read a stream to its end and judge it. `now` gives nanoseconds on the clock of `sent_ns`.

    Every byte of a read gets the time at which the read returned. Comments keep a connection alive but are
    no answer: when `first_token_limit_ns` has passed without text, or later `idle_limit_ns` without an
    event, reading stops. Errors of the transport become the timing's failure; none is raised.
    """
    timer = StreamTimer(sent_ns, status)
    timing = timer.timing
    watcher = watcher or _Nobody()
    arrived_ns = sent_ns

    def stamped() -> Iterator[bytes]:
        nonlocal arrived_ns
        between_events = False
        for chunk in chunks:
            arrived_ns = now()
            timer.read(chunk)
            rest = timer.skim(chunk, arrived_ns) if between_events else chunk
            if rest:
                yield rest
                between_events = rest.endswith(b"\n\n")
            if timer.overdue(arrived_ns, first_token_limit_ns, idle_limit_ns):
                raise TimeoutError
        timer.body_ended = True

    broken = None
    reads = stamped()
    try:
        for event in SSEClient(line_feeds(reads)).events():
            if timer.event(event.data, arrived_ns):
                watcher.first_text()
            elif timer.done:
                watcher.done()
                deque(reads, maxlen=0)  # to the end of the body, whatever is in it
                break
    except UnicodeDecodeError:
        broken = timer.unreadable("an event is not UTF-8")
    except (OSError, http.client.HTTPException, ValueError) as error:
        broken = failure_of(error, answered=bool(timing.text_ns))
    return timer.conclude(now(), broken)


def line_feeds(reads: Iterable[bytes]) -> Iterator[bytes]:
    r"""Yield each read with its line ends as \n and the first without a byte order mark.

    sseclient-py ends an event only at two equal line ends: `\n\r\n` would join two events, and `\r\r\n` would
    be one end or two depending on where a read was cut. The mark would hide the first event.
    """
    reads = iter(reads)
    head = b""
    for read in reads:
        head += read
        if not _BYTE_ORDER_MARK.startswith(head):
            break
    after_cr = False
    for read in chain((head.removeprefix(_BYTE_ORDER_MARK),), reads):
        lines = read[1:] if after_cr and read.startswith(b"\n") else read
        after_cr = read.endswith(b"\r")
        yield lines.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in lines else lines


def failure_of(error: Exception, *, answered: bool = False) -> Failure:
    """Name an error of reading or of waiting for an answer. `answered`: text had already come."""
    match error:
        case TimeoutError():
            if answered:
                return Failure(Category.STALLED, "silence between tokens")
            return Failure(Category.NO_FIRST_TOKEN, "no token in time")
        case http.client.IncompleteRead():
            return Failure(Category.TRUNCATED, "the connection closed inside the body")
        case http.client.RemoteDisconnected():
            return Failure(Category.RESET, "the connection closed without an answer")
        case ConnectionError() | ssl.SSLError():
            return Failure(Category.RESET, "the connection was reset")
        case http.client.HTTPException() | ValueError():
            return Failure(Category.PROTOCOL, one_line(f"{type(error).__name__}: {error}"))
        case _:
            return Failure(Category.RESET, one_line(str(error)) or type(error).__name__)
