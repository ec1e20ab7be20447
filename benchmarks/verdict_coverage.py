"""How often a level is judged wrongly: simulated levels whose true mean lies beside the limit. Prints JSON.

    python benchmarks/verdict_coverage.py [LEVELS]

Requests come in waves of one a user that share a deviation of 60 ms, beside 40 ms of their own; a wave resembles the
one before it by `correlation`. The sample grows as a real level's does. `wrong` is the share of levels with a PASS
above the limit or a FAIL below it; `wrong_twice` asks for the same wrong verdict from two holds, as the end of a
search does.
"""

from __future__ import annotations

import json
import math
import random
import sys
from types import SimpleNamespace
from typing import Any

from pd_locust.judge import LOOKS, judge, sample_sizes
from pd_locust.record import Outcome
from pd_locust.slo import DEFAULT_SLO, Verdict

LIMIT_MS = 500.0
_WAVE_MS, _OWN_MS = 60.0, 40.0


def main() -> int:
    levels = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    results = [
        {"users": users, "correlation": correlation, "beside_the_limit": distance}
        | shares(users, correlation, distance, levels)
        for users in (4, 48)
        for correlation in (0.0, 0.5)
        for distance in (0.0, 0.01, 0.02, 0.05)
    ]
    print(json.dumps({"levels": levels, "limit_ms": LIMIT_MS, "results": results}, indent=2))
    return 0


def shares(users: int, correlation: float, distance: float, levels: int) -> dict[str, float]:
    """Shares of levels by verdict, half of them with their true mean above the limit and half below."""
    rng = random.Random(f"{users} {correlation} {distance}")  # noqa: S311 - repeatable, not secret
    wrong = twice = unclear = 0
    for number in range(levels):
        above = number % 2 == 0
        mean_ms = LIMIT_MS * (1 + distance if above else 1 - distance)
        wrong_verdict = Verdict.PASS if above else Verdict.FAIL
        first, second = (hold(rng, users, correlation, mean_ms) for _ in range(2))
        wrong += first is wrong_verdict
        twice += first is second is wrong_verdict
        unclear += first is Verdict.INCONCLUSIVE
    return {
        "wrong": round(wrong / levels, 4),
        "wrong_twice": round(twice / levels, 4),
        "inconclusive": round(unclear / levels, 4),
    }


def hold(rng: random.Random, users: int, correlation: float, mean_ms: float) -> Verdict:
    """Judge one level whose sample grows until the verdict is clear."""
    sizes = sample_sizes(users, DEFAULT_SLO)
    rows = waves(rng, users, correlation, mean_ms, sizes[-1])
    for size in sizes:
        judgement = judge(rows[:size], DEFAULT_SLO, users, looks=LOOKS)
        if judgement.is_clear:
            break
    return judgement.verdict


def waves(rng: random.Random, users: int, correlation: float, mean_ms: float, size: int) -> list[Any]:
    """Requests in the order of sending; where a wave begins has nothing to do with where the sample does."""
    offset = rng.randrange(users)
    wave_ms = rng.gauss(0, _WAVE_MS)
    rows = []
    for place in range(size):
        if (place + offset) % users == 0:
            fresh_ms = rng.gauss(0, _WAVE_MS)
            wave_ms = correlation * wave_ms + math.sqrt(1 - correlation**2) * fresh_ms
        ttft_ms = mean_ms + wave_ms + rng.gauss(0, _OWN_MS)
        rows.append(SimpleNamespace(outcome=Outcome.SUCCESS, ttft_ms=ttft_ms))
    return rows


if __name__ == "__main__":
    sys.exit(main())
