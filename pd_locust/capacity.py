"""Capacity: the largest concurrency that kept the limit, per tier, and what to plan with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pd_locust.search import Measured, disagreeing, not_monotone, settled
from pd_locust.slo import DEFAULT_FAILURE_SHARE, Slo, Verdict
from pd_locust.warnings import Doubt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pd_locust.plateau import Plateau

DEFAULT_HEADROOM = 0.2
STATISTICS = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """One tier's answer. `best` is None when no level passed, `worst` when none failed.

    A level that was held more than once passed or failed when its holds agree (`search.settled`).

    `by_statistic` is the answer that the same levels give when mean, p50, p95 or p99 is limited instead:
    the bound on the mean and the bound on p95 can be far apart. `alone` is False when other tiers were under load at
    the same time: users are then those of all of them. `missed_above` is the smallest level that failed above `best`:
    the capacity's upper bound, where `worst`, the smallest of all, may lie below in a service that is disturbed.
    """

    tier: str
    slo: Slo
    best: Plateau | None
    worst: Plateau | None
    levels: tuple[int, ...]
    by_statistic: dict[str, int | None]
    planned_users: int | None
    doubts: tuple[Doubt, ...]
    missed_above: int | None
    alone: bool = True

    @property
    def max_concurrency(self) -> int | None:
        """Users of the largest level that passed."""
        return self.best.users if self.best else None

    @property
    def is_known(self) -> bool:
        """Whether any level passed or failed; otherwise nothing at all is known of the capacity."""
        return self.best is not None or self.worst is not None


def with_headroom(users: int, headroom: float = DEFAULT_HEADROOM) -> int:
    """Users to plan with: floor(users x (1 - headroom)); 179 with 20 % is 143, not 179 / 1.2 = 149."""
    # Rounded first: 10 * (1 - 0.2) is 8, but 70 * (1 - 0.3) is 48.99999.
    return math.floor(round(users * (1 - headroom), 9))


def capacity_row(
    tier: str, plateaus: Iterable[Plateau], slo: Slo, headroom: float = DEFAULT_HEADROOM
) -> CapacityRow:
    """Answer for one tier from the levels that were held, in any order."""
    levels = sorted(
        (plateau for plateau in plateaus if plateau.users), key=lambda plateau: plateau.users or 0
    )
    verdicts = settled([Measured.of(plateau) for plateau in levels])
    passed, failed = (
        [plateau for plateau in levels if plateau.verdict is verdict is verdicts[plateau.users or 0]]
        for verdict in (Verdict.PASS, Verdict.FAIL)
    )
    best = passed[-1] if passed else None
    worst = failed[0] if failed else None
    largest = (best.users if best else None) or 0
    above = [level.users for level in failed if level.users and level.users > largest]
    return CapacityRow(
        tier=tier,
        slo=slo,
        best=best,
        worst=worst,
        levels=tuple(plateau.users or 0 for plateau in levels),
        by_statistic={name: _largest_within(levels, slo, name) for name in STATISTICS},
        planned_users=with_headroom(best.users, headroom) if best and best.users else None,
        doubts=_doubts(tier, levels, best, worst),
        missed_above=above[0] if above else None,
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


def _doubts(
    tier: str, levels: Sequence[Plateau], best: Plateau | None, worst: Plateau | None
) -> tuple[Doubt, ...]:
    held = [Measured.of(plateau) for plateau in levels]
    at_odds = disagreeing(held)
    doubts = [_disagreement(tier, users) for users in at_odds]
    if best is None or best.users is None:
        return tuple(doubts)
    larger = [level.users for level in held if level.users > best.users]
    if dip := not_monotone(held):
        return (*doubts, _dip(tier, *dip))
    missed = worst.users if worst else None
    if not larger:
        doubts.append(_no_upper_bound(tier, best.users))
    elif (missed is None or min(larger) < missed) and min(larger) not in at_odds:
        doubts.append(_unclear_edge(tier, best.users, min(larger)))
    if missed is not None and missed - best.users > max(1, best.users / 4):
        doubts.append(_coarse_bracket(tier, best.users, missed))
    return tuple(doubts)


def _disagreement(tier: str, users: int) -> Doubt:
    return Doubt(
        "disagreement",
        tier,
        f"{users} users kept the limit once and missed it once",
        "the service drifts, or something else used it or this machine meanwhile",
        "hold the level again when both are quiet",
    )


def _dip(tier: str, missed: int, kept: int) -> Doubt:
    return Doubt(
        "not-monotone",
        tier,
        f"{missed} users missed the limit but {kept} kept it",
        "noise near the limit, or a disturbance while the smaller level was held",
        "hold the levels around it again and longer",
    )


def _no_upper_bound(tier: str, users: int) -> Doubt:
    return Doubt(
        "no-upper-bound",
        tier,
        f"every level up to {users} users kept the limit",
        "the levels end below the capacity",
        "higher levels (--pd-levels, --pd-max-users)",
    )


def _unclear_edge(tier: str, users: int, larger: int) -> Doubt:
    return Doubt(
        "unclear-edge",
        tier,
        f"{larger} users were shown neither to keep nor to miss the limit",
        "the latency lies on the limit there, or the load generator was late itself",
        f"plan with {users}, or hold {larger} longer (--pd-level-max-s)",
    )


def _coarse_bracket(tier: str, users: int, larger: int) -> Doubt:
    return Doubt(
        "coarse-bracket",
        tier,
        f"the capacity lies between {users} and {larger} users",
        "levels are far apart",
        f"levels between {users} and {larger} (--pd-levels), or the capacity search",
    )
