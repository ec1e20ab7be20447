"""Phases of a run, and who may start a request in them. Knows no clock, no socket and no Locust."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pd_locust.judge import sample_sizes
from pd_locust.record import Part
from pd_locust.slo import DEFAULT_SLO

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

LEVEL_ROUNDS = 4
"""Requests a user in a level of the sweep: fewer rounds give no interval worth the name."""


class PhaseKind(StrEnum):
    """open: users stream until told otherwise; count: a number of requests; level: until its sample is complete."""

    OPEN = "open"
    COUNT = "count"
    LEVEL = "level"


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of load. `tier` is None when every user keeps its own.

    `requests` is the exact number to send (count) or the sample to collect (level). Users start evenly over `ramp_s`,
    because users that start together stay together.
    """

    name: str
    kind: PhaseKind
    users: int | None = None
    tier: str | None = None
    requests: int = 0
    ramp_s: float = 0.0

    def to_message(self) -> dict[str, Any]:
        """Plain types, for Locust's messages between master and workers."""
        return {
            "name": self.name,
            "kind": str(self.kind),
            "users": self.users,
            "tier": self.tier,
            "requests": self.requests,
            "ramp_s": self.ramp_s,
        }

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Phase:
        """Inverse of `to_message`."""
        return cls(**{**message, "kind": PhaseKind(message["kind"])})


def share_out(phase: Phase, users_by_worker: dict[str, int]) -> dict[str, Phase]:
    """Split a phase's requests over workers in proportion to the users each one runs, exactly.

    Largest remainders first (Hamilton's method), so the parts add up to the whole; a worker without users
    gets none.
    """
    total = sum(users_by_worker.values())
    if not total:
        return {}
    exact = {worker: phase.requests * users / total for worker, users in users_by_worker.items()}
    shares = {worker: int(part) for worker, part in exact.items()}
    by_remainder = sorted(exact, key=lambda worker: shares[worker] - exact[worker])
    for worker in by_remainder[: phase.requests - sum(shares.values())]:
        shares[worker] += 1
    return {
        worker: replace(phase, requests=shares[worker]) for worker, users in users_by_worker.items() if users
    }


class PhaseProgress:
    """Admits one process's requests to one phase and says which part of it each belongs to.

    A level is settled once every user has finished a request started at it; only then does its sample
    begin. When the sample is full users go on (tail) until every sampled request has ended, so nothing slow
    is cut off and the load does not drop under those still being answered.
    """

    def __init__(self, phase: Phase, users: int, known_users: frozenset[Hashable] = frozenset()) -> None:
        self.phase = phase
        self.users = users
        self.wanted = phase.requests
        self.started = 0
        self.finished = 0
        self._known = set(known_users)
        self._finished_one: set[Hashable] = set()
        self._sampled = 0
        self._sample_in_flight = 0

    @property
    def known_users(self) -> frozenset[Hashable]:
        """Users that have started a request: their next one is no first wave."""
        return frozenset(self._known)

    @property
    def settled(self) -> bool:
        """Whether every user has finished a request that started in this phase."""
        return len(self._finished_one) >= self.users

    @property
    def complete(self) -> bool:
        """Whether this process has what the phase asked of it."""
        match self.phase.kind:
            case PhaseKind.COUNT:
                return self.finished >= self.wanted
            case PhaseKind.LEVEL:
                return self._sampled >= self.wanted and self._sample_in_flight == 0
            case _:
                return False

    def admit(self, user: Hashable) -> Part | None:
        """Say which part of the phase a request starting now belongs to; None: this user must wait."""
        if self.phase.kind is PhaseKind.COUNT and self.started >= self.wanted:
            return None
        part = self._part(user)
        self._known.add(user)
        self.started += 1
        if part is Part.SAMPLE:
            self._sampled += 1
            self._sample_in_flight += 1
        return part

    def _part(self, user: Hashable) -> Part:
        if user not in self._known:
            return Part.WAVE
        if self.phase.kind is PhaseKind.COUNT:
            return Part.SAMPLE
        if self.phase.users is None:
            return Part.RAMP
        if not self.settled:
            return Part.SETTLING
        if self.phase.kind is PhaseKind.LEVEL and self._sampled >= self.wanted:
            return Part.TAIL
        return Part.SAMPLE

    def extend(self, requests: int) -> None:
        """Ask for a larger sample: the one so far did not settle the verdict."""
        self.wanted = requests

    def end(self, user: Hashable, part: Part) -> None:
        """Note that a request of this user, admitted here as `part`, has ended."""
        self.finished += 1
        self._finished_one.add(user)
        if part is Part.SAMPLE:
            self._sample_in_flight -= 1


def level_phase(tier: str, users: int, measured_before: int = 0, requests: int | None = None) -> Phase:
    """Return a level of the sweep or search. A repeated measurement has a name, and so a plateau, of its own."""
    name = f"sweep/{tier}/{users}" + (f"/{measured_before + 1}" if measured_before else "")
    return Phase(name, PhaseKind.LEVEL, users, tier, requests or sample_sizes(users, DEFAULT_SLO)[0])


def benchmark_phases(
    *,
    tiers: Sequence[str],
    single_requests: int,
    concurrency: int,
    concurrency_tier: str,
    concurrency_requests: int,
    sweep_tiers: Sequence[str],
    levels: Sequence[int],
    level_requests: int,
) -> list[Phase]:
    """Return the protocol: single stream per tier, an exact count at a fixed concurrency, a sweep per tier.

    A level's sample is at least `level_requests` and at least LEVEL_ROUNDS a user. A part whose count is 0 is left out.
    """
    phases: list[Phase] = []
    if single_requests:
        phases += [
            Phase(f"single/{tier}", PhaseKind.COUNT, users=1, tier=tier, requests=single_requests)
            for tier in tiers
        ]
    if concurrency_requests:
        name = f"concurrency/{concurrency_tier}/{concurrency}"
        phases.append(
            Phase(
                name, PhaseKind.COUNT, users=concurrency, tier=concurrency_tier, requests=concurrency_requests
            )
        )
    phases += [
        level_phase(tier, users, requests=max(level_requests, LEVEL_ROUNDS * users))
        for tier in sweep_tiers
        for users in sorted(set(levels))
    ]
    return phases
