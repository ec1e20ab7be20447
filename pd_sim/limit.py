"""Latency limits as the oracle reads them; a grammar of its own, so that a shared misreading cannot hide."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ACCEPTED = (
    "a limit is ttft, tpot or e2e, then _mean or _p50 to _p99.9, <=, and ms or s, as in 'ttft_mean<=500ms'"
)
_FORM = re.compile(r"\s*(ttft|tpot|e2e)_(mean|p[5-9]\d(?:\.\d+)?)\s*<=\s*(\d+(?:\.\d+)?)\s*(ms|s)\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound on one statistic (`mean`, or a percentile such as `p99`) of one latency."""

    latency: str
    statistic: str
    bound_ms: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read one limit; a ValueError says what is accepted."""
        form = _FORM.fullmatch(text)
        if form is None:
            raise ValueError(f"{text!r}: {ACCEPTED}")
        latency, statistic, bound, unit = form.groups()
        return cls(latency, statistic, float(bound) * (1000 if unit == "s" else 1))

    def allows(self, values_ms: Sequence[float]) -> bool:
        """Whether the statistic is within the bound; no values are never within it."""
        # A sum of exact model times may miss the bound by its last bits: 20 + 48 x 10 must be 500.
        return bool(values_ms) and self.observe(values_ms) <= self.bound_ms * (1 + 1e-9)

    def observe(self, values_ms: Sequence[float]) -> float:
        """Compute the statistic of at least one value."""
        if self.statistic == "mean":
            return math.fsum(values_ms) / len(values_ms)
        return percentile(values_ms, float(self.statistic[1:]))


def percentile(values: Sequence[float], percent: float) -> float:
    """Interpolate linearly between the two nearest ranks, of which the first is 0 % and the last 100 %."""
    ranked = sorted(values)
    position = (len(ranked) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (ranked[above] - ranked[below]) * (position - below)
