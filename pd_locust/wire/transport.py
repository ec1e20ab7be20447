"""One kept HTTP/1.1 connection, on http.client and its `read1`.

Why not a client library: between `sent` and the first token nothing may run that is not needed. `requests`
spends up to a millisecond of CPU a request there; `iter_lines` and `iter_content` wait for whole blocks.
`HTTPResponse.read1` returns what has arrived, for chunked, sized and close-delimited bodies alike.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import zlib
from typing import TYPE_CHECKING

from pd_locust.failure import Category
from pd_locust.stream import Failure, StreamTiming
from pd_locust.units import NS_PER_S
from pd_locust.wire.answer import Answer, ask_for_stamps
from pd_locust.wire.chat import one_line, status_failure
from pd_locust.wire.measure import failure_of, measure
from pd_locust.wire.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pd_locust.endpoint import Endpoint

_READ_BYTES = 65_536
_ERROR_BODY_BYTES = 65_536
_ERROR_BODY_S = 5.0
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
    ) -> None:
        self.endpoint = endpoint
        self.opened = 0
        self._now = now
        self._connect_timeout_s = connect_timeout_s
        self._first_token_timeout_s = first_token_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._tls = tls
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
        self._sock = client.sock
        self._is_stamped = ask_for_stamps(client.sock)
        self.opened += 1
        return None

    def close(self) -> None:
        """Close; a thread of control that is reading from this connection sees its end."""
        sock, self._sock = self._sock, None
        if sock is not None:
            _shut(sock)

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
        answer: Callable[..., Answer] = Answer,
    ) -> StreamTiming:
        """Read one answer to its end, whatever it is, and judge it. `answer` lets the preflight listen in.

        Raises ConnectionError only when the connection ended before a single byte of an answer: the
        caller knows whether it was a kept one that may be tried again.
        """
        sock = self._sock
        if sock is None:
            raise ConnectionResetError
        response = answer(sock, method="POST")
        if self._is_stamped:
            response.stamp(sock)
        patience = Patience(
            sock, response, first_token_s=self._first_token_timeout_s, idle_s=self._idle_timeout_s
        )
        try:
            # From here on, not from the body on: headers, too, may come a byte at a time and never end.
            with patience:
                timing = judge_response(
                    response,
                    self._now,
                    sent_ns=sent_ns,
                    first_token_limit_ns=int(self._first_token_timeout_s * NS_PER_S),
                    idle_limit_ns=int(self._idle_timeout_s * NS_PER_S),
                    patience=patience,
                )
        except BaseException:
            self.close()
            raise
        finally:
            response.close()
        timing.keep_alive = self._sock is not None and timing.keep_alive and not patience.expired
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
    patience: Patience | None = None,
) -> StreamTiming:
    """Read one HTTP answer from its status line on. Raises ConnectionError when not even that came."""
    try:
        response.begin()
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Before a status line has been read it is a string.
        status = response.status if isinstance(response.status, int) else None
        expired = patience is not None and patience.expired
        if isinstance(error, ConnectionError) and status is None and not expired:
            raise
        refused = status is not None and not 200 <= status < 300
        failure = status_failure(status, b"") if refused else failure_of(TimeoutError() if expired else error)
        return StreamTiming(sent_ns, end_ns=now(), status=status, failure=failure)
    if not 200 <= response.status < 300:
        return _refusal(response, now, sent_ns, patience)
    timing = measure(
        body_chunks(response, patience),
        response.clock(now) if isinstance(response, Answer) else now,
        sent_ns=sent_ns,
        status=response.status,
        first_token_limit_ns=first_token_limit_ns,
        idle_limit_ns=idle_limit_ns,
        watcher=patience,
    )
    timing.keep_alive = _can_be_kept(response)
    return timing


def _refusal(
    response: http.client.HTTPResponse, now: Callable[[], int], sent_ns: int, patience: Patience | None
) -> StreamTiming:
    body = b""
    answered_ns = now()
    try:
        for chunk in body_chunks(response, patience):
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


def body_chunks(response: http.client.HTTPResponse, patience: Patience | None = None) -> Iterator[bytes]:
    """Yield the body as it arrives, decompressed if the server compressed it unasked.

    Raises IncompleteRead when a sized or chunked body is cut, OSError (TimeoutError when patience has run out),
    and ValueError for a broken compression or chunk header.
    """
    try:
        yield from _body_chunks(response)
    except (OSError, http.client.HTTPException, ValueError):
        # We ended it ourselves, whatever the end looked like.
        if patience is None or not patience.expired:
            raise
    if patience is not None and patience.expired:
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
