"""How long the users of a level take to start: spread over about one of its E2E latencies."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from pd_locust.record import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.phase import Phase
    from pd_locust.record import RequestRecord

_UNKNOWN_E2E_MS = 1000.0
_LONGEST_SPREAD_S = 30.0


class Latencies:
    """E2E latency by tier and level.

    Users that start together stay together, and wait for each other at every turn: the same mean, but twice
    the p95 that users have who arrive at any time.
    """

    def __init__(self) -> None:
        self._by_tier: dict[str, dict[int, float]] = {}

    def note(self, phase: Phase, rows: Sequence[RequestRecord]) -> None:
        """Remember what a phase has shown."""
        e2e_ms = [row.e2e_ms for row in rows if row.outcome is Outcome.SUCCESS and row.e2e_ms is not None]
        if e2e_ms and phase.tier and phase.users:
            self._by_tier.setdefault(phase.tier, {})[phase.users] = fmean(e2e_ms)

    def spread(self, phase: Phase) -> Phase:
        """Give a phase of several users the time over which they start."""
        if phase.users is None or phase.users < 2:
            return phase
        return replace(phase, spread_s=min(self._expected_ms(phase) / 1e3, _LONGEST_SPREAD_S))

    def _expected_ms(self, phase: Phase) -> float:
        """Latency of the nearest level held so far, grown with the users; a second when there is none."""
        known = self._by_tier.get(phase.tier or "", {})
        users = phase.users or 1
        if not known:
            return _UNKNOWN_E2E_MS
        nearest = min(known, key=lambda level: abs(level - users))
        # Half way between a latency that does not depend on users and one that is proportional to them.
        return known[nearest] * (1 + max(0.0, users / nearest - 1) / 2) if nearest > 1 else known[nearest]
