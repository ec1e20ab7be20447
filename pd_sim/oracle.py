"""What an ideal measurement would find: closed-loop runs in virtual time, without sockets or noise."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, NamedTuple

from pd_sim.job import Job
from pd_sim.limit import Limit, percentile
from pd_sim.model import deploy

if TYPE_CHECKING:
    from pd_sim.job import Service
    from pd_sim.profiles import Profile

MAX_USERS = 4096


class Outcome(NamedTuple):
    """One finished request; `tpot_ms` is None for a single token."""

    start_s: float
    ttft_ms: float
    tpot_ms: float | None
    e2e_ms: float


def closed_loop(  # noqa: PLR0917 - one run, spelled out
    profile: Profile,
    users: int,
    prompt_tokens: int,
    max_tokens: int,
    requests: int,
    seed: int = 0,
    *,
    jitter_ratio: float = 0.0,
) -> list[Outcome]:
    """Run `users` users without think time and return the first `requests` requests of the steady part.

    Users start one after the other, spread over one E2E under this load. The steady part begins when each
    has finished a request, and all go on until the sample is done, so that none of it ran under less load.
    """

    def run(size: int, window_s: float) -> list[Outcome]:
        service = deploy(profile, jitter_ratio=jitter_ratio, seed=seed, every_token=False)
        spread = random.Random(seed)  # noqa: S311 - repeatable, not secret
        starts_s = [(user + spread.random()) / users * window_s for user in range(users)]
        return _steady_part(service, starts_s, prompt_tokens, max_tokens, size)

    if users == 1:
        return run(requests, 0.0)
    # With outputs of one length, users who begin together stay together: a start within less than an E2E
    # leaves the mean as it is and doubles the p95 for ever. So a pilot finds out how long an E2E is.
    pilot = run(2 * users, closed_loop(profile, 1, prompt_tokens, max_tokens, 1)[0].e2e_ms / 1000)
    return run(requests, math.fsum(outcome.e2e_ms for outcome in pilot) / len(pilot) / 1000)


def max_concurrency(
    profile: Profile,
    prompt_tokens: int,
    max_tokens: int,
    limit: Limit,
    *,
    turns: int = 24,
    seed: int = 0,
    jitter_ratio: float = 0.0,
) -> tuple[int | None, dict[int, list[Outcome]]]:
    """Find N such that N users meet the limit and N + 1 do not, and return it with both runs.

    Doubles, then bisects. A run has `turns` requests of every user: a queue needs some to settle. N is None
    when even one user misses the limit; the search ends at MAX_USERS.
    """
    runs: dict[int, list[Outcome]] = {}

    def meets(users: int) -> bool:
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


def values_ms(outcomes: list[Outcome], latency: str) -> list[float]:
    """Return the `ttft`, `tpot` or `e2e` of every outcome that has one."""
    values = (getattr(outcome, f"{latency}_ms") for outcome in outcomes)
    return [value for value in values if value is not None]


def summary(outcomes: list[Outcome]) -> dict[str, float | int | None]:
    """Return the figures a report shows, in ms."""
    ttft_ms = values_ms(outcomes, "ttft")
    tpot_ms = values_ms(outcomes, "tpot")
    return {
        "ttft_mean_ms": round(math.fsum(ttft_ms) / len(ttft_ms), 3),
        "ttft_p50_ms": round(percentile(ttft_ms, 50), 3),
        "ttft_p95_ms": round(percentile(ttft_ms, 95), 3),
        "ttft_p99_ms": round(percentile(ttft_ms, 99), 3),
        "tpot_mean_ms": round(math.fsum(tpot_ms) / len(tpot_ms), 3) if tpot_ms else None,
        "requests": len(outcomes),
    }


def answer(
    profile: Profile,
    prompt_tokens: int,
    max_tokens: int,
    limit: Limit,
    *,
    seed: int = 0,
    jitter_ratio: float = 0.0,
) -> dict[str, object]:
    """Return the capacity at one prompt length as an object that is ready for JSON."""
    users, runs = max_concurrency(
        profile, prompt_tokens, max_tokens, limit, seed=seed, jitter_ratio=jitter_ratio
    )
    found, following = users or 0, (users or 0) + 1
    return {
        "prompt_tokens": prompt_tokens,
        "max_tokens": max_tokens,
        "max_concurrency": users,
        "at": summary(runs[found]) if found in runs else None,
        "next": summary(runs[following]) if following in runs else None,
    }


def _steady_part(
    service: Service, starts_s: list[float], prompt_tokens: int, max_tokens: int, requests: int
) -> list[Outcome]:
    users = len(starts_s)
    # Each user's key is its number: it has one request at a time.
    starts = [(start_s, user) for user, start_s in enumerate(starts_s)]
    starts.reverse()
    unsettled = set(range(users))
    started_s = [math.inf] * users
    first_token_s = [math.inf] * users
    sample_place: list[int | None] = [None] * users
    sample: list[Outcome | None] = [None] * requests
    taken = finished = 0
    while finished < requests:
        due_s = service.next_event_s()
        if starts and (due_s is None or starts[-1][0] <= due_s):
            now_s, user = starts.pop()
            started_s[user] = now_s
            service.arrive(now_s, Job(user, prompt_tokens, max_tokens))
            continue
        if due_s is None:
            raise RuntimeError("the model stands still with requests in flight")
        for emission in service.advance(due_s):
            user = emission.key
            now_s = emission.due_s
            first_token_s[user] = min(first_token_s[user], now_s)
            if not emission.final:
                continue
            place = sample_place[user]
            if place is not None:
                sample[place] = _outcome(started_s[user], first_token_s[user], now_s, max_tokens)
                finished += 1
            unsettled.discard(user)
            sample_place[user] = None
            if not unsettled and taken < requests:
                sample_place[user] = taken
                taken += 1
            started_s[user] = now_s
            first_token_s[user] = math.inf
            service.arrive(now_s, Job(user, prompt_tokens, max_tokens))
    return [outcome for outcome in sample if outcome is not None]


def _outcome(start_s: float, first_token_s: float, end_s: float, tokens: int) -> Outcome:
    tpot_ms = (end_s - first_token_s) * 1000 / (tokens - 1) if tokens > 1 else None
    return Outcome(start_s, (first_token_s - start_s) * 1000, tpot_ms, (end_s - start_s) * 1000)
