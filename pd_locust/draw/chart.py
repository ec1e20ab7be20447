"""A chart as a value: what is drawn and what can be read off it. Knows no SVG and no data frames."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pd_locust.slo import Verdict

# Beyond this ratio of largest to smallest a linear axis shows only the largest.
_LOG_FROM_RATIO = 30


@dataclass(frozen=True, slots=True)
class Point:
    """`tip` is what hovering says; `mark` is the shape of a verdict, None a dot; `label` stands beside it."""

    x: float
    y: float
    tip: str
    mark: Verdict | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """`style` is a CSS class; without `line` the points are a cloud, drawn as one path."""

    name: str
    style: str
    points: tuple[Point, ...]
    line: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the x axis with a label on top; `style` is a CSS class."""

    start: float
    stop: float
    label: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """`limit` is a line at that y, `band` an area as (x, low, high). `table` holds the numbers shown."""

    key: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    table: Any
    note: str = ""
    limit: tuple[float, str] | None = None
    band: tuple[tuple[float, float, float], ...] = ()
    spans: tuple[Span, ...] = ()
    y_range: tuple[float, float] | None = None
    wide: bool = False

    @property
    def marks(self) -> list[Verdict]:
        """Verdicts that are drawn, for the legend."""
        return sorted({point.mark for one in self.series for point in one.points if point.mark}, reverse=True)

    @property
    def x_axis(self) -> Axis:
        """From 0 to just beyond the last point or span."""
        values = [point.x for one in self.series for point in one.points] + [span.stop for span in self.spans]
        return Axis(0.0, (max(values, default=0.0) or 1.0) * 1.02, log=False)

    @property
    def y_axis(self) -> Axis:
        """Wide enough for all points, the limit and the band, unless `y_range` says otherwise."""
        if self.y_range:
            return Axis(*self.y_range, log=False)
        values = [point.y for one in self.series for point in one.points]
        values += [bound for _, low, high in self.band for bound in (low, high)]
        return Axis.over([*values, *([self.limit[0]] if self.limit else [])])


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`."""

    low: float
    high: float
    log: bool

    @classmethod
    def over(cls, values: Iterable[float]) -> Axis:
        """Begin at 0, or be logarithmic where the values spread too far for that; end at round numbers."""
        found = [value for value in values if math.isfinite(value)]
        positive = [value for value in found if value > 0]
        top = max(found, default=1.0) or 1.0
        if positive and top / min(positive) > _LOG_FROM_RATIO:
            return cls(_round(min(positive), up=False), _round(top, up=True), log=True)
        step = _step(top)
        return cls(0.0, math.ceil(round(top / step, 9)) * step, log=False)

    def share(self, value: float) -> float:
        """Place of a value: 0 at `low`, 1 at `high`."""
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)

    @property
    def ticks(self) -> list[float]:
        """Round numbers, at most nine."""
        if not self.log:
            step = _step(self.high - self.low)
            return [self.low + step * n for n in range(math.floor((self.high - self.low) / step * 1.001) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            ticks = [step * 10.0**decade for decade in decades for step in steps]
            ticks = [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]
            if len(ticks) <= 9:
                break
        return ticks


def _step(span: float) -> float:
    """Return the round step, 1, 2 or 5 times a power of ten, that cuts a span into four to nine parts."""
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    for factor, following in pairwise((1, 2, 5, 10)):
        if rough / power < math.sqrt(factor * following):
            return factor * power
    return 10 * power


def _round(value: float, *, up: bool) -> float:
    """Round to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = [factor * power for factor in (1, 2, 5, 10)]
    if up:
        return min(step for step in steps if step >= value * 0.999)
    return max(step for step in steps if step <= value * 1.001)
