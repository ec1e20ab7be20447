"""CapacitySearch: which concurrency to measure next. It knows no Locust, no clock and no randomness.

    search = CapacitySearch(start=8, max_users=1024)
    search.next([])                                    -> NextLevel(8)
    search.next([Measured(8, PASS), ..., Measured(48, FAIL)])  -> NextLevel(47) | Found(...) | GaveUp(...)

Everything follows from the levels measured so far. So a search can be resumed from records, and what the live run
decided can be checked afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from pd_locust.judge import Finding, sample_sizes
from pd_locust.slo import AttainmentLimit, FailureLimit, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.plateau import Plateau

# Measurements that each end of the bracket takes, and the most that are made of it, discarded ones included.
_CONFIRMATIONS = 2
_MOST_MEASUREMENTS = 5


class Discarded(StrEnum):
    """Reasons to discard a measurement of a level."""

    LATE = "the load generator was overloaded"
    CUT_SHORT = "the level ended before its sample was complete"


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement of a level. `load` is the limited statistic / its limit: 1 at the limit, None if unknown.

    Under a limit on shares (attainment, failures) `load` is known of discarded measurements only: 1 if the share was
    within the limit, infinite otherwise. Such a share does not grow linearly between levels.
    A discarded measurement decides nothing where another one of the same level counts.
    """

    users: int
    verdict: Verdict
    load: float | None = None
    discarded: Discarded | None = None

    @classmethod
    def of(cls, level: Plateau) -> Measured:
        """Read a plateau; the live search and the capacity table read it alike."""
        limit, finding = level.slo.primary, level.judgement.primary
        load = None
        if limit is not None and finding is not None and finding.observed is not None:
            load = finding.observed / limit.request.limit_ms
        users = level.users or 0
        discarded: Discarded | None = None
        if level.client_limited:
            discarded = Discarded.LATE
        elif level.verdict is Verdict.INCONCLUSIVE and level.finished < sample_sizes(users, level.slo)[-1]:
            discarded = Discarded.CUT_SHORT
        if limit is None and discarded is not None:
            load = 1.0 if all(map(_is_within, level.judgement.findings)) else math.inf
        return cls(users, level.verdict, load, discarded)


@dataclass(frozen=True, slots=True)
class NextLevel:
    """Measure this many users next. `why` is for the progress line."""

    users: int
    why: str


@dataclass(frozen=True, slots=True)
class Bracket:
    """The answer lies here: `low` passed, `high` did not pass. None: no such level."""

    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """Done. `confirmed`: both ends of the bracket were measured twice; if not, `why` says why not."""

    bracket: Bracket
    confirmed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """No answer that could be defended; `why` says what stood in the way."""

    bracket: Bracket
    why: str


