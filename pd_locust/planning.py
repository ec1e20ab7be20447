"""How many PD pairs a mix of traffic needs, from what one deployment was seen to carry. Arithmetic only.

X = N / (TTFT + (OSL - 1) x TPOT) requests/s for a tier at its capacity of N users (Little's law). A mix fits
when the sum of rate / X over its tiers is at most 1 - headroom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pd_locust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pd_locust.capacity import CapacityRow


@dataclass(frozen=True, slots=True)
class TierPlan:
    """One tier of the mix. `requests_per_s` is what the measured deployment carries of it alone.

    `share` of that deployment is taken by `rate_per_s`; `users_in_flight` is what that rate amounts to.
    `at_least` says that no level failed, so that the true capacity is larger.
    """

    tier: str
    users: int
    ttft_ms: float
    tpot_ms: float
    output_tokens: float
    requests_per_s: float
    rate_per_s: float
    share: float
    users_in_flight: float
    at_least: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`pairs` is the size of the measured deployment; `pairs_needed` carry the mix with `headroom` kept free."""

    tiers: tuple[TierPlan, ...]
    headroom: float
    pairs: int
    share: float
    pairs_needed: int

    @property
    def pairs_with_spare(self) -> int:
        """N + 1: the mix still fits, headroom included, when one pair is lost."""
        return self.pairs_needed + 1


def parse_rates(text: str) -> dict[str, float]:
    """Read `short=30,long=5`, requests per second by tier. Raises ConfigError that says what is accepted."""
    rates: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            rate = float(number)
        except ValueError:
            rate = math.nan
        if not name.strip() or not (0 < rate < math.inf) or name.strip() in rates:
            raise ConfigError(
                f"--rate {text!r}: {part!r} is not understood; expected TIER=REQUESTS_PER_S,..., each once"
            )
        rates[name.strip()] = rate
    return rates


def plan(
    found: Iterable[CapacityRow], rates_per_s: Mapping[str, float], headroom: float, pairs: int = 1
) -> Plan:
    """Plan for a mix. Raises ConfigError for a tier without a capacity, or that was not held alone."""
    rows = {row.tier: row for row in found}
    tiers = tuple(_tier_plan(rows, tier, rate_per_s) for tier, rate_per_s in rates_per_s.items())
    share = math.fsum(tier.share for tier in tiers)
    # Rounded first: 0.8 of a deployment with 20 % kept free is one deployment, whatever floats make of it.
    needed = max(1, math.ceil(round(share / (1 - headroom) * pairs, 9)))
    return Plan(tiers, headroom, pairs, share, needed)


def _tier_plan(rows: Mapping[str, CapacityRow], tier: str, rate_per_s: float) -> TierPlan:
    row = rows.get(tier)
    best = row.best if row else None
    if row is None or best is None or not best.users:
        known = ", ".join(name for name, other in rows.items() if other.best) or "none"
        raise ConfigError(f"--rate {tier}: this run found no capacity for it; tiers with a capacity: {known}")
    if not row.alone:
        raise ConfigError(
            f"--rate {tier}: other tiers were under load with it, so what it carries alone is not known; "
            "hold tiers one after the other (locustfiles/pd_capacity.py, pd_benchmark.py)"
        )
    ttft_ms, tpot_ms, tokens = best.ttft.mean, best.tpot.mean, best.output_tokens
    if ttft_ms is None or tokens is None or (tpot_ms is None and tokens > 1):
        raise ConfigError(
            f"--rate {tier}: TTFT, TPOT or output tokens of its capacity level are not recorded"
        )
    residence_s = (ttft_ms + (tokens - 1) * (tpot_ms or 0.0)) / 1000
    requests_per_s = best.users / residence_s
    return TierPlan(
        tier=tier,
        users=best.users,
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms or 0.0,
        output_tokens=tokens,
        requests_per_s=requests_per_s,
        rate_per_s=rate_per_s,
        share=rate_per_s / requests_per_s,
        users_in_flight=rate_per_s * residence_s,
        at_least=row.worst is None,
    )
