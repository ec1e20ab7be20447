"""One kept HTTP/1.1 connection, on http.client and its `read1`.

Why not a client library: between `sent` and the first token nothing may run that is not needed. `requests`
spends up to a millisecond of CPU a request there; `iter_lines` and `iter_content` wait for whole blocks.
`HTTPResponse.read1` returns what has arrived, for chunked, sized and close-delimited bodies alike.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
import time
import zlib
from typing import TYPE_CHECKING, Self

from pd_locust.stream import Category, Failure, StreamTiming
from pd_locust.units import NS_PER_S, ns_to_ms
from pd_locust.wire.chat import one_line, status_failure
from pd_locust.wire.chunked import ChunkedResponse, ask_for_stamps
from pd_locust.wire.events import DRAIN_S, failure_of, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pd_locust.endpoint import Endpoint
    from pd_locust.wire.chunked import Readiness

_READ_BYTES = 65_536
_ERROR_BODY_BYTES = 65_536
_ERROR_BODY_S = 5.0
# A connection that the server had closed before the request says so as soon as the request gets there.
_RESEND_WITHIN_NS = 1_000_000_000
_UNZIPPED = frozenset({"gzip", "x-gzip", "deflate"})


class Connection:
    """A connection to one endpoint, opened before it is needed and kept while the server keeps it.

    Sockets are the standard library's: under Locust gevent has patched them to cooperate.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        headers: dict[str, str],
        *,
        now: Callable[[], int],
        connect_timeout_s: float = 10.0,
        first_token_timeout_s: float = 120.0,
        idle_timeout_s: float = 60.0,
        tls: ssl.SSLContext | None = None,
        readiness: Callable[[socket.socket], Readiness] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.opened = 0
        self._now = now
        self._connect_timeout_s = connect_timeout_s
        self._first_token_timeout_s = first_token_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._tls = tls
        self._readiness_of = readiness
        self._readiness: Readiness | None = None
        self._connect_ms: float | None = None
        self._head = _request_head(endpoint, headers)
        self._sock: socket.socket | None = None
        self._is_stamped = False

    @property
    def is_open(self) -> bool:
        """Whether a connection is kept; the server may have closed its side unnoticed."""
        return self._sock is not None

    def open(self) -> Failure | None:
        """Resolve, connect and, for https, shake hands; a failure is returned, not raised."""
        client: http.client.HTTPConnection
        started_ns = self._now()
        if self.endpoint.scheme == "https":
            context = self._tls or ssl.create_default_context()
            client = http.client.HTTPSConnection(
                self.endpoint.host, self.endpoint.port, timeout=self._connect_timeout_s, context=context
            )
        else:
            client = http.client.HTTPConnection(
                self.endpoint.host, self.endpoint.port, timeout=self._connect_timeout_s
            )
        try:
            client.connect()
        except (OSError, UnicodeError) as error:
            client.close()
            return connect_failure(error)
        finally:
            self._connect_ms = ns_to_ms(self._now() - started_ns)
        self._sock = client.sock
        self._readiness = self._readiness_of(client.sock) if self._readiness_of else None
        self._is_stamped = ask_for_stamps(client.sock)
        self.opened += 1
        return None

    def close(self) -> None:
        """Close; a thread of control that is reading from this connection sees its end."""
        sock, self._sock = self._sock, None
        if sock is not None:
            _shut(sock)

    def exchange(
        self,
        request_id: str,
        body: bytes,
        *,
        stop: Callable[[], bool] = lambda: False,
        response: Callable[..., ChunkedResponse] = ChunkedResponse,
    ) -> StreamTiming:
        """Send one request and read its response; a closed connection is opened first. Raises nothing.

        A kept connection may have been closed by the server meanwhile, which shows within a second of sending: the
        request is then sent once more, on a new connection. A connection that ends later was ended because of this
        request: a failure. When `stop` says so after connecting, nothing is sent. `response` lets the preflight
        listen in.
        """
        kept, lost = self.is_open, None
        while True:
            failure = None if self.is_open else self.open()
            connect_ms, self._connect_ms = self._connect_ms, None
            sent_ns = self._now()
            if not kept and stop():
                failure = lost or Failure(Category.RESET, "the run ended before the request was sent")
            if failure is not None:
                timing = StreamTiming(sent_ns, end_ns=sent_ns, failure=failure)
                break
            try:
                self.send(request_id, body)
                timing = self.receive(sent_ns, response=response)
                break
            except OSError as error:
                self.close()
                timing = StreamTiming(sent_ns, end_ns=self._now(), failure=failure_of(error))
                is_stale = isinstance(error, ConnectionError) and self._now() - sent_ns < _RESEND_WITHIN_NS
                if not (kept and is_stale) or stop():
                    break
            kept, lost = False, timing.failure
        timing.connect_ms, timing.reconnected = connect_ms, lost is not None
        return timing

    def send(self, request_id: str, body: bytes) -> None:
        """Write one request on the open connection. Raises OSError; ConnectionError: the peer has closed.

        A peer that has said something unasked is about to close: HAProxy answers 408 to a connection that
        waited too long for its request. Those words would be taken for the answer.
        """
        if self._sock is None or _has_spoken(self._sock):
            raise ConnectionResetError
        self._sock.settimeout(self._first_token_timeout_s)
        try:
            self._sock.sendall(
                b"%b%d\r\nx-request-id: %b\r\n\r\n%b" % (self._head, len(body), request_id.encode(), body)
            )
        except ssl.SSLError as error:
            raise ConnectionResetError from error

    def receive(
        self,
        sent_ns: int,
        *,
        response: Callable[..., ChunkedResponse] = ChunkedResponse,
    ) -> StreamTiming:
        """Read one response to its end, whatever it is, and judge it.

        Raises ConnectionError only when the connection ended before a single byte of an answer: the
        caller knows whether it was a kept one that may be tried again.
        """
        sock = self._sock
        if sock is None:
            raise ConnectionResetError
        answer = response(sock, readiness=self._readiness)
        if self._is_stamped:
            answer.stamp(sock)
        timeout = StreamTimeout(
            sock, answer, first_token_s=self._first_token_timeout_s, idle_s=self._idle_timeout_s
        )
        try:
            # From here on, not from the body on: headers, too, may come a byte at a time and never end.
            with timeout:
                timing = judge_response(
                    answer,
                    self._now,
                    sent_ns=sent_ns,
                    first_token_limit_ns=int(self._first_token_timeout_s * NS_PER_S),
                    idle_limit_ns=int(self._idle_timeout_s * NS_PER_S),
                    timeout=timeout,
                )
        except BaseException:
            self.close()
            raise
        finally:
            answer.close()
        timing.keep_alive = self._sock is not None and timing.keep_alive and not timeout.expired
        if not timing.keep_alive:
            self.close()
        return timing


