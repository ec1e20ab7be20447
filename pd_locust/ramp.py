"""Ramp of a level: its users start spread over about one E2E latency."""

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
_LONGEST_RAMP_S = 30.0


class Latencies:
    """Mean E2E latency by tier and level, from which the ramp of the next level follows.

    Users that start together stay together: each round is one burst, whose mean TTFT is the same but whose p95 is
    twice that of users who arrive independently.
    """

    def __init__(self) -> None:
        self._by_tier: dict[str, dict[int, float]] = {}

    def note(self, phase: Phase, rows: Sequence[RequestRecord]) -> None:
        """Keep the mean E2E latency of a phase's successes."""
        e2e_ms = [row.e2e_ms for row in rows if row.outcome is Outcome.SUCCESS and row.e2e_ms is not None]
        if e2e_ms and phase.tier and phase.users:
            self._by_tier.setdefault(phase.tier, {})[phase.users] = fmean(e2e_ms)

    def with_ramp(self, phase: Phase) -> Phase:
        """Return the phase with `ramp_s`: expected E2E latency, at most 30 s; 0 for a single user."""
        if phase.users is None or phase.users < 2:
            return phase
        return replace(phase, ramp_s=min(self._expected_ms(phase) / 1e3, _LONGEST_RAMP_S))

    def _expected_ms(self, phase: Phase) -> float:
        """E2E latency of the nearest level measured so far, scaled to these users; 1 s if there is none."""
        known = self._by_tier.get(phase.tier or "", {})
        users = phase.users or 1
        if not known:
            return _UNKNOWN_E2E_MS
        nearest = min(known, key=lambda level: abs(level - users))
        # Midway between an E2E latency independent of users and one proportional to users.
        return known[nearest] * (1 + max(0.0, users / nearest - 1) / 2) if nearest > 1 else known[nearest]
