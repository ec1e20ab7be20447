"""The result of an ideal measurement: closed-loop runs in virtual time, without sockets or noise."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pd_sim.pd_service import new_service
from pd_sim.profiles import Profile
from pd_sim.service import Job, Service

MAX_USERS = 4096
LIMITS = "ttft, tpot or e2e, then _mean or _p50 to _p99.9, <=, and ms or s, as in 'ttft_mean<=500ms'"
_LIMIT = re.compile(r"\s*(ttft|tpot|e2e)_(mean|p[5-9]\d(?:\.\d+)?)\s*<=\s*(\d+(?:\.\d+)?)\s*(ms|s)\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound on one statistic (`mean`, or a percentile such as `p99`) of one latency.

    Its grammar is written apart from that of pd_locust, so that a misreading shows as a difference.
    """

    latency: str
    statistic: str
    bound_ms: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read one limit; a ValueError says what is accepted."""
        form = _LIMIT.fullmatch(text)
        if form is None:
            raise ValueError(f"{text!r} is no limit; give {LIMITS}")
        latency, statistic, bound, unit = form.groups()
        return cls(latency, statistic, float(bound) * (1000 if unit == "s" else 1))

    def __str__(self) -> str:
        return f"{self.latency}_{self.statistic}<={self.bound_ms:g}ms"

    def allows(self, values_ms: Sequence[float]) -> bool:
        """Whether the statistic is within the bound; no values are never within it."""
        # A sum of exact model times may miss the bound by its last bits: 20 + 48 x 10 must be 500.
        return bool(values_ms) and self.statistic_of(values_ms) <= self.bound_ms * (1 + 1e-9)

    def statistic_of(self, values_ms: Sequence[float]) -> float:
        if self.statistic == "mean":
            return math.fsum(values_ms) / len(values_ms)
        return percentile(values_ms, float(self.statistic[1:]))


class FinishedRequest(NamedTuple):
    """True latencies of one request; `tpot_ms` is None for a single token."""

    start_s: float
    ttft_ms: float
    tpot_ms: float | None
    e2e_ms: float


def percentile(values: Sequence[float], percent: float) -> float:
    """Interpolate linearly between the two nearest ranks; the first rank is 0 %, the last 100 %."""
    ranked = sorted(values)
    position = (len(ranked) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (position - below)


def closed_loop(  # noqa: PLR0917 - one run, spelled out
    profile: Profile,
    users: int,
    prompt_tokens: int,
    max_tokens: int,
    requests: int,
    seed: int = 0,
    *,
    jitter_ratio: float = 0.0,
) -> list[FinishedRequest]:
    """Run `users` users without think time and return the first `requests` requests of the steady part.

    Users start one after the other, spread over one E2E latency under this load. The steady part begins when
    each user has finished a request. All users go on until the sample is complete, so that the whole sample
    ran under full load.
    """

    def run(size: int, window_s: float) -> list[FinishedRequest]:
        service = new_service(profile, jitter_ratio=jitter_ratio, seed=seed, every_token=False)
        spread = random.Random(seed)  # noqa: S311 - repeatable, not secret
        starts_s = [(user + spread.random()) / users * window_s for user in range(users)]
        return _steady_part(service, starts_s, prompt_tokens, max_tokens, size)

    if users == 1:
        return run(requests, 0.0)
    # With outputs of one length, users who begin together stay together: a start within less than one E2E
    # leaves the mean as it is and doubles the p95 for ever. So a pilot run measures the E2E latency.
    pilot = run(2 * users, closed_loop(profile, 1, prompt_tokens, max_tokens, 1)[0].e2e_ms / 1000)
    return run(requests, math.fsum(request.e2e_ms for request in pilot) / len(pilot) / 1000)


def max_concurrency(
    profile: Profile,
    prompt_tokens: int,
    max_tokens: int,
    limit: Limit,
    *,
    turns: int = 24,
    seed: int = 0,
    jitter_ratio: float = 0.0,
    progress: Callable[[int], None] = lambda users: None,  # noqa: ARG005 - nobody listens
) -> tuple[int | None, dict[int, list[FinishedRequest]]]:
    """Find N such that N users meet the limit and N + 1 do not, and return it with both runs.

    Doubles, then bisects; `progress` is told the users of each run before it starts. A run has `turns`
    requests of every user, because a queue needs some to settle. N is None when even one user misses the
    limit; the search ends at MAX_USERS.
    """
    runs: dict[int, list[FinishedRequest]] = {}

    def meets(users: int) -> bool:
        progress(users)
        runs[users] = closed_loop(
            profile, users, prompt_tokens, max_tokens, turns * users, seed, jitter_ratio=jitter_ratio
        )
        return limit.allows(values_ms(runs[users], limit.latency))

    passed, failed = 0, 1
    while failed <= MAX_USERS and meets(failed):
        passed, failed = failed, failed * 2
    while failed <= MAX_USERS and failed - passed > 1:
        middle = (passed + failed) // 2
        if meets(middle):
            passed = middle
        else:
            failed = middle
    return passed or None, {users: runs[users] for users in (passed, failed) if users in runs}


def values_ms(requests: list[FinishedRequest], latency: str) -> list[float]:
    """Return the `ttft`, `tpot` or `e2e` of every request that has one."""
    values = (getattr(request, f"{latency}_ms") for request in requests)
    return [value for value in values if value is not None]


def summary(requests: list[FinishedRequest]) -> dict[str, float | int | None]:
    """Return the figures that a report shows, in ms."""
    ttft_ms = values_ms(requests, "ttft")
    tpot_ms = values_ms(requests, "tpot")
    return {
        "ttft_mean_ms": round(math.fsum(ttft_ms) / len(ttft_ms), 3),
        **{f"ttft_p{percent}_ms": round(percentile(ttft_ms, percent), 3) for percent in (50, 95, 99)},
        "tpot_mean_ms": round(math.fsum(tpot_ms) / len(tpot_ms), 3) if tpot_ms else None,
        "requests": len(requests),
    }


def _steady_part(
    service: Service, starts_s: list[float], prompt_tokens: int, max_tokens: int, requests: int
) -> list[FinishedRequest]:
    # The key of a job is the number of its user, who has one request at a time.
    starts = sorted(((start_s, user) for user, start_s in enumerate(starts_s)), reverse=True)
    unsettled = {user for _, user in starts}
    started_s: dict[int, float] = {}
    first_token_s: dict[int, float] = {}
    places: dict[int, int] = {}
    sample: dict[int, FinishedRequest] = {}

    def start(now_s: float, user: int) -> None:
        started_s[user] = now_s
        service.arrive(now_s, Job(user, prompt_tokens, max_tokens))

    while len(sample) < requests:
        due_s = service.next_event_s()
        if starts and (due_s is None or starts[-1][0] <= due_s):
            start(*starts.pop())
            continue
        if due_s is None:
            raise RuntimeError("the model stands still with requests in flight")
        for user, _, final, now_s, _ in service.advance(due_s):
            first_token_s.setdefault(user, now_s)
            if not final:
                continue
            request = _finished(started_s[user], first_token_s.pop(user), now_s, max_tokens)
            if user in places:
                sample[places.pop(user)] = request
            unsettled.discard(user)
            if not unsettled and (taken := len(sample) + len(places)) < requests:
                places[user] = taken
            start(now_s, user)
    return [sample[place] for place in range(requests)]


def _finished(start_s: float, first_token_s: float, end_s: float, tokens: int) -> FinishedRequest:
    tpot_ms = (end_s - first_token_s) * 1000 / (tokens - 1) if tokens > 1 else None
    return FinishedRequest(start_s, (first_token_s - start_s) * 1000, tpot_ms, (end_s - start_s) * 1000)
