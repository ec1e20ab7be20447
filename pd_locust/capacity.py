"""Capacity: the largest concurrency that kept the limit, per tier, and what to plan with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pd_locust.slo import DEFAULT_FAILURE_SHARE, Slo, Verdict
from pd_locust.warnings import Doubt

if TYPE_CHECKING:
    from pd_locust.plateau import Plateau

DEFAULT_HEADROOM = 0.2
STATISTICS = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """One tier's answer. `best` is None when no level passed, `worst` when none failed.

    `by_statistic` is the answer that the same levels give when mean, p50, p95 or p99 is limited instead:
    the bound on the mean and the bound on p95 can be far apart.
    """

    tier: str
    slo: Slo
    best: Plateau | None
    worst: Plateau | None
    levels: tuple[int, ...]
    by_statistic: dict[str, int | None]
    planned_users: int | None
    doubts: tuple[Doubt, ...]

    @property
    def max_concurrency(self) -> int | None:
        """Users of the largest level that passed."""
        return self.best.users if self.best else None


def with_headroom(users: int, headroom: float = DEFAULT_HEADROOM) -> int:
    """Users to plan with: floor(users x (1 - headroom)); 179 with 20 % is 143, not 179 / 1.2 = 149."""
    # Rounded first: 10 * (1 - 0.2) is 8, but 70 * (1 - 0.3) is 48.99999.
    return math.floor(round(users * (1 - headroom), 9))


def capacity_row(tier: str, plateaus: Iterable[Plateau], slo: Slo, headroom: float = DEFAULT_HEADROOM) -> CapacityRow:
    """Answer for one tier from the levels that were held, in any order."""
    levels = sorted((plateau for plateau in plateaus if plateau.users), key=lambda plateau: plateau.users or 0)
    passed = [plateau for plateau in levels if plateau.verdict is Verdict.PASS]
    failed = [plateau for plateau in levels if plateau.verdict is Verdict.FAIL]
    best = passed[-1] if passed else None
    worst = failed[0] if failed else None
    return CapacityRow(
        tier=tier,
        slo=slo,
        best=best,
        worst=worst,
        levels=tuple(plateau.users or 0 for plateau in levels),
        by_statistic={name: _largest_within(levels, slo, name) for name in STATISTICS},
        planned_users=with_headroom(best.users, headroom) if best and best.users else None,
        doubts=_doubts(tier, levels, best, worst),
    )


def _largest_within(levels: Sequence[Plateau], slo: Slo, statistic: str) -> int | None:
    """Largest level whose `statistic` of successes is within the limit and which had at most 1 % failures."""
    limit = slo.primary
    if limit is None:
        return None
    fitting = [
        plateau.users
        for plateau in levels
        if (value := getattr(plateau.summary_of(limit.request.metric), statistic)) is not None
        and value <= limit.request.limit_ms
        and plateau.failed <= DEFAULT_FAILURE_SHARE * plateau.finished
    ]
    return max((users for users in fitting if users), default=None)


def _doubts(tier: str, levels: Sequence[Plateau], best: Plateau | None, worst: Plateau | None) -> tuple[Doubt, ...]:
    if best is None or best.users is None:
        return ()
    if worst is None:
        return (
            Doubt(
                "no-upper-bound",
                tier,
                f"every level up to {best.users} users kept the limit",
                "the levels end below the capacity",
                "higher levels (--pd-levels), or the capacity search",
            ),
        )
    if worst.users is not None and worst.users < best.users:
        return (
            Doubt(
                "not-monotone",
                tier,
                f"{worst.users} users missed the limit but {best.users} kept it",
                "noise near the limit, or a disturbance while the smaller level was held",
                "hold the levels around it again and longer",
            ),
        )
    gap = [plateau.users for plateau in levels if plateau.users and best.users < plateau.users]
    nearest = min(gap, default=None)
    if nearest is not None and nearest > best.users * 1.25:
        return (
            Doubt(
                "coarse-bracket",
                tier,
                f"the capacity lies between {best.users} and {nearest} users",
                "levels are far apart",
                f"levels between {best.users} and {nearest} (--pd-levels), or the capacity search",
            ),
        )
    return ()
