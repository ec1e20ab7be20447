"""CapacitySearch: which concurrency to hold next. Knows no Locust, no clock and no randomness.

    search = CapacitySearch(start=8, max_users=1024)
    search.next([])                                    -> Hold(8)
    search.next([Held(8, PASS), ..., Held(48, FAIL)])  -> Hold(47) | Found(...) | GaveUp(...)

Everything follows from the levels held so far, so a search can be resumed from records, and what the live run
decided can be checked afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from pd_locust.judgement import Finding, sample_sizes
from pd_locust.slo import AttainmentLimit, FailureLimit, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.plateau import Plateau

# Holds that say something, and holds altogether, that the ends of the bracket may cost.
_CONFIRMATIONS = 2
_MOST_HOLDS = 5


class Void(StrEnum):
    """Why a hold says nothing of the service."""

    LATE = "the load generator was late itself"
    CUT_SHORT = "the hold ended before its sample was complete"


@dataclass(frozen=True, slots=True)
class Held:
    """One level that was held. `load` is the limited statistic / its limit: 1 at the limit, None if unknown.

    Of a limit on shares (attainment, failures) it is 1 or infinite, for void holds only: whether they looked like a
    pass. Between levels such a share does not grow in a line.
    A hold that is `void` decides nothing beside one that is not.
    """

    users: int
    verdict: Verdict
    load: float | None = None
    void: Void | None = None

    @classmethod
    def of(cls, level: Plateau) -> Held:
        """Read a plateau; the live search and the capacity table read it alike."""
        limit, finding = level.slo.primary, level.judgement.primary
        load = None
        if limit is not None and finding is not None and finding.observed is not None:
            load = finding.observed / limit.request.limit_ms
        users = level.users or 0
        void: Void | None = None
        if level.client_limited:
            void = Void.LATE
        elif level.verdict is Verdict.INCONCLUSIVE and level.finished < sample_sizes(users, level.slo)[-1]:
            void = Void.CUT_SHORT
        if limit is None and void is not None:
            load = 1.0 if all(map(_seen_within, level.judgement.findings)) else math.inf
        return cls(users, level.verdict, load, void)


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold this many users next. `why` is for the progress line."""

    users: int
    why: str


@dataclass(frozen=True, slots=True)
class Bracket:
    """The answer lies here: `low` passed, `high` did not pass. None: no such level."""

    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """Done. `confirmed`: both ends of the bracket were held twice without a void; if not, `why` says why not."""

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

    A level that is INCONCLUSIVE, or whose holds disagree, counts as not passed: it can lower the answer,
    never raise it. A void hold that looked like a pass is repeated at once, for the level below it would tell
    nothing of it; if that does not help the search ends there. Between two levels the limited
    statistic is interpolated, which lands beside the edge where the curve is almost straight. A guess that
    did less than doubling or halving would have done is followed by one of them, and none is made that could
    cost a level too many: there are at most 2 log2(max_users) + 4.

    The bracket is closed at `resolution` users, or at 1 % of the level where that is more.
    """

    start: int = 8
    max_users: int = 1024
    resolution: int = 1

    @property
    def most_levels(self) -> int:
        """Levels after which the search ends with what it has."""
        return math.floor(2 * math.log2(max(2, self.max_users))) + 4

    def next(self, held: Sequence[Held]) -> Hold | Found | GaveUp:
        """Say what to hold after these levels, which are in the order in which they were held."""
        # A resumed run may have held more than is allowed now.
        held = [level for level in held if level.users <= self.max_users]
        if not held:
            return Hold(min(self.start, self.max_users), "first level")
        bracket = self.bracket(held)
        if stuck := _stuck(held):
            return self._conclude(held, bracket, stuck)
        step = (
            self._repeat(held)
            or self._widen(held, bracket)
            or self._narrow(held, bracket)
            or self._confirm(held, bracket)
        )
        if step is None or len(held) >= self.most_levels:
            return self._conclude(held, bracket, "" if step is None else "levels ran out")
        return step

    def bracket(self, held: Sequence[Held]) -> Bracket:
        """Largest level that passed below the smallest that did not, by all holds of each level together."""
        verdicts = settled(held)
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

    def most_left(self, held: Sequence[Held]) -> int:
        """Levels still to come at worst; for the progress line."""
        bracket = self.bracket(held)
        if bracket.high is None:
            return max(0, self.most_levels - len(held))
        gap = bracket.high - (bracket.low or 0)
        # A guess may miss before every halving.
        return min(self.most_levels - len(held), 2 * _halvings(gap) + _CONFIRMATIONS)

    def _repeat(self, held: Sequence[Held]) -> Hold | None:
        if _looked_like_a_pass(held):
            return Hold(held[-1].users, "again, for the last hold said nothing of the service")
        return None

    def _widen(self, held: Sequence[Held], bracket: Bracket) -> Hold | None:
        if bracket.high is None and bracket.low is not None and bracket.low < self.max_users:
            double = min(2 * bracket.low, self.max_users)
            guess = _edge_beyond(held, bracket.low)
            if guess is not None and bracket.low < guess < double and self._never_missed(held):
                return Hold(guess, "where the line through the last two levels meets the limit")
            return Hold(double, "double")
        if bracket.low is None and bracket.high is not None and bracket.high > 1:
            return Hold(max(1, bracket.high // 2), "half, for nothing has passed yet")
        return None

    def _never_missed(self, held: Sequence[Held]) -> bool:
        brackets = [self.bracket(held[:count]) for count in range(1, len(held) + 1)]
        return all(_as_good_as_doubling(*pair) for pair in pairwise(brackets))

    def _narrow(self, held: Sequence[Held], bracket: Bracket) -> Hold | None:
        low, high = bracket.low, bracket.high
        if low is None or high is None or high - low <= self._resolution_at(low):
            return None
        middle = (low + high) // 2
        guess = _edge_between(held, low, high)
        missed = not _as_good_as_doubling(self.bracket(held[:-1]), bracket)
        if (
            guess is None
            or missed
            or len(held) + 1 + _halvings(high - low) + _CONFIRMATIONS > self.most_levels
        ):
            return Hold(middle, "middle of the bracket")
        return Hold(guess, "where the line between the bracket's ends meets the limit")

    def _confirm(self, held: Sequence[Held], bracket: Bracket) -> Hold | None:
        if bracket.low is not None and _needs_confirmation(held, bracket.low):
            return Hold(bracket.low, "once more, to confirm that it passes")
        if bracket.high is not None and _needs_confirmation(held, bracket.high):
            return Hold(bracket.high, "once more, to confirm that it does not pass")
        return None

    def _conclude(self, held: Sequence[Held], bracket: Bracket, obstacle: str) -> Found | GaveUp:
        if bracket.low is not None:
            ends = [users for users in (bracket.low, bracket.high) if users is not None]
            unsure = [users for users in ends if _confirmations(held, users) < _CONFIRMATIONS]
            if unsure and not obstacle:
                obstacle = f"{unsure[0]} users could not be judged twice"
            return Found(bracket, confirmed=not obstacle, why=obstacle)
        if set(settled(held).values()) == {Verdict.INCONCLUSIVE}:
            return GaveUp(bracket, f"no level could be judged{f': {obstacle}' if obstacle else ''}")
        why = (
            f"with {bracket.high} in flight the limit is missed, and nothing smaller was found that keeps it"
        )
        return GaveUp(bracket, why)

    def _resolution_at(self, users: int) -> int:
        return max(self.resolution, users // 100)


def _as_good_as_doubling(before: Bracket, after: Bracket) -> bool:
    if before.high is None:
        return after.high is not None or (after.low or 0) >= 2 * (before.low or 0)
    if before.low is None or after.low is None or after.high is None:
        return True
    return after.high - after.low <= (before.high - before.low + 1) // 2


def _seen_within(finding: Finding) -> bool:
    match finding:
        case Finding(condition=AttainmentLimit(at_least=share), observed=float(observed)):
            return observed >= share
        case Finding(condition=FailureLimit(at_most=share), observed=float(observed)):
            return observed <= share
        case _:
            return False


def _looked_like_a_pass(held: Sequence[Held]) -> bool:
    """Whether the last hold was void at a level that nothing else is known of, and its load was within the limit."""
    last = held[-1]
    known = any(level.users == last.users and level.void is None for level in held)
    return last.void is not None and not known and last.load is not None and last.load <= 1


def _stuck(held: Sequence[Held]) -> str:
    """Say why holding the last level again would not help, if it would be held again."""
    last = held[-1]
    holds = sum(level.users == last.users for level in held)
    if _looked_like_a_pass(held) and (last.void is Void.CUT_SHORT or holds >= _MOST_HOLDS):
        return f"{last.users} users could not be judged, {last.void}"
    return ""


def _confirmations(held: Sequence[Held], users: int) -> int:
    return sum(level.users == users and level.void is None for level in held)


def _needs_confirmation(held: Sequence[Held], users: int) -> bool:
    holds = sum(level.users == users for level in held)
    return _confirmations(held, users) < _CONFIRMATIONS and holds < _MOST_HOLDS


def _halvings(gap: int) -> int:
    return math.ceil(math.log2(max(1, gap)))


def settled(held: Sequence[Held]) -> dict[int, Verdict]:
    """Verdict of each level by all its holds that are not void: unanimous, or INCONCLUSIVE."""
    return {
        users: said.pop() if len(said) == 1 else Verdict.INCONCLUSIVE for users, said in _said(held).items()
    }


def _said(held: Sequence[Held]) -> dict[int, set[Verdict]]:
    verdicts: dict[int, set[Verdict]] = {}
    for level in held:
        verdicts.setdefault(level.users, set()).update((level.verdict,) if level.void is None else ())
    return verdicts


def disagreeing(held: Sequence[Held]) -> list[int]:
    """Return the levels that passed once and failed once: the service drifts, or something disturbed it."""
    return sorted(users for users, said in _said(held).items() if {Verdict.PASS, Verdict.FAIL} <= said)


def not_monotone(held: Sequence[Held]) -> tuple[int, int] | None:
    """Return a level that did not pass and a larger one that did, if there are such: the truth has a dip."""
    verdicts = sorted(settled(held).items())
    for index, (users, verdict) in enumerate(verdicts):
        larger = [other for other, said in verdicts[index + 1 :] if said is Verdict.PASS]
        if verdict is Verdict.FAIL and larger:
            return users, larger[-1]
    return None


def _loads(held: Sequence[Held]) -> dict[int, float]:
    return {level.users: level.load for level in held if level.load is not None and math.isfinite(level.load)}


def _edge_beyond(held: Sequence[Held], low: int) -> int | None:
    """Extrapolate from the two largest levels up to `low`; None while they say nothing about the limit."""
    known = sorted((users, load) for users, load in _loads(held).items() if users <= low)
    if len(known) < 2:
        return None
    (first, first_load), (last, last_load) = known[-2:]
    if last_load <= first_load:
        return None
    return math.ceil(last + (1 - last_load) * (last - first) / (last_load - first_load))


def _edge_between(held: Sequence[Held], low: int, high: int) -> int | None:
    """Interpolate between the bracket's ends, strictly inside; None when the load does not explain them.

    A level that lies on the limit, or was void, did not pass although its load may be 1 or less: then the
    guess is the level below it.
    """
    loads = _loads(held)
    if low not in loads or high not in loads or not loads[low] <= 1 or loads[low] >= loads[high]:
        return None
    if loads[high] <= 1 and settled(held)[high] is Verdict.FAIL:
        return None
    guess = math.floor(low + (1 - loads[low]) * (high - low) / (loads[high] - loads[low]))
    return min(max(guess, low + 1), high - 1)