def judge_response(
    response: http.client.HTTPResponse,
    now: Callable[[], int],
    *,
    sent_ns: int,
    first_token_limit_ns: int | None = None,
    idle_limit_ns: int | None = None,
    timeout: StreamTimeout | None = None,
) -> StreamTiming:
    """Read one HTTP answer from its status line on. Raises ConnectionError when not even that came."""
    try:
        response.begin()
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Before a status line has been read it is a string.
        status = response.status if isinstance(response.status, int) else None
        expired = timeout is not None and timeout.expired
        if isinstance(error, ConnectionError) and status is None and not expired:
            raise
        refused = status is not None and not 200 <= status < 300
        failure = status_failure(status, b"") if refused else failure_of(TimeoutError() if expired else error)
        return StreamTiming(sent_ns, end_ns=now(), status=status, failure=failure)
    if not 200 <= response.status < 300:
        return _refusal(response, now, sent_ns, timeout)
    timing = measure(
        body_chunks(response, timeout),
        response.clock(now) if isinstance(response, ChunkedResponse) else now,
        sent_ns=sent_ns,
        status=response.status,
        first_token_limit_ns=first_token_limit_ns,
        idle_limit_ns=idle_limit_ns,
        watcher=timeout,
    )
    timing.keep_alive = _can_be_kept(response)
    return timing


def _refusal(
    response: http.client.HTTPResponse, now: Callable[[], int], sent_ns: int, timeout: StreamTimeout | None
) -> StreamTiming:
    body = b""
    answered_ns = now()
    try:
        for chunk in body_chunks(response, timeout):
            body += chunk
            if len(body) > _ERROR_BODY_BYTES or now() - answered_ns > _ERROR_BODY_S * NS_PER_S:
                break
    except (OSError, http.client.HTTPException, ValueError):
        pass  # the status has said enough
    return StreamTiming(
        sent_ns,
        end_ns=now(),
        status=response.status,
        body_bytes=len(body),
        failure=status_failure(response.status, body),
        retry_after_s=_retry_after_s(response),
        keep_alive=_can_be_kept(response),
    )


def _can_be_kept(response: http.client.HTTPResponse) -> bool:
    # After 1xx the real answer is still to come, and would be taken for that of the next request.
    return response.isclosed() and not response.will_close and response.status >= 200


