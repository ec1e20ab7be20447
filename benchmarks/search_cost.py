"""What the capacity search costs beside a plain sweep of the same resolution, in virtual time. Prints JSON.

    python benchmarks/search_cost.py

The sweep holds every number of users from the search's first level up to the first that fails, in steps of the
resolution that the search has there (1 user, or 1 %), each with the fixed sample of a level of the benchmark's sweep:
at least 100 requests and four a user. Service, limit and cohort rules are the same. Everything that is sent counts,
first waves included. Exit code 1 if a ratio is above 1/4.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pd_locust.phase import LEVEL_ROUNDS, level_phase
from pd_locust.search import CapacitySearch
from pd_locust.slo import DEFAULT_SLO, Verdict
from pd_sim.profiles import LINEAR, QWEN

if TYPE_CHECKING:
    from pd_sim.profiles import Profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from virtual_search import MAX_TOKENS, TIERS, ModelService, VirtualUsers, search_in_virtual_time

JITTER_RATIO = 0.1
MOST_RATIO = 0.25
_SWEEP_SAMPLE = 100


def main() -> int:
    cases: dict[str, tuple[Profile, int, int]] = {
        tier: (QWEN, prompt_tokens, MAX_TOKENS) for tier, prompt_tokens in TIERS.items()
    }
    cases["linear"] = (LINEAR, 16, 64)
    results = {name: compare(*case) for name, case in cases.items()}
    print(json.dumps({"limit": str(DEFAULT_SLO), "jitter_ratio": JITTER_RATIO, "cases": results}, indent=2))
    return 0 if all(result["ratio"] <= MOST_RATIO for result in results.values()) else 1


def compare(profile: Profile, prompt_tokens: int, max_tokens: int) -> dict[str, Any]:
    """Ask both for the same answer and count the requests that each has sent."""
    services = [
        ModelService(profile, prompt_tokens, max_tokens, jitter_ratio=JITTER_RATIO, seed=seed)
        for seed in (0, 1)
    ]
    searched = search_in_virtual_time(services[0], DEFAULT_SLO)
    sweep = VirtualUsers(services[1], level_max_s=math.inf)
    users = CapacitySearch().start
    levels, answer, verdict = 0, None, Verdict.PASS
    while verdict is not Verdict.FAIL:
        requests = max(_SWEEP_SAMPLE, LEVEL_ROUNDS * users)
        verdict = sweep.measure(
            level_phase("tier", users, requests=requests), DEFAULT_SLO, may_grow=False
        ).verdict
        answer = users if verdict is Verdict.PASS else answer
        levels += 1
        users += max(CapacitySearch().resolution, users // 100)
    return {
        "search": {
            "answer": searched.end.bracket.low,
            "levels": [level.users for level in searched.levels],
            "requests": searched.requests,
        },
        "sweep": {"answer": answer, "levels": levels, "requests": sweep.requests_sent},
        "ratio": round(searched.requests / sweep.requests_sent, 4),
    }


if __name__ == "__main__":
    sys.exit(main())
