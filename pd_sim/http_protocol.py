"""The server's side of HTTP/1.1 on one socket: whole requests, one at a time; replies as bytes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple, cast

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024

_ERROR_TYPES = {
    401: "AuthenticationError",
    404: "NotFoundError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}


class HttpError(Exception):
    """A request is answered with this status and message, in OpenAI's error shape."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


class HttpRequest(NamedTuple):
    """One request; header names are in lower case.

    `received_ns` is when its first bytes were read from the socket, `complete_ns` when its last ones were;
    the clock is time.perf_counter_ns(), which all processes of a Linux machine share.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    received_ns: int
    complete_ns: int


class HttpProtocol(asyncio.Protocol):
    """One client. `serve` gets each request and must end it with `reply`, `finish` or `close`, now or later.

    Pipelined requests wait for their turn. The loops switch Nagle's algorithm off by themselves.
    """

    transport: asyncio.Transport

    def __init__(self, serve: Callable[[HttpProtocol, HttpRequest], None]) -> None:
        self._serve = serve
        self._pending = bytearray()
        self._received_ns: int | None = None
        self._continue_sent = False
        self._serving = False
        self._keep_alive = True
        self.on_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Tell the request in progress that its client has left."""
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def data_received(self, data: bytes) -> None:
        """Collect bytes until a request is whole."""
        now_ns = time.perf_counter_ns()
        if self._received_ns is None:
            self._received_ns = now_ns
        self._pending += data
        if not self._serving:
            self._take_request(now_ns)

    def reply(
        self, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send the whole answer to the request in progress."""
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n{extra}{self.persistence}\r\n"
        )
        self.transport.write(head.encode("latin-1") + body)
        self.finish()

    def refuse(self, error: HttpError) -> None:
        """Answer the request in progress with an error."""
        kind = _ERROR_TYPES.get(error.status, "BadRequestError")
        fields = {"message": str(error), "type": kind, "param": None, "code": error.status}
        self.reply(error.status, json.dumps({"error": fields}).encode(), "application/json", error.headers)

    @property
    def persistence(self) -> str:
        """Header line that says whether the connection stays open after this reply."""
        return "" if self._keep_alive else "Connection: close\r\n"

    def finish(self) -> None:
        """Go on to the next request, or close when the client asked for that."""
        self.on_lost = None
        self._serving = False
        if not self._keep_alive:
            self.close()
        elif self._pending:
            # From the loop, so that a long pipeline does not recurse.
            asyncio.get_running_loop().call_soon(self._resume)

    def close(self) -> None:
        """Close after everything written has been sent."""
        self.transport.close()

    def _resume(self) -> None:
        if not self._serving and not self.transport.is_closing():
            self._take_request(time.perf_counter_ns())

    def _take_request(self, now_ns: int) -> None:
        try:
            request = self._parse(now_ns)
        except HttpError as error:
            # Where the next request would begin is unknown.
            self._keep_alive = False
            self.refuse(error)
            return
        if request is not None:
            self._serving = True
            self._serve(self, request)

    def _parse(self, now_ns: int) -> HttpRequest | None:
        head_bytes = self._pending.find(b"\r\n\r\n") + 4
        if head_bytes < 4:
            if len(self._pending) > MAX_HEAD_BYTES:
                raise HttpError(431, "the request head is too long")
            return None
        request_line, *lines = self._pending[: head_bytes - 4].decode("latin-1").split("\r\n")
        method, _, rest = request_line.partition(" ")
        target, _, version = rest.partition(" ")
        if version != "HTTP/1.1":
            raise HttpError(505 if version.startswith("HTTP/") else 400, "this server speaks HTTP/1.1 only")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        body_bytes = self._body_bytes(headers)
        if len(self._pending) < head_bytes + body_bytes:
            if headers.get("expect", "").lower() == "100-continue" and not self._continue_sent:
                self._continue_sent = True
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        body = bytes(self._pending[head_bytes : head_bytes + body_bytes])
        del self._pending[: head_bytes + body_bytes]
        received_ns = now_ns if self._received_ns is None else self._received_ns
        self._received_ns = now_ns if self._pending else None
        self._continue_sent = False
        self._keep_alive = headers.get("connection", "").lower() != "close"
        path, _, query = target.partition("?")
        return HttpRequest(method, path, query, headers, body, received_ns, now_ns)

    @staticmethod
    def _body_bytes(headers: dict[str, str]) -> int:
        if "transfer-encoding" in headers:
            raise HttpError(411, "send the body with a Content-Length")
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            raise HttpError(400, f"Content-Length {length!r} is not a number")
        if int(length) > MAX_BODY_BYTES:
            raise HttpError(413, f"a body may have {MAX_BODY_BYTES} bytes")
        return int(length)
