"""The capacity search in virtual time: its own rules, against a model of a service instead of sockets.

    searched = search_in_virtual_time(ModelService(QWEN, prompt_tokens=850), DEFAULT_SLO)

Phase, PhaseProgress, Latencies, Plateau, judge and CapacitySearch are those of a real run; only what carries
requests to and fro is left out.
"""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pd_locust.judge import LOOKS, judge, sample_sizes
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
    from pd_sim.service import Service as Model

TIERS = {"short": 16, "medium": 850, "long": 6330}
MAX_TOKENS = 256
LEVEL_MAX_S = 120.0
# Starting and draining a level takes Locust about as long.
_BETWEEN_LEVELS_S = 1.5
# As pd_locust.load.users.Backoff, which cannot be imported without Locust's patches.
_BACKOFF_S = (1.0, 4.0, 15.0)


class Ended(NamedTuple):
    """A request of `user` that has ended at `end_s`; `first_s` is its first token, None if it failed."""

    user: int
    first_s: float | None
    end_s: float


class Service(Protocol):
    """A state machine that is told the time; all times are seconds since the search began."""

    tokens: int

    def begin_level(self, now_s: float) -> None:
        """A level begins; nothing is in flight."""

    def arrive(self, now_s: float, user: int, in_flight: int) -> None:
        """Take in a request; `in_flight` counts it too."""

    def next_event_s(self) -> float | None:
        """When something happens next, None while nothing is in flight."""

    def advance(self, now_s: float) -> list[Ended]:
        """Do what is due up to `now_s`."""


