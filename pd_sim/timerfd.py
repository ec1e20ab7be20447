"""A timer finer than those of the event loops."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class Timer:
    """Calls `act` once, at or just after a moment on the time.perf_counter() clock.

    asyncio and uvloop round timers to whole milliseconds, a sixth of the time of a token. A Linux timerfd is
    exact to about ten microseconds; other systems use the loop's own timer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        self._loop = loop
        self._act = act
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        if hasattr(self._libc, "timerfd_create"):
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        # struct itimerspec: interval seconds and nanoseconds, then those of the first expiry.
        self._spec = (ctypes.c_long * 4)()
        if self._fd >= 0:
            loop.add_reader(self._fd, self._expire)

    def set(self, at_s: float | None) -> None:
        """Move the expiry; None disarms the timer, a moment in the past expires at once."""
        if self._fd >= 0:
            # All zeros would disarm it.
            at_ns = 0 if at_s is None else max(int(at_s * 1e9), 1)
            self._spec[2], self._spec[3] = divmod(at_ns, 1_000_000_000)
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, self._spec, None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None
        if at_s is not None:
            self._handle = self._loop.call_later(max(0.0, at_s - time.perf_counter()), self._act)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        elif self._handle is not None:
            self._handle.cancel()

    def _expire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            # Moved to a later moment after it had expired and before the loop came round.
            return
        self._act()
