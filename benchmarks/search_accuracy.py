"""How close the capacity search comes to the model's own answer, tier by tier, in virtual time. Prints JSON.

    python benchmarks/search_accuracy.py [SEEDS]

Every seed is one search of each tier under `ttft_mean<=500ms`, against the simulated service with steps that are up
to 30 % longer or shorter; the truth is the oracle's answer to the same question from 60 requests a user.
`within` counts answers at most max(2 users, 3 %) from the truth. About 1 s a search.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pd_locust.search import Found
from pd_locust.slo import DEFAULT_SLO
from pd_sim.oracle import Limit, max_concurrency
from pd_sim.profiles import QWEN

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from virtual_search import MAX_TOKENS, TIERS, ModelService, search_in_virtual_time

JITTER_RATIO = 0.3


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    tiers = {tier: accuracy(prompt_tokens, seeds) for tier, prompt_tokens in TIERS.items()}
    answer = {"seeds": seeds, "limit": str(DEFAULT_SLO), "jitter_ratio": JITTER_RATIO, "tiers": tiers}
    print(json.dumps(answer, indent=2))
    return 0 if all(tier["within_share"] >= 0.95 for tier in tiers.values()) else 1


def accuracy(prompt_tokens: int, seeds: int) -> dict[str, Any]:
    """Search one tier with every seed and compare with the oracle."""
    known, _ = max_concurrency(
        QWEN, prompt_tokens, MAX_TOKENS, Limit("ttft", "mean", 500.0), turns=60, jitter_ratio=JITTER_RATIO
    )
    truth = known or 0
    found: Counter[int | None] = Counter()
    levels = requests = confirmed = 0
    for seed in range(seeds):
        service = ModelService(QWEN, prompt_tokens, jitter_ratio=JITTER_RATIO, seed=seed)
        searched = search_in_virtual_time(service, DEFAULT_SLO)
        found[searched.end.bracket.low] += 1
        confirmed += isinstance(searched.end, Found) and searched.end.confirmed
        levels += len(searched.levels)
        requests += searched.requests
    allowed = max(2, 0.03 * truth)
    within = sum(
        times for users, times in found.items() if users is not None and abs(users - truth) <= allowed
    )
    return {
        "truth": truth,
        "within": within,
        "within_share": within / seeds,
        "confirmed": confirmed,
        "answers": {
            str(users): times for users, times in sorted(found.items(), key=lambda pair: pair[0] or 0)
        },
        "levels_mean": round(levels / seeds, 1),
        "requests_mean": round(requests / seeds),
    }


if __name__ == "__main__":
    sys.exit(main())