@dataclass(frozen=True, slots=True)
class CapacitySearch:
    """Double until a level does not pass, close in on the edge, confirm both of its sides.

    A level that is INCONCLUSIVE, or whose measurements disagree, counts as not passed: it can lower the answer,
    never raise it. A discarded measurement that was within the limit is repeated immediately; testing a lower level
    would not help. If repeating does not help either, the search ends there.
    Between two levels the limited statistic is interpolated, which lands beside the edge where the curve is almost
    straight. If an interpolated guess shrank the bracket less than bisection would have, bisect next. Guesses are
    skipped when the level budget could not absorb a miss: there are at most 2 log2(max_users) + 4 levels.

    The bracket is closed at `resolution` users, or at 1 % of the level where that is more.
    """

    start: int = 8
    max_users: int = 1024
    resolution: int = 1

    @property
    def most_levels(self) -> int:
        """Levels after which the search ends with what it has."""
        return math.floor(2 * math.log2(max(2, self.max_users))) + 4

    def next(self, measured: Sequence[Measured]) -> NextLevel | Found | GaveUp:
        """Say what to measure after these levels, which are in the order of time."""
        # A resumed run may have measured more users than are allowed now.
        measured = [level for level in measured if level.users <= self.max_users]
        if not measured:
            return NextLevel(min(self.start, self.max_users), "first level")
        bracket = self.bracket(measured)
        if stuck := _stuck(measured):
            return self._conclude(measured, bracket, stuck)
        step = (
            self._repeat(measured)
            or self._widen(measured, bracket)
            or self._narrow(measured, bracket)
            or self._confirm(measured, bracket)
        )
        if step is None or len(measured) >= self.most_levels:
            return self._conclude(measured, bracket, "" if step is None else "levels ran out")
        return step

    def bracket(self, measured: Sequence[Measured]) -> Bracket:
        """Largest level that passed below the smallest that did not, by all measurements of each level."""
        verdicts = settled(measured)
        not_passed = [users for users, verdict in verdicts.items() if verdict is not Verdict.PASS]
        high = min(not_passed, default=None)
        low = max(
            (
                users
                for users, verdict in verdicts.items()
                if verdict is Verdict.PASS and (high is None or users < high)
            ),
            default=None,
        )
        return Bracket(low, high)

    def most_left(self, measured: Sequence[Measured]) -> int:
        """Levels still to come at worst; for the progress line."""
        bracket = self.bracket(measured)
        if bracket.high is None:
            return max(0, self.most_levels - len(measured))
        gap = bracket.high - (bracket.low or 0)
        # A guess may miss before every halving.
        return min(self.most_levels - len(measured), 2 * _halvings(gap) + _CONFIRMATIONS)

    def _repeat(self, measured: Sequence[Measured]) -> NextLevel | None:
        if _discarded_within_limit(measured):
            return NextLevel(measured[-1].users, "repeating: the load generator was overloaded last time")
        return None

    def _widen(self, measured: Sequence[Measured], bracket: Bracket) -> NextLevel | None:
        if bracket.high is None and bracket.low is not None and bracket.low < self.max_users:
            double = min(2 * bracket.low, self.max_users)
            guess = _edge_beyond(measured, bracket.low)
            if guess is not None and bracket.low < guess < double and self._never_missed(measured):
                return NextLevel(guess, "where the line through the last two levels meets the limit")
            return NextLevel(double, "double")
        if bracket.low is None and bracket.high is not None and bracket.high > 1:
            return NextLevel(max(1, bracket.high // 2), "halve: nothing has passed yet")
        return None

    def _never_missed(self, measured: Sequence[Measured]) -> bool:
        brackets = [self.bracket(measured[:count]) for count in range(1, len(measured) + 1)]
        return all(_shrank_as_doubling(*pair) for pair in pairwise(brackets))

    def _narrow(self, measured: Sequence[Measured], bracket: Bracket) -> NextLevel | None:
        low, high = bracket.low, bracket.high
        if low is None or high is None or high - low <= self._resolution_at(low):
            return None
        middle = (low + high) // 2
        guess = _edge_between(measured, low, high)
        missed = not _shrank_as_doubling(self.bracket(measured[:-1]), bracket)
        if (
            guess is None
            or missed
            or len(measured) + 1 + _halvings(high - low) + _CONFIRMATIONS > self.most_levels
        ):
            return NextLevel(middle, "middle of the bracket")
        return NextLevel(guess, "where the line between the bracket's ends meets the limit")

    def _confirm(self, measured: Sequence[Measured], bracket: Bracket) -> NextLevel | None:
        if bracket.low is not None and _needs_confirmation(measured, bracket.low):
            return NextLevel(bracket.low, "confirm the PASS")
        if bracket.high is not None and _needs_confirmation(measured, bracket.high):
            return NextLevel(bracket.high, "confirm that it does not pass")
        return None

    def _conclude(self, measured: Sequence[Measured], bracket: Bracket, obstacle: str) -> Found | GaveUp:
        if bracket.low is not None:
            ends = [users for users in (bracket.low, bracket.high) if users is not None]
            unsure = [users for users in ends if _confirmations(measured, users) < _CONFIRMATIONS]
            if unsure and not obstacle:
                obstacle = f"{unsure[0]} users could not be judged twice"
            return Found(bracket, confirmed=not obstacle, why=obstacle)
        if set(settled(measured).values()) == {Verdict.INCONCLUSIVE}:
            return GaveUp(bracket, f"no level could be judged{f': {obstacle}' if obstacle else ''}")
        why = (
            f"with {bracket.high} in flight the limit is missed, and nothing smaller was found that keeps it"
        )
        return GaveUp(bracket, why)

    def _resolution_at(self, users: int) -> int:
        return max(self.resolution, users // 100)


def _shrank_as_doubling(before: Bracket, after: Bracket) -> bool:
    if before.high is None:
        return after.high is not None or (after.low or 0) >= 2 * (before.low or 0)
    if before.low is None or after.low is None or after.high is None:
        return True
    return after.high - after.low <= (before.high - before.low + 1) // 2


def _is_within(finding: Finding) -> bool:
    match finding:
        case Finding(condition=AttainmentLimit(at_least=share), observed=float(observed)):
            return observed >= share
        case Finding(condition=FailureLimit(at_most=share), observed=float(observed)):
            return observed <= share
        case _:
            return False


def _discarded_within_limit(measured: Sequence[Measured]) -> bool:
    """Whether the last measurement was discarded, nothing else is known of its level, and it was within the limit."""
    last = measured[-1]
    known = any(level.users == last.users and level.discarded is None for level in measured)
    return last.discarded is not None and not known and last.load is not None and last.load <= 1


def _stuck(measured: Sequence[Measured]) -> str:
    """Say why repeating the last level would not help, if it would be repeated."""
    last = measured[-1]
    times = sum(level.users == last.users for level in measured)
    if _discarded_within_limit(measured) and (
        last.discarded is Discarded.CUT_SHORT or times >= _MOST_MEASUREMENTS
    ):
        return f"{last.users} users could not be judged, {last.discarded}"
    return ""


def _confirmations(measured: Sequence[Measured], users: int) -> int:
    return sum(level.users == users and level.discarded is None for level in measured)


def _needs_confirmation(measured: Sequence[Measured], users: int) -> bool:
    times = sum(level.users == users for level in measured)
    return _confirmations(measured, users) < _CONFIRMATIONS and times < _MOST_MEASUREMENTS


def _halvings(gap: int) -> int:
    return math.ceil(math.log2(max(1, gap)))


def settled(measured: Sequence[Measured]) -> dict[int, Verdict]:
    """Verdict of each level by all its measurements that were not discarded: unanimous, or INCONCLUSIVE."""
    return {
        users: verdicts.pop() if len(verdicts) == 1 else Verdict.INCONCLUSIVE
        for users, verdicts in _verdicts(measured).items()
    }


def _verdicts(measured: Sequence[Measured]) -> dict[int, set[Verdict]]:
    verdicts: dict[int, set[Verdict]] = {}
    for level in measured:
        verdicts.setdefault(level.users, set()).update((level.verdict,) if level.discarded is None else ())
    return verdicts


def disagreeing(measured: Sequence[Measured]) -> list[int]:
    """Return the levels that passed once and failed once: the service drifts, or something disturbed it."""
    return sorted(
        users for users, verdicts in _verdicts(measured).items() if {Verdict.PASS, Verdict.FAIL} <= verdicts
    )


def not_monotone(measured: Sequence[Measured]) -> tuple[int, int] | None:
    """Return a level that did not pass and a larger one that did, if there are such: the truth has a dip."""
    verdicts = sorted(settled(measured).items())
    for index, (users, verdict) in enumerate(verdicts):
        larger = [other for other, said in verdicts[index + 1 :] if said is Verdict.PASS]
        if verdict is Verdict.FAIL and larger:
            return users, larger[-1]
    return None


def _loads(measured: Sequence[Measured]) -> dict[int, float]:
    return {
        level.users: level.load for level in measured if level.load is not None and math.isfinite(level.load)
    }


def _edge_beyond(measured: Sequence[Measured], low: int) -> int | None:
    """Extrapolate from the two largest levels up to `low`; None while they say nothing about the limit."""
    known = sorted((users, load) for users, load in _loads(measured).items() if users <= low)
    if len(known) < 2:
        return None
    (first, first_load), (last, last_load) = known[-2:]
    if last_load <= first_load:
        return None
    return math.ceil(last + (1 - last_load) * (last - first) / (last_load - first_load))


def _edge_between(measured: Sequence[Measured], low: int, high: int) -> int | None:
    """Interpolate between the bracket's ends, strictly inside; None when the load does not explain them.

    A level that lies on the limit, or was discarded, did not pass although its load may be 1 or less: then the
    guess is the level below it.
    """
    loads = _loads(measured)
    if low not in loads or high not in loads or not loads[low] <= 1 or loads[low] >= loads[high]:
        return None
    if loads[high] <= 1 and settled(measured)[high] is Verdict.FAIL:
        return None
    guess = math.floor(low + (1 - loads[low]) * (high - low) / (loads[high] - loads[low]))
    return min(max(guess, low + 1), high - 1)
