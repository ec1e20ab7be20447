"""Mean and percentiles of raw values; they always carry their sample count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def percentile(ordered: Sequence[float], percent: float) -> float | None:
    """Value below which `percent` per cent of `ordered` (ascending) lies; None without samples.

    Linear interpolation between closest ranks: numpy's default, Hyndman and Fan (1996) type 7.
    """
    if not len(ordered):
        return None
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    share = position - below
    # An exact rank must not touch its neighbour: inf * 0 is not a number, and failures are infinitely late.
    if share == 0:
        return float(ordered[below])
    low, high = float(ordered[below]), float(ordered[below + 1])
    return low if low == high else low + (high - low) * share


@dataclass(frozen=True, slots=True)
class Summary:
    """What a set of values looked like. Every figure is None when `count` is 0."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary:
        """Summarise raw values in any order."""
        ordered = sorted(values)
        if not ordered:
            return cls(0, None, None, None, None, None)
        return cls(
            count=len(ordered),
            mean=math.fsum(ordered) / len(ordered),
            p50=percentile(ordered, 50),
            p95=percentile(ordered, 95),
            p99=percentile(ordered, 99),
            max=float(ordered[-1]),
        )
