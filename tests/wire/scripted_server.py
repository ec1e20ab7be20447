"""A server that does to each connection exactly what its script says, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl


class Step(Enum):
    """Beside bytes, which are sent, and numbers, which are seconds to wait. A script's end closes."""

    READ = auto()
    """Read one whole request."""
    RESET = auto()
    """Drop the connection so that the peer sees a reset."""
    HALF_CLOSE = auto()
    """End this direction and wait until the peer ends the other."""
    HOLD = auto()
    """Send nothing more; wait until the peer closes."""


READ, RESET, HALF_CLOSE, HOLD = Step


@dataclass(frozen=True)
class Request:
    """`in_one_piece`: head and body came with one read, as they do when they were written with one."""

    line: str
    headers: dict[str, str]
    body: bytes
    in_one_piece: bool


@dataclass
class ScriptedServer:
    """One script a connection, in the order in which they are accepted. Use as a context manager."""

    scripts: tuple[tuple[bytes | float | Step, ...], ...]
    family: socket.AddressFamily = socket.AF_INET
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    accepted: int = 0

    def __enter__(self) -> Self:
        host = "::1" if self.family == socket.AF_INET6 else "127.0.0.1"
        self._listener = socket.create_server((host, 0), family=self.family)
        self._sockets: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        scheme = "https" if self.tls else "http"
        self.url = f"{scheme}://[::1]:{self.port}" if host == "::1" else f"{scheme}://{host}:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):  # its script may be through
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        for script in self.scripts:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # the test is over
            self.accepted += 1
            self._sockets.append(sock)
            # Otherwise what follows TLS's own messages waits for their acknowledgement, 40 ms.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                if self.tls:
                    sock = self.tls.wrap_socket(sock, server_side=True)
                    self._sockets[-1] = sock
                self._play(sock, script)
            except OSError:
                pass  # the peer has had enough, which is the peer's to tell
            sock.close()

    def _play(self, sock: socket.socket, script: tuple[bytes | float | Step, ...]) -> None:
        for step in script:
            match step:
                case bytes():
                    sock.sendall(step)
                case Step.READ:
                    self.requests.append(_read_request(sock))
                case Step.RESET:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                case Step.HALF_CLOSE | Step.HOLD:
                    if step is Step.HALF_CLOSE:
                        sock.shutdown(socket.SHUT_WR)
                    while sock.recv(65_536):
                        pass
                case _:
                    time.sleep(step)


def _read_request(sock: socket.socket) -> Request:
    data = sock.recv(1 << 20)
    reads = 1
    while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < _length(data):
        more = sock.recv(1 << 20)
        if not more:
            raise ConnectionResetError
        data += more
        reads += 1
    head, _, body = data.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    return Request(line, dict(name.split(": ", 1) for name in fields), body, reads == 1)


def _length(data: bytes) -> int:
    head = data.partition(b"\r\n\r\n")[0].lower()
    return int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
