"""The generator measures itself: how late its own event loop is, and how much of a core it uses."""

from __future__ import annotations

import time
from collections import deque

import gevent

_PROBE_S = 0.01
# Shorter delays are the ordinary work of other streams; keeping them would only cost memory.
_KEPT_NS = 500_000
_REMEMBERED = 4096
_LONGEST_NS = 1_000_000_000
_CPU_WINDOW_S = 1.0


class ClientHealth:
    """A greenlet that wants to wake every 10 ms and notes how much later it does.

    The delay is what a token's arrival stamp may be late by, since stamps are taken by greenlets that wait
    for the same loop.
    """

    def __init__(self) -> None:
        self.cpu_share: float | None = None
        self._delays: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._greenlet = gevent.spawn(self._probe)

    def stop(self) -> None:
        """Stop probing."""
        self._greenlet.kill()

    def loop_lag_ms(self, stamped_ns: int) -> float:
        """Longest delay of the loop that a stamp taken at this time.perf_counter_ns may have suffered.

        After a delay all greenlets that waited run one after another, so stamps count as touched by it for as
        long again. 0 below half a millisecond.
        """
        longest_ns = 0
        for woke_ns, delay_ns in reversed(self._delays):
            if woke_ns < stamped_ns - _LONGEST_NS:
                break
            if woke_ns - delay_ns <= stamped_ns <= woke_ns + delay_ns:
                longest_ns = max(longest_ns, delay_ns)
        return round(longest_ns / 1e6, 3)

    def _probe(self) -> None:
        window_started_s, cpu_started_s = time.perf_counter(), time.process_time()
        while True:
            due_ns = time.perf_counter_ns() + int(_PROBE_S * 1e9)
            gevent.sleep(_PROBE_S)
            woke_ns = time.perf_counter_ns()
            if woke_ns - due_ns > _KEPT_NS:
                self._delays.append((woke_ns, woke_ns - due_ns))
            elapsed_s = time.perf_counter() - window_started_s
            if elapsed_s >= _CPU_WINDOW_S:
                cpu_s = time.process_time()
                self.cpu_share = round((cpu_s - cpu_started_s) / elapsed_s, 3)
                window_started_s, cpu_started_s = time.perf_counter(), cpu_s
