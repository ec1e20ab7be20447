"""An HTTP answer as http.client reads it, but for chunked bodies, where every token goes through."""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

# http.client's own bound of a line.
_LINE_BYTES = 65_536
_READ_BYTES = 65_536
# Longer than any size that one read can hold.
_SHORT_LINE_BYTES = 16
# Linux's SO_TIMESTAMPNS, for which Python has no name, and what it brings: seconds and nanoseconds, a long each.
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
# More is only seen when the wall clock is set between the kernel's look at it and ours.
_LONGEST_WAIT_NS = 1_000_000_000


class Readiness(Protocol):
    """What a cooperative event loop offers for one socket; an ordinary socket needs none of it."""

    wait: Callable[[], None] | None
    """Waits until the socket can be read; None where bytes may have been read already, as inside TLS."""

    def set_urgent(self, *, urgent: bool) -> None:
        """Serve this socket before all others that can be read."""


class ChunkedResponse(http.client.HTTPResponse):
    """Gives the same bytes and errors as http.client, whole reads at a time.

    http.client takes a chunk from a buffered file in three calls (its size, its data, its line end), and a read
    that holds several chunks once a chunk. Here a read that is one whole chunk, as nearly all are, costs one
    receive and one slice; and what came with one read stays one read, so that it gets one time.
    """

    def __init__(self, sock: socket.socket, *, readiness: Readiness | None = None) -> None:
        super().__init__(sock, method="POST")
        self.reads = 0
        self._receive: Callable[[int], bytes] = getattr(sock, "recv", None) or self.fp.read1
        self._after_headers = True
        self._readiness = readiness
        self._wait = None if readiness is None else readiness.wait
        if readiness is not None:
            readiness.set_urgent(urgent=True)
        self._stamped: socket.socket | None = None
        self._stamped_reads = 0
        self._waited_ns = 0
        self._latest_ns = self._first_text_ns = 0
        self._between_chunks = True
        # What the last read left behind: the rest of a chunk, of its line end, or of a line.
        self._data_left = 0
        self._end_left = 0
        self._line = b""
        self._in_trailer = False
        self._fault: http.client.HTTPException | None = None

    def stamp(self, sock: socket.socket) -> None:
        """Take the kernel's word for when bytes arrived, until the second read with text.

        TTFT then does not depend on how late this process reads: at 179 streams on a busy core it was late by 0.3 ms at
        p50 and 4 at p95, and is by 0.01 and 0.02. The many reads after that are not worth two microseconds each.
        """
        self._stamped, self._stamped_reads = sock, sys.maxsize

    def has_text(self) -> None:
        """Let others go first, and stamp one more read: the gap after the first text is that of the KV handoff.

        Text that came with the headers has the time of its reading. What is read next may have come before that, and
        then has the same time: a late reader once showed a TPOT of -1 ms.
        """
        self._first_text_ns = self._latest_ns
        if self._readiness is not None:
            self._readiness.set_urgent(urgent=False)
        self._stamped_reads = min(self._stamped_reads, 1)

    def clock(self, now: Callable[[], int]) -> Callable[[], int]:
        """Return `now`, which after a stamped read tells once when its last bytes arrived; for when headers are read.

        Bodies that are not chunked are read elsewhere, and in compressed ones a read may give nothing that could take
        the time: they are not stamped.
        """
        if not self.chunked or self.getheader("Content-Encoding"):
            self._stamped_reads = 0
        if not self._stamped_reads:
            return now

        def arrived_ns() -> int:
            waited_ns = self._waited_ns
            if not waited_ns and not self._stamped_reads:
                return now()
            self._waited_ns = 0
            self._latest_ns = max(self._first_text_ns, now() - waited_ns)
            return self._latest_ns

        return arrived_ns

    def read1(self, n: int = -1) -> bytes:
        """Return what one read brought, without chunk headers; b"" at the end of the body."""
        self.reads += 1
        if not self.chunked:
            return super().read1(n)
        if self.fp is None:
            return b""
        while True:
            if self._fault is not None:
                raise self._fault
            read = self._came_with_headers() if self._after_headers else b""
            if not read:
                if self._wait is not None:
                    self._wait()
                read = self._read_stamped() if self._stamped_reads else self._receive(_READ_BYTES)
            if self._between_chunks:
                line_end = read.find(b"\n", 0, _SHORT_LINE_BYTES) + 1
                if len(read) == _whole_bytes(read[:line_end]):
                    return read[line_end:-2]
            data = self._unchunked(read) if read else self._at_eof()
            if data or self.fp is None:
                return data
            self._waited_ns = 0  # of a read that brought no data, or not yet

    def _came_with_headers(self) -> bytes:
        """Return what is in the file's buffer, once; after that the socket is nearer."""
        assert self.fp is not None  # noqa: S101 - for the type checker
        self._after_headers = False
        if self._stamped is not None and not _has_buffered(self._stamped, self.fp):
            return b""
        return self.fp.read1(_READ_BYTES)

    def _read_stamped(self) -> bytes:
        assert self._stamped is not None  # noqa: S101 - for the type checker
        read, stamps, _, _ = self._stamped.recvmsg(_READ_BYTES, socket.CMSG_SPACE(_TIMESPEC.size))
        self._stamped_reads -= 1
        self._waited_ns = 0
        for level, kind, value in stamps:
            if (level, kind, len(value)) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS, _TIMESPEC.size):
                seconds, nanoseconds = _TIMESPEC.unpack(value)
                waited_ns = time.time_ns() - seconds * 1_000_000_000 - nanoseconds
                self._waited_ns = waited_ns if 0 < waited_ns < _LONGEST_WAIT_NS else 0
        return read

    def _unchunked(self, read: bytes) -> bytes:
        """Return the data in one read; errors in what follows it wait for the next call."""
        whole = self._line + read
        self._line = b""
        parts = []
        at = 0
        while at < len(whole):
            if self._data_left:
                part = whole[at : at + self._data_left]
                parts.append(part)
                at += len(part)
                self._data_left -= len(part)
                if not self._data_left:
                    self._end_left = 2
            elif self._end_left:
                # Whatever these two bytes are, as in http.client.
                skipped = min(self._end_left, len(whole) - at)
                at += skipped
                self._end_left -= skipped
            else:
                line_end = whole.find(b"\n", at, at + _LINE_BYTES) + 1
                if not line_end:
                    self._line = whole[at:]
                    if len(self._line) > _LINE_BYTES:
                        self._fault = http.client.LineTooLong("chunk size or trailer line")
                    break
                self._take_line(whole[at:line_end])
                if self.fp is None or self._fault is not None:
                    break
                at = line_end
        self._between_chunks = not (self._data_left or self._end_left or self._line or self._in_trailer)
        return b"".join(parts)

    def _take_line(self, line: bytes) -> None:
        if self._in_trailer:
            if line in {b"\r\n", b"\n"}:
                self._end()
            return
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            size = -1
        if size < 0:
            self._fault = http.client.IncompleteRead(b"")
        self._data_left = size
        self._in_trailer = size == 0

    def _end(self) -> None:
        # As http.client does at the end of a body: it is then closed, and the socket stays open.
        self._close_conn()  # type: ignore[attr-defined]

    def _at_eof(self) -> bytes:
        # http.client takes a last size line without its end for what it says, and a trailer's end for granted.
        if self._line and not self._in_trailer:
            line, self._line = self._line, b""
            self._take_line(line)
        if not self._in_trailer:
            raise http.client.IncompleteRead(b"")
        self._end()
        return b""


@lru_cache(maxsize=4096)
def _whole_bytes(size_line: bytes) -> int:
    """Return the bytes of a read that is the one chunk which this line begins; -1 where it begins none."""
    try:
        size = int(size_line.partition(b";")[0], 16)
    except ValueError:
        return -1
    return len(size_line) + size + 2 if size > 0 else -1


def ask_for_stamps(sock: socket.socket) -> bool:
    """Let the kernel note when bytes arrive on a connection; False where it cannot: inside TLS, or not on Linux."""
    if sys.platform != "linux" or hasattr(sock, "pending"):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def _has_buffered(sock: socket.socket, file: BinaryIO) -> bool:
    """Whether a socket's file holds something, or can without waiting."""
    timeout_s = sock.gettimeout()
    sock.settimeout(0)
    try:
        return bool(file.peek())  # type: ignore[attr-defined]
    finally:
        sock.settimeout(timeout_s)