def body_chunks(response: http.client.HTTPResponse, timeout: StreamTimeout | None = None) -> Iterator[bytes]:
    """Yield the body as it arrives, decompressed if the server compressed it unasked.

    Raises IncompleteRead when a sized or chunked body is cut, OSError (TimeoutError when the timeout has expired),
    and ValueError for a broken compression or chunk header.
    """
    try:
        yield from _body_chunks(response)
    except (OSError, http.client.HTTPException, ValueError):
        # We ended it ourselves, whatever the end looked like.
        if timeout is None or not timeout.expired:
            raise
    if timeout is not None and timeout.expired:
        raise TimeoutError


def _body_chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity" and encoding not in _UNZIPPED:
        raise ValueError(f"Content-Encoding {encoding}: identity was asked for, gzip or deflate can be read")
    # 32 + 15: zlib finds out whether the header is gzip's or its own.
    unzip = zlib.decompressobj(32 + zlib.MAX_WBITS) if encoding in _UNZIPPED else None
    while chunk := _read1(response):
        if unzip is None:
            yield chunk
            continue
        try:
            plain = unzip.decompress(chunk)
        except zlib.error as error:
            raise ValueError(f"Content-Encoding {encoding}: {error}") from error
        if plain:
            yield plain
    if response.length:
        response.will_close = True
        raise http.client.IncompleteRead(b"", response.length)
    response.close()


def _read1(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_READ_BYTES)
    except http.client.HTTPException:
        # http.client counts a body whose framing broke as read; the next answer would begin in its rest.
        response.will_close = True
        raise


def connect_failure(error: OSError | UnicodeError) -> Failure:
    """Name an error of opening a connection."""
    match error:
        case UnicodeError():  # the codec of host names: an empty label, or one of more than 63 letters
            return Failure(Category.DNS, one_line(f"no host name: {error}"))
        case socket.gaierror():
            return Failure(Category.DNS, one_line(error.strerror or str(error)))
        case ssl.SSLCertVerificationError():
            return Failure(Category.TLS, one_line(f"certificate: {error.verify_message}"))
        case ssl.SSLError():
            return Failure(Category.TLS, one_line(error.reason or str(error)))
        case TimeoutError():
            return Failure(Category.CONNECT_TIMEOUT, "no answer to the connection attempt")
        case ConnectionRefusedError():
            return Failure(Category.REFUSED, "connection refused")
        case ConnectionError():
            return Failure(Category.RESET, "the connection was reset while it was being opened")
        case _:
            return Failure(Category.REFUSED, one_line(error.strerror or str(error)))


def _request_head(endpoint: Endpoint, headers: dict[str, str]) -> bytes:
    lines = [f"POST {endpoint.chat_path} HTTP/1.1", f"Host: {endpoint.netloc}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("latin-1")


def _retry_after_s(response: http.client.HTTPResponse) -> float | None:
    """Seconds from Retry-After; its date form is left out, being a wall clock that is not ours."""
    text = (response.getheader("Retry-After") or "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


def _has_spoken(sock: socket.socket) -> bool:
    """Whether there is something to read, or the peer has closed. Not by select(): it ends at 1024 files."""
    sock.settimeout(0)
    try:
        sock.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        pass
    return True


def _shut(sock: socket.socket) -> None:
    # shutdown() wakes a reader; close() alone would leave it waiting on a descriptor that may be reused.
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


_LOOK_S = 0.05


class StreamTimeout:
    """Before the first token the wait may be long, between tokens shorter, after the end short.

    Use as a context manager around the reading of one answer. gevent makes and destroys a timer at every wait of a
    socket that has a timeout: a quarter of all CPU time, eight microseconds an event. So the socket has none, and
    one thread (a greenlet under Locust) looks at all streams twenty times a second. It ends a silent one by shutting
    its socket down; the reader then finds `expired`. Never early, and late by a tenth of a second at most.
    """

    def __init__(
        self, sock: socket.socket, answer: ChunkedResponse, *, first_token_s: float, idle_s: float
    ) -> None:
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
    """Looks at all streams, in a thread that starts when it is first needed, in each process."""

    def __init__(self) -> None:
        self._watched: set[StreamTimeout] = set()
        self._watching_pid: int | None = None

    def add(self, timeout: StreamTimeout) -> None:
        self._watched.add(timeout)
        # A thread does not come along when a process is forked. Noted before start(), which lets others run: asking
        # is_alive() here gave each of 179 users that began at once a thread of its own, a fifth of all CPU time.
        if self._watching_pid != os.getpid():
            self._watching_pid = os.getpid()
            threading.Thread(target=self._run, name="pd_locust stream timeouts", daemon=True).start()

    def discard(self, timeout: StreamTimeout) -> None:
        self._watched.discard(timeout)

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            now_s = time.monotonic()
            for timeout in tuple(self._watched):
                timeout.look(now_s)


_watch = _Watch()
