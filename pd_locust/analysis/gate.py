"""A gate for CI: refuse a run that got worse by more than was allowed and more than noise explains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from pd_locust.analysis.columns import Columns
from pd_locust.analysis.compare import Place, below_knee, levels_by_place, refuse_unlike
from pd_locust.analysis.expression import CAPACITY, Expression
from pd_locust.analysis.levels import Kind, Selection
from pd_locust.analysis.rounds import Ratio, estimates
from pd_locust.errors import ConfigError
from pd_locust.judge import judge
from pd_locust.plateau import EVERYTHING, STEADY
from pd_locust.slo import FailureLimit, LatencyLimit, Slo, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

    from pd_locust.analysis.levels import Level
    from pd_locust.analysis.report import Report
    from pd_locust.judge import Finding
    from pd_locust.plateau import Plateau

DEFAULT_EXPRESSIONS = ("tok_s<-5%", "tpot_mean>+5%", "ttft_p95>+10%", "failures>1%")
"""Throughput first: it is what differs least between two runs of the same deployment."""
CHANGE = "% of change"
"""Unit of what is compared with a baseline."""
_CONFIDENCE = 0.95
_INFINITE = float("inf")


class Outcome(StrEnum):
    """Only `missed` is a miss; the last three decide nothing.

    `noise`: beyond the bound, but so little that chance explains it. `undecided`: with too few requests to tell how
    far chance goes. `limited`: the load generator was late itself. `not held`: of a tier that the baseline has.
    """

    KEPT = "kept"
    MISSED = "missed"
    NOISE = "noise explains it"
    UNDECIDED = "too few requests"
    LIMITED = "the load generator was the limit"
    NOT_HELD = "not held in this run"

    @property
    def decides(self) -> bool:
        """Whether it says something of the service."""
        return self in {Outcome.KEPT, Outcome.MISSED, Outcome.NOISE}


@dataclass(frozen=True, slots=True)
class Check:
    """One expression at one level. Values and interval are in `unit`: ms, a rate, users, % or % of change."""

    expression: str
    tier: str
    users: int | None
    old: float | None
    new: float | None
    seen: float | None
    low: float | None
    high: float | None
    unit: str
    outcome: Outcome


def gate(
    new: Report,
    old: Report | None,
    expressions: Sequence[Expression],
    slo: Slo | None = None,
    at: int | None = None,
) -> list[Check]:
    """Check every expression and limit for every tier that it names, or for all tiers.

    Raises ConfigError when there is nothing to check against or no level to check at.
    """
    if not expressions and slo is None:
        if old is None:
            raise ConfigError("nothing to hold the run against: give --baseline, --fail-if or --slo")
        expressions = [Expression.parse(text) for text in DEFAULT_EXPRESSIONS]
    for expression in expressions:
        if expression.relative and old is None:
            raise ConfigError(f"--fail-if {expression.text!r}: a change needs a --baseline")
    if old is not None:
        refuse_unlike(old, new)
    levels = _Levels.of(new, old, at)
    if not levels.places and (slo or any(expression.name != CAPACITY for expression in expressions)):
        levels.refuse(at)
    asked = [(expression, tier) for expression in expressions for tier in levels.tiers_for(expression)]
    # All intervals together hold with 95 %.
    confidence = 1 - (1 - _CONFIDENCE) / max(1, len(asked))
    checks = [_check(expression, tier, levels, confidence) for expression, tier in asked]
    if slo is not None:
        checks += [check for tier in levels.places for check in _limits(levels.new_at(tier), slo)]
    return checks


@dataclass(frozen=True, slots=True)
class _Levels:
    """The level of each tier at which it is checked; of tiers that the new run `lacks`, its users in the baseline."""

    new: Report
    old: Report | None
    places: dict[str, Place]
    lacks: dict[str, int]

    @classmethod
    def of(cls, new: Report, old: Report | None, at: int | None) -> _Levels:
        """Choose the largest level, held in both runs, that passed below the knee in the baseline.

        At the knee a healthy deployment's TTFT moves by tens of per cent from run to run. The baseline decides, for
        a run that no longer passes there is what the gate is for. Without a baseline, and where no level of a tier
        passed, it is the smallest.
        """
        basis = old or new
        held, held_new = levels_by_place(basis), levels_by_place(new)
        places: dict[str, Place] = {}
        lacks: dict[str, int] = {}
        for place, level in sorted(held.items(), key=lambda item: (item[0][2], item[1].plateau.finished)):
            _, tier, users = place
            fits = users == at if at else level.plateau.verdict is Verdict.PASS and below_knee(place, basis)
            if fits and place in held_new:
                places[tier] = place
            elif fits:
                lacks[tier] = users
        if old is None and not at:
            for place in sorted(held, key=lambda place: (place[0] is Kind.SINGLE, place[2])):
                places.setdefault(place[1], place)
        return cls(new, old, places, {tier: users for tier, users in lacks.items() if tier not in places})

    def refuse(self, at: int | None) -> NoReturn:
        """Say that there is nothing to check at."""
        which = f"of {at} users" if at else "that passed at 80 % of the capacity or less"
        raise ConfigError(
            f"{self.new.prefix}: no level {which} was held{' in both runs' if self.old else ''}; "
            "hold one (--pd-levels), or name one with --at"
        )

    def new_at(self, tier: str) -> Level:
        return levels_by_place(self.new)[self.places[tier]]

    def old_at(self, tier: str) -> Level | None:
        return levels_by_place(self.old)[self.places[tier]] if self.old else None

    def tiers_for(self, expression: Expression) -> list[str]:
        of_levels = [*self.places, *self.lacks]
        there = [row.tier for row in self.new.found] if expression.name == CAPACITY else of_levels
        if expression.tier is None and there:
            return there
        if expression.tier not in there:
            raise ConfigError(
                f"--fail-if {expression.text!r}: there is no such tier; there are {', '.join(there)}"
            )
        return [expression.tier]


def _check(expression: Expression, tier: str, levels: _Levels, confidence: float) -> Check:
    if expression.name == CAPACITY:
        return _check_capacity(expression, tier, levels)
    if tier in levels.lacks:
        nothing = (None,) * 5
        return Check(expression.text, tier, levels.lacks[tier], *nothing, CHANGE, Outcome.NOT_HELD)
    level = levels.new_at(tier)
    if expression.measure is None:
        side = Slo.parse(f"failures<={expression.bound * 100:g}%")
        return next(_limits(level, side, expression.text))
    return _check_measure(expression, level, levels.old_at(tier), confidence)


def _check_measure(expression: Expression, level: Level, old_level: Level | None, confidence: float) -> Check:
    assert expression.measure is not None  # noqa: S101 - for the type checker
    seen, tier, users, unit = level.plateau, level.plateau.tier, level.plateau.users, expression.measure.unit
    new = estimates(level).get(expression.name)
    old = estimates(old_level).get(expression.name) if old_level else None
    if new is None or not seen.successes:
        # No success is a miss, whatever was asked, and so is what is measured no longer. One token has no TPOT.
        missed = old is not None or (seen.finished > 0 and not seen.successes)
        outcome = Outcome.MISSED if missed else Outcome.UNDECIDED
        return Check(expression.text, tier, users, None, None, None, None, None, unit, outcome)
    if expression.relative:
        ratio = Ratio.of(old, new, confidence) if old else None
        check = _relative(expression, (tier, users), old.value if old else None, new.value, ratio)
    else:
        low, high = new.interval(confidence) or (None, None)
        outcome = _outcome(expression, new.value, low, high)
        check = Check(expression.text, tier, users, None, new.value, new.value, low, high, unit, outcome)
    limited = seen.client_limited or (old_level is not None and old_level.plateau.client_limited)
    return replace(check, outcome=Outcome.LIMITED) if limited else check


def _check_capacity(expression: Expression, tier: str, levels: _Levels) -> Check:
    row = next(row for row in levels.new.found if row.tier == tier)
    if not row.is_known:
        nothing = (None,) * 6
        return Check(expression.text, tier, *nothing, "users", Outcome.UNDECIDED)
    # The true capacity lies between the largest level that passed and the smallest that failed.
    low, high = row.max_concurrency or 0, row.missed_above
    if not expression.relative:
        outcome = _outcome(expression, low, low, _INFINITE if high is None else high - 1)
        return Check(expression.text, tier, None, None, low, low, low, high, "users", outcome)
    before = next((one for one in levels.old.found if one.tier == tier), None) if levels.old else None
    old_low, above = (before.max_concurrency, before.missed_above) if before else (None, None)
    if not old_low:
        return _relative(expression, (tier, None), old_low, low, None)
    ratio = Ratio(low / old_low, low / above if above else 0.0, high / old_low if high else _INFINITE)
    return _relative(expression, (tier, None), old_low, low, ratio)


def _relative(
    expression: Expression, place: tuple[str, int | None], old: float | None, new: float, ratio: Ratio | None
) -> Check:
    if ratio is None:
        return Check(expression.text, *place, old, new, None, None, None, CHANGE, Outcome.UNDECIDED)
    outcome = _outcome(expression, ratio.value, ratio.low, ratio.high)
    # A bound of nothing or of infinity says nothing; that nothing is left says all.
    low, high = (None if end in {None, 0.0, _INFINITE} else _change(end) for end in (ratio.low, ratio.high))
    return Check(expression.text, *place, old, new, _change(ratio.value), low, high, CHANGE, outcome)


def _change(ratio: float) -> float:
    return (ratio - 1) * 100


def _outcome(expression: Expression, value: float, low: float | None, high: float | None) -> Outcome:
    if not expression.is_beyond(value):
        return Outcome.KEPT
    nearest = low if expression.above else high
    if nearest is None:
        return Outcome.UNDECIDED
    return Outcome.MISSED if expression.is_beyond(nearest) else Outcome.NOISE


def _limits(level: Level, slo: Slo, text: str | None = None) -> Iterator[Check]:
    """Judge the steady part of a level by each condition of a limit."""
    if level.requests is None:
        return
    plateau = level.plateau
    # As in the tables: every request of a single stream counts.
    parts = EVERYTHING if level.selection is Selection.ALL else STEADY
    for found in judge(Columns(level.requests).in_parts(parts), slo, plateau.users).findings:
        # Percentiles are infinite among failures, and shares are of 1.
        unit, scale = ("ms", 1) if isinstance(found.condition, LatencyLimit) else ("%", 100)
        values = (found.observed, found.low, found.high)
        seen, low, high = (None if value is None or value == _INFINITE else value * scale for value in values)
        name = text or str(found.condition)
        outcome = _outcome_of(found, plateau)
        yield Check(name, plateau.tier, plateau.users, None, seen, seen, low, high, unit, outcome)


def _outcome_of(found: Finding, plateau: Plateau) -> Outcome:
    # However late the client was, a failure is the service's.
    if plateau.client_limited and not isinstance(found.condition, FailureLimit):
        return Outcome.LIMITED
    if found.verdict is Verdict.INCONCLUSIVE:
        return Outcome.UNDECIDED if found.low is None else Outcome.NOISE
    return Outcome.KEPT if found.verdict is Verdict.PASS else Outcome.MISSED
