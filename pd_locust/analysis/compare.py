"""Two runs of the same protocol side by side: ratios with intervals, and what may be concluded from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pd_locust.analysis.levels import Kind, Level, Selection
from pd_locust.analysis.rounds import MEASURES, Estimate, Measure, Ratio, estimates
from pd_locust.capacity import CapacityRow, with_headroom
from pd_locust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pd_locust.analysis.report import Report

_CONFIDENCE = 0.95
LEAST_DIFFERENCE = 0.01
"""What differs between two runs of one deployment (which users happen to start together, clocks, neighbours)
stays the same within each, so no resampling of a run can show it. Differences below this are never called."""
KNEE_SHARE = 0.8
"""Of the capacity. Beyond it a queue forms and empties, and TTFT differs between equal runs by tens of per cent."""

Place = tuple[Kind, str, int]
"""What a level was for, its tier and its users."""


class Finding(StrEnum):
    """What a ratio says. A rate that is higher is faster."""

    FASTER = "faster"
    SLOWER = "slower"
    MORE = "more users"
    FEWER = "fewer users"
    SAME = "no difference that this sample can show"
    KNEE = "at the knee, not judged"
    LIMITED = "limited by the load generator, not judged"


_NOT_JUDGED = (Finding.LIMITED, Finding.KNEE)


@dataclass(frozen=True, slots=True)
class Line:
    """One measure at one level in two runs."""

    place: Place
    measure: Measure
    old: Estimate
    new: Estimate
    ratio: Ratio
    finding: Finding


@dataclass(frozen=True, slots=True)
class Average:
    """One measure of a tier over all `levels` that have an interval: what single levels are too short to show.

    Latencies leave out the levels at the knee, and all measures those that the load generator limited. `ratio` is
    None, and `levels` 0, where that leaves none.
    """

    tier: str
    measure: Measure
    levels: int
    ratio: Ratio | None
    finding: Finding


@dataclass(frozen=True, slots=True)
class CapacityLine:
    """Largest passing level in two runs; the bounds of `ratio` are the brackets' (largest PASS, smallest FAIL).

    `ratio` is None where no level passed in the old run.
    """

    tier: str
    old: CapacityRow
    new: CapacityRow
    ratio: Ratio | None
    finding: Finding


@dataclass(frozen=True, slots=True)
class FailedShares:
    """A level of which requests failed in one run or in both: latencies and their ratios are of successes only."""

    place: Place
    old: float
    new: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """`differences` are facts of the runs that are not the same, as (name, old, new)."""

    old: Report
    new: Report
    differences: tuple[tuple[str, str, str], ...]
    capacities: tuple[CapacityLine, ...]
    averages: tuple[Average, ...]
    lines: tuple[Line, ...]
    failures: tuple[FailedShares, ...]


def compare(old: Report, new: Report) -> Comparison:
    """Compare level by level; all intervals together hold with 95 % (Bonferroni).

    Raises ConfigError when the runs are not alike or have no level in common.
    """
    refuse_unlike(old, new)
    capacities = tuple(_capacities(old, new))
    olds, news = levels_by_place(old), levels_by_place(new)
    common = [place for place in olds if place in news]
    if not common and not capacities:
        raise ConfigError(
            f"{old.prefix} and {new.prefix} have no level in common: hold the same ones in both"
        )
    pairs = [
        (place, measure, seen[measure.name], other[measure.name])
        for place in common
        for seen, other in [(estimates(olds[place]), estimates(news[place]))]
        for measure in MEASURES
        if measure.name in seen and measure.name in other
    ]
    tiers = {place[1] for place in common}
    confidence = 1 - (1 - _CONFIDENCE) / max(1, len(pairs) + len(tiers) * len(MEASURES))
    limited = {place for place in common if any(held[place].plateau.client_limited for held in (olds, news))}
    lines = [
        Line(
            place,
            measure,
            one,
            other,
            ratio,
            Finding.LIMITED if place in limited else _finding(ratio, measure, place, (old, new)),
        )
        for place, measure, one, other in pairs
        if (ratio := Ratio.of(one, other, confidence))
    ]
    failures = [
        FailedShares(place, *(_failed_share(held[place]) for held in (olds, news))) for place in common
    ]
    return Comparison(
        old,
        new,
        tuple(_differences(old, new)),
        capacities,
        tuple(_averages(lines, confidence)),
        tuple(lines),
        tuple(one for one in failures if one.old or one.new),
    )


def _failed_share(level: Level) -> float:
    seen = level.plateau
    return seen.failed / seen.finished if seen.finished else 0.0


def levels_by_place(report: Report) -> dict[Place, Level]:
    """Return the levels that a comparison speaks of; of those held several times the one with most requests."""
    found: dict[Place, Level] = {}
    for level in report.held:
        steady = level.kind is not Kind.CONCURRENCY or level.selection is Selection.STEADY
        if steady and level.requests is not None and level.plateau.users:
            place = (level.kind, level.plateau.tier, level.plateau.users)
            if place not in found or level.plateau.finished > found[place].plateau.finished:
                found[place] = level
    return found


def below_knee(place: Place, report: Report) -> bool:
    """Whether a level is at most 80 % of its tier's capacity in this run, or the capacity is not known.

    It is known when a level failed: a run that holds one fixed level, as in CI, says nothing of the knee.
    """
    _, tier, users = place
    capacity = next((row.max_concurrency for row in report.found if row.tier == tier and row.worst), None)
    return capacity is None or users <= max(1, with_headroom(capacity, 1 - KNEE_SHARE))


def refuse_unlike(old: Report, new: Report) -> None:
    """Raise ConfigError for runs whose numbers mean different things."""
    for report in (old, new):
        if report.source != "requests":
            raise ConfigError(
                f"{report.prefix}: comparing needs every request (PREFIX_requests.csv), not a history"
            )
    if str(old.slo) != str(new.slo):
        raise ConfigError(
            f"unlike runs: {old.prefix} was judged by {old.slo}, {new.prefix} by {new.slo}; "
            "record both with one --pd-slo, or compare them with --slo"
        )
    tiers = {report.prefix: report.run.tiers for report in (old, new)}
    olds, news = tiers[old.prefix], tiers[new.prefix]
    for name in olds.keys() & news.keys():
        if olds[name] != news[name]:
            raise ConfigError(
                f"unlike runs: tier {name} is {_lengths(olds[name])} in {old.prefix} and {_lengths(news[name])} in "
                f"{new.prefix}; only runs of equal lengths can be compared"
            )


def _lengths(tier: tuple[int, int | None]) -> str:
    return f"{tier[0]} tokens in, {'?' if tier[1] is None else tier[1]} out"


def _finding(ratio: Ratio, measure: Measure, place: Place, reports: Sequence[Report]) -> Finding:
    if not measure.name.startswith(("tpot", "tok_s", "req_s")) and not all(
        below_knee(place, one) for one in reports
    ):
        return Finding.KNEE
    return _called(ratio, *_names(measure))


def _names(measure: Measure) -> tuple[Finding, Finding]:
    """What it is called when the new value is higher, and when it is lower."""
    return (Finding.FASTER, Finding.SLOWER) if measure.higher_is_better else (Finding.SLOWER, Finding.FASTER)


def _averages(lines: Sequence[Line], confidence: float) -> Iterator[Average]:
    for tier in dict.fromkeys(line.place[1] for line in lines):
        for measure in MEASURES:
            its = [line for line in lines if line.place[1] == tier and line.measure is measure]
            judged = [line for line in its if line.finding not in _NOT_JUDGED]
            pairs = [(line.old, line.new) for line in judged if line.ratio.low is not None]
            if pairs:
                ratio = Ratio.mean(pairs, confidence)
                yield Average(tier, measure, len(pairs), ratio, _called(ratio, *_names(measure)))
            elif its:
                yield Average(tier, measure, 0, None, Finding.SAME if judged else its[0].finding)


def _called(ratio: Ratio, above: Finding, below: Finding) -> Finding:
    if ratio.low is not None and ratio.low > 1 + LEAST_DIFFERENCE:
        return above
    if ratio.high is not None and ratio.high < 1 - LEAST_DIFFERENCE:
        return below
    return Finding.SAME


def _capacities(old: Report, new: Report) -> Iterator[CapacityLine]:
    news = {row.tier: row for row in new.found}
    for row in old.found:
        other = news.get(row.tier)
        if other is None or not (row.is_known and other.is_known):
            continue
        if not (row.max_concurrency or other.max_concurrency):
            continue
        ratio = _capacity_ratio(row, other)
        finding = _called(ratio, Finding.MORE, Finding.FEWER)
        yield CapacityLine(row.tier, row, other, ratio if row.max_concurrency else None, finding)


def _capacity_ratio(old: CapacityRow, new: CapacityRow) -> Ratio:
    """The true capacities lie between the largest level that passed and the smallest that failed."""
    passed, missed = new.max_concurrency or 0, new.missed_above
    low = passed / old.missed_above if old.missed_above else None
    if not old.max_concurrency:
        return Ratio(math.inf, low, None)
    return Ratio(passed / old.max_concurrency, low, missed / old.max_concurrency if missed else None)


def _differences(old: Report, new: Report) -> Iterator[tuple[str, str, str]]:
    """Labels first: they are what the user changed on purpose."""
    for name in ("labels", "target", "ignore_eos", "versions", "host"):
        seen, other = old.run.document.get(name), new.run.document.get(name)
        if isinstance(seen, dict) and isinstance(other, dict):
            for key in dict.fromkeys((*seen, *other)):
                if seen.get(key) != other.get(key):
                    yield key, str(seen.get(key, "")), str(other.get(key, ""))
        elif seen != other:
            yield name, str(seen), str(other)
