"""The hot loop: chunks of a response body in, StreamTiming out. No socket; the clock is an argument."""

from __future__ import annotations

import http.client
import re
import ssl
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from sseclient import SSEClient

from pd_locust.stream import Category, Failure, StreamTiming
from pd_locust.units import NS_PER_S
from pd_locust.wire.chat import DONE, Delta, TextEvent, body_message, one_line, read_event, stream_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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


DRAIN_S = 1.0
"""After [DONE] only the end of the body is missing; one that never comes costs a reconnect, not a user."""

# An answer in one piece may be long, and only the whole of it is known from a cut one.
_BODY_KEPT_BYTES = 1 << 20
# Of a server whose events differ in more than their text, so many are taken apart in vain.
_VAIN_LESSONS = 8
_FRAMED = re.compile(rb"(?:\A|(?<=[\r\n]))(?::[^\r\n]*|data:(?s:.*))")


class StreamTimer:
    """Collects one answer. An event without text (role, usage, ping) never stops the TTFT clock."""

    __slots__ = ("_body", "_known", "_lessons", "body_ended", "done", "heard_ns", "timing")

    def __init__(self, sent_ns: int, status: int | None = None) -> None:
        self.timing = StreamTiming(sent_ns=sent_ns, status=status)
        self.done = False
        self.body_ended = False
        self.heard_ns = sent_ns
        self._body = bytearray()
        self._known: TextEvent | None = None
        self._lessons = _VAIN_LESSONS

    def read(self, chunk: bytes) -> None:
        """Count one read of the body; its beginning is kept until an event shows that it is a stream."""
        timing = self.timing
        timing.reads += 1
        timing.body_bytes += len(chunk)
        if not timing.events and len(self._body) < _BODY_KEPT_BYTES:
            self._body += chunk

    def skim(self, read: bytes, at_ns: int) -> bytes:
        """Take the events at the start of a read that differ from an earlier one in their text alone.

        Nearly all events of an answer are of this kind. Their time is noted and nothing is decoded, framed or
        allocated; the record is the same. `read` begins with an event, and what is returned is left to be read.
        """
        if self._known is None or self.done:
            return read
        fitting, rest = self._known.skim(read)
        if fitting:
            timing = self.timing
            timing.events += fitting
            timing.text_ns += (at_ns,) * fitting
            self.heard_ns = at_ns
            self._lessons = _VAIN_LESSONS
        return rest

    def event(self, data: str, at_ns: int) -> bool:
        """Take the data of one event that arrived at `at_ns`; True when it is the first with text."""
        if self.done:
            return False
        if data == DONE:
            return self._end(at_ns)
        try:
            delta = read_event(data)
        except (ValueError, AttributeError, TypeError, LookupError):
            bare = data.strip()
            if not bare:
                return False  # a heartbeat
            if bare == DONE:
                return self._end(at_ns)
            fault = f"event is not a chat-completion chunk: {data[:80]}"
            delta = Delta(failure=self.unreadable(one_line(fault)))
        return self._take(delta, data, at_ns)

    def _end(self, at_ns: int) -> bool:
        self.done = True
        self.timing.end_ns = at_ns
        return False

    def _take(self, delta: Delta, data: str, at_ns: int) -> bool:
        timing = self.timing
        self.heard_ns = at_ns
        index = timing.events
        timing.events += 1
        if delta.usage:
            self._usage(delta.usage)
        if delta.finish_reason:
            timing.finish_reason = delta.finish_reason
        if delta.failure and timing.failure is None:
            timing.failure = delta.failure
        if not delta.text:
            return False
        timing.text_ns.append(at_ns)
        if self._lessons:
            self._lessons -= 1
            self._known = TextEvent.learn(data) or self._known
        if delta.answer and timing.first_answer_ns is None:
            timing.first_answer_ns = at_ns
        if timing.first_text_event is None:
            timing.first_text_event = index
            return True
        return False

    def overdue(self, at_ns: int, first_token_limit_ns: int | None, idle_limit_ns: int | None) -> bool:
        """Whether to stop reading: bytes may come, but not the text, the next event or the end."""
        if self.done:
            return at_ns - (self.timing.end_ns or at_ns) > DRAIN_S * NS_PER_S
        if self.timing.text_ns:
            return idle_limit_ns is not None and at_ns - self.heard_ns > idle_limit_ns
        return first_token_limit_ns is not None and at_ns - self.timing.sent_ns > first_token_limit_ns

    def unreadable(self, message: str) -> Failure:
        """Name an event that cannot be read: broken by the server, or cut off by the end of the body."""
        if self.body_ended:
            return Failure(Category.TRUNCATED, "the body ended inside an event")
        return Failure(Category.MALFORMED, message)

    def _usage(self, usage: dict[str, Any]) -> None:
        # Some engines repeat usage in every chunk: the last one is the total, never the sum.
        if not isinstance(usage, dict):
            return
        timing = self.timing
        timing.completion_tokens = _count(usage.get("completion_tokens"), timing.completion_tokens)
        timing.prompt_tokens = _count(usage.get("prompt_tokens"), timing.prompt_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            timing.cached_tokens = _count(details.get("cached_tokens"), timing.cached_tokens)

    def conclude(self, at_ns: int, broken: Failure | None = None) -> StreamTiming:
        """Judge the finished answer; `broken` says why reading stopped early, if it did.

        What breaks after `[DONE]` no longer matters: the stream was whole.
        """
        timing = self.timing
        if timing.end_ns is None:
            timing.end_ns = at_ns
        if timing.failure is None:
            timing.failure = self._fault(None if self.done else broken)
        return timing

    def _fault(self, broken: Failure | None) -> Failure | None:
        timing = self.timing
        if broken is not None:
            return broken
        if not timing.events:
            return self._unstreamed()
        ended = timing.finish_reason is not None or (self.done and timing.completion_tokens is not None)
        if not timing.text_ns:
            if ended or timing.completion_tokens:
                counted = timing.completion_tokens or 0
                return Failure(Category.NO_TEXT, f"{counted} tokens counted, no text in any event")
            return Failure(Category.TRUNCATED, "the stream ended without any text")
        if ended:
            return None
        end = "[DONE] came" if self.done else "the body ended"
        return Failure(Category.TRUNCATED, f"{end} without finish_reason")

    def _unstreamed(self) -> Failure:
        # Some routers pass an engine's error on as it is, without `data:`, between pings or before [DONE].
        body = _FRAMED.sub(b"", self._body.removeprefix(b"\xef\xbb\xbf")).strip()
        if not body:
            return Failure(Category.TRUNCATED, "no event came" if self._body else "the body is empty")
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            start = body[:80].decode("utf-8", "replace")
            return Failure(Category.TRUNCATED, one_line(f"the body holds no event: {start}"))
        if isinstance(document, dict) and "choices" in document and not document.get("error"):
            return Failure(Category.NOT_STREAMED, "a whole answer in one JSON document")
        return stream_failure(body_message(body))


def _count(value: object, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise
