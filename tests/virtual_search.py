"""The capacity search in virtual time: its own rules, against the simulated service's model instead of sockets.

    found, held = search_in_virtual_time(QWEN, prompt_tokens=850, slo=DEFAULT_SLO, jitter_ratio=0.1, seed=7)

Phase, PhaseProgress, Latencies, Plateau, judge and CapacitySearch are those of a real run; only what carries
requests to and fro is left out.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from pd_locust.judge import LOOKS, sample_sizes
from pd_locust.phase import Phase, PhaseProgress, level_phase
from pd_locust.plateau import Plateau
from pd_locust.ramp import Latencies
from pd_locust.record import Outcome, Part, TokensSource
from pd_locust.search import CapacitySearch, Found, GaveUp, Measured, NextLevel
from pd_sim.pd_service import new_service
from pd_sim.service import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pd_locust.slo import Slo
    from pd_sim.profiles import Profile

TIERS = {"short": 16, "medium": 850, "long": 6330}
MAX_TOKENS = 256


class Row(NamedTuple):
    """A finished request, as a plateau reads it."""

    part: Part
    sent_unix_us: int
    ttft_ms: float
    e2e_ms: float
    tpot_ms: float | None
    prompt_tokens: int
    output_tokens: int
    outcome: Outcome = Outcome.SUCCESS
    ttfo_ms: float | None = None
    ttst_ms: float | None = None
    itl_p99_ms: float | None = None
    cached_tokens: int | None = 0
    tokens_source: str | None = TokensSource.USAGE
    buffered: bool = False
    loop_lag_ms: float | None = 0.0
    client_cpu_share: float | None = 0.0
    worker: int = 0
    text_chunks: int = 8
    reads: int = 9
    reconnected: bool = False


class VirtualService:
    """Holds levels one after the other; idle in between, as a drained service is."""

    def __init__(
        self, profile: Profile, prompt_tokens: int, max_tokens: int, *, jitter_ratio: float, seed: int
    ) -> None:
        self._profile = profile
        self._prompt_tokens = prompt_tokens
        self._max_tokens = max_tokens
        self._jitter_ratio = jitter_ratio
        self._seeds = count(1000 * seed)
        self._latencies = Latencies()
        self.requests_sent = 0

    def hold(self, phase: Phase, slo: Slo, *, may_grow: bool = True) -> Plateau:
        """Hold a level until its verdict is clear or its sample is as large as samples get."""
        phase = self._latencies.with_ramp(phase)
        users = phase.users or 1
        progress = PhaseProgress(phase, users)
        sizes = iter(sample_sizes(users, slo)[1:] if may_grow else ())
        rows: list[Row] = []
        for row in self._requests(progress):
            rows.append(row)
            if progress.complete:
                level = Plateau.of(
                    rows, phase=phase.name, tier=phase.tier or "", users=users, slo=slo, looks=LOOKS
                )
                size = None if level.judgement.is_clear else next(sizes, None)
                if size is None:
                    break
                progress.extend(size)
        self._latencies.note(phase, rows)  # type: ignore[arg-type]
        return level

    def _requests(self, progress: PhaseProgress) -> Iterator[Row]:
        """Every finished request of users that never pause; ends never, the caller does."""
        service = new_service(
            self._profile, jitter_ratio=self._jitter_ratio, seed=next(self._seeds), every_token=False
        )
        users = progress.users
        starts = [(user / users * progress.phase.ramp_s, user) for user in range(users)]
        in_flight: dict[int, tuple[float, Part]] = {}
        first_s: dict[int, float] = {}

        def start(now_s: float, user: int) -> None:
            part = progress.admit(user)
            assert part is not None
            in_flight[user] = (now_s, part)
            self.requests_sent += 1
            service.arrive(now_s, Job(user, self._prompt_tokens, self._max_tokens))

        while True:
            due_s = service.next_event_s()
            if starts and (due_s is None or starts[0][0] <= due_s):
                start(*heapq.heappop(starts))
                continue
            assert due_s is not None
            for emission in service.advance(due_s):
                user, now_s = emission.key, emission.due_s
                first_s.setdefault(user, now_s)
                if not emission.final:
                    continue
                sent_s, part = in_flight.pop(user)
                progress.end(user, part)
                yield self._row(part, sent_s, first_s.pop(user), now_s)
                start(now_s, user)

    def _row(self, part: Part, sent_s: float, first_s: float, end_s: float) -> Row:
        tokens = self._max_tokens
        return Row(
            part=part,
            sent_unix_us=round(sent_s * 1e6),
            ttft_ms=(first_s - sent_s) * 1e3,
            e2e_ms=(end_s - sent_s) * 1e3,
            tpot_ms=(end_s - first_s) * 1e3 / (tokens - 1) if tokens > 1 else None,
            prompt_tokens=self._prompt_tokens,
            output_tokens=tokens,
        )


class Searched(NamedTuple):
    """How a search ended, its levels in order, and what it cost."""

    end: Found | GaveUp
    levels: list[Plateau]
    requests: int


def search_in_virtual_time(
    profile: Profile,
    prompt_tokens: int,
    slo: Slo,
    *,
    max_tokens: int = MAX_TOKENS,
    jitter_ratio: float = 0.0,
    seed: int = 0,
    search: CapacitySearch | None = None,
) -> Searched:
    """Search one tier's capacity as pd_capacity.py does."""
    search = search or CapacitySearch()
    service = VirtualService(profile, prompt_tokens, max_tokens, jitter_ratio=jitter_ratio, seed=seed)
    levels: list[Plateau] = []
    held: list[Measured] = []
    while isinstance(step := search.next(held), NextLevel):
        before = sum(level.users == step.users for level in held)
        phase = level_phase("tier", step.users, before, sample_sizes(step.users, slo)[0])
        levels.append(service.hold(phase, slo))
        held.append(Measured.of(levels[-1]))
    return Searched(step, levels, service.requests_sent)