class ModelService:
    """A model of pd_sim; every level finds it new, as a drained service is."""

    def __init__(
        self,
        profile: Profile,
        prompt_tokens: int,
        tokens: int = MAX_TOKENS,
        *,
        jitter_ratio: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.tokens = tokens
        self._profile, self._prompt_tokens, self._jitter_ratio = profile, prompt_tokens, jitter_ratio
        self._seeds = count(1000 * seed)
        self._model: Model
        self._first_s: dict[int, float] = {}

    def begin_level(self, now_s: float) -> None:
        del now_s
        self._model = new_service(
            self._profile, jitter_ratio=self._jitter_ratio, seed=next(self._seeds), every_token=False
        )

    def arrive(self, now_s: float, user: int, in_flight: int) -> None:
        del in_flight
        self._model.arrive(now_s, Job(user, self._prompt_tokens, self.tokens))

    def next_event_s(self) -> float | None:
        return self._model.next_event_s()

    def advance(self, now_s: float) -> list[Ended]:
        ended = []
        for emission in self._model.advance(now_s):
            self._first_s.setdefault(emission.key, emission.due_s)
            if emission.final:
                ended.append(Ended(emission.key, self._first_s.pop(emission.key), emission.due_s))
        return ended


class Row:
    """A finished request, as a plateau reads it."""

    __slots__ = ("e2e_ms", "outcome", "output_tokens", "part", "sent_unix_us", "tpot_ms", "ttft_ms")

    ttfo_ms = ttst_ms = itl_p99_ms = None
    prompt_tokens = 16
    cached_tokens = 0
    tokens_source = TokensSource.USAGE
    buffered = reconnected = False
    loop_lag_ms = client_cpu_share = 0.0
    worker = 0
    text_chunks, reads = 8, 9

    def __init__(self, part: Part, sent_s: float, ended: Ended, tokens: int) -> None:
        self.part = part
        self.sent_unix_us = round(sent_s * 1e6)
        # To the microsecond, as records are.
        self.e2e_ms = round((ended.end_s - sent_s) * 1e3, 3)
        self.outcome = Outcome.FAILURE if ended.first_s is None else Outcome.SUCCESS
        self.ttft_ms = self.tpot_ms = self.output_tokens = None
        if ended.first_s is not None:
            self.ttft_ms = round((ended.first_s - sent_s) * 1e3, 3)
            self.tpot_ms = (ended.end_s - ended.first_s) * 1e3 / (tokens - 1) if tokens > 1 else None
            self.output_tokens = tokens


class VirtualUsers:
    """Measures one level after the other, as a run does. `requests_sent` and `now_s` go on over all of them."""

    def __init__(self, service: Service, *, seed: int = 0, level_max_s: float = LEVEL_MAX_S) -> None:
        self._service = service
        self._level_max_s = level_max_s
        self._latencies = Latencies()
        self._rng = random.Random(f"users {seed}")
        self._stopping = False
        self.now_s = 0.0
        self.requests_sent = 0

    def measure(self, phase: Phase, slo: Slo, *, may_grow: bool = True) -> Plateau:
        """Hold a level until its verdict is clear or its sample is as large as samples get."""
        phase = self._latencies.with_ramp(phase)
        users = phase.users or 1
        progress = PhaseProgress(phase, users)
        sizes = iter(sample_sizes(users, slo)[1:] if may_grow else ())
        rows: list[Row] = []
        until_s = self.now_s + self._level_max_s
        self._stopping = False
        for row in self._requests(progress):
            rows.append(row)
            if progress.complete and not self._stopping:
                size = None if self._is_clear(rows, slo, users) else next(sizes, None)
                if size is None:
                    self._stopping = True
                else:
                    progress.extend(size)
            self._stopping = self._stopping or self.now_s > until_s
        self.now_s += _BETWEEN_LEVELS_S
        self._latencies.note(phase, rows)  # type: ignore[arg-type]
        return Plateau.of(rows, phase=phase.name, tier=phase.tier or "", users=users, slo=slo)

    def _is_clear(self, rows: list[Row], slo: Slo, users: int) -> bool:
        sample = sorted((row for row in rows if row.part is Part.SAMPLE), key=lambda row: row.sent_unix_us)
        return judge(sample, slo, users, looks=LOOKS).is_clear

    def _requests(self, progress: PhaseProgress) -> Iterator[Row]:
        """Every request that ends; users pause after failures only. While `_stopping` no request starts."""
        service, tokens, users = self._service, self._service.tokens, progress.users
        service.begin_level(self.now_s)
        starts = [(self.now_s + user / users * progress.phase.ramp_s, user) for user in range(users)]
        in_flight: dict[int, tuple[float, Part]] = {}
        failures = dict.fromkeys(range(users), 0)
        while True:
            due_s = service.next_event_s()
            if starts and not self._stopping and (due_s is None or starts[0][0] <= due_s):
                self.now_s, user = heapq.heappop(starts)
                part = progress.admit(user)
                assert part is not None
                in_flight[user] = (self.now_s, part)
                self.requests_sent += 1
                service.arrive(self.now_s, user, len(in_flight))
                continue
            if due_s is None:
                return
            for ended in service.advance(due_s):
                self.now_s = ended.end_s
                sent_s, part = in_flight.pop(ended.user)
                progress.end(ended.user, part)
                pause_s = 0.0
                if ended.first_s is None:
                    pause_s = _BACKOFF_S[min(failures[ended.user], 2)] * self._rng.uniform(0.75, 1.25)
                failures[ended.user] = failures[ended.user] + 1 if ended.first_s is None else 0
                heapq.heappush(starts, (ended.end_s + pause_s, ended.user))
                yield Row(part, sent_s, ended, tokens)


class Searched(NamedTuple):
    """How a search ended, its levels in order, and what it cost."""

    end: Found | GaveUp
    levels: list[Plateau]
    requests: int
    seconds: float


def search_in_virtual_time(
    service: Service, slo: Slo, *, seed: int = 0, search: CapacitySearch | None = None
) -> Searched:
    """Search one tier's capacity as pd_capacity.py does."""
    search = search or CapacitySearch()
    users = VirtualUsers(service, seed=seed)
    levels: list[Plateau] = []
    measured: list[Measured] = []
    while isinstance(step := search.next(measured), NextLevel):
        before = sum(level.users == step.users for level in measured)
        phase = level_phase("tier", step.users, before, sample_sizes(step.users, slo)[0])
        levels.append(users.measure(phase, slo))
        measured.append(Measured.of(levels[-1]))
    return Searched(step, levels, users.requests_sent, users.now_s)
