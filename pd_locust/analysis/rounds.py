"""How far a level's numbers may be from the truth: a bootstrap over its rounds.

Requests of a closed loop come in waves, so single requests must not be resampled as if each were news. The
sample is cut into rounds (as many consecutive requests as there are users), and whole rounds are drawn with
replacement (block bootstrap: Kuensch 1989). The standard error that this gives, with Student's t for the few
rounds there are, makes the interval (Efron and Tibshirani 1993, ch. 12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pd_locust.analysis.levels import Selection
from pd_locust.judge import t_quantile
from pd_locust.record import Outcome, Part
from pd_locust.summary import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pd_locust.analysis.levels import Level

_SEED = 1_000
_RESAMPLES = 500
_CELLS = 4_000_000
"""Largest array to hold at once, in elements."""
_LEAST_ROUNDS, _MOST_ROUNDS = 4, 30
_LEAST_SAMPLE = 8
_LEAST_BEYOND = 20
"""Requests beyond a percentile without which its spread cannot be estimated: p99 needs 2,000, p95 400."""


@dataclass(frozen=True, slots=True)
class Measure:
    """`name` is the word in expressions and JSON. `column` of the records is None for rates."""

    name: str
    heading: str
    unit: str
    column: str | None
    statistic: str

    @property
    def higher_is_better(self) -> bool:
        """Rates are; latencies are not."""
        return self.column is None


def _latency(metric: str, statistic: str) -> Measure:
    return Measure(f"{metric}_{statistic}", f"{metric.upper()} {statistic}", "ms", f"{metric}_ms", statistic)


MEASURES = (
    *(_latency("ttft", statistic) for statistic in ("mean", "p50", "p95", "p99")),
    *(_latency("tpot", statistic) for statistic in ("mean", "p95")),
    *(_latency("e2e", statistic) for statistic in ("mean", "p95")),
    Measure("tok_s", "tok/s", "tok/s", None, "output_tokens"),
    Measure("req_s", "req/s", "req/s", None, "requests"),
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, the standard error of its logarithm (None without enough rounds), and the degrees of freedom."""

    value: float
    log_error: float | None
    degrees: int

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Where the true value lies."""
        if self.log_error is None:
            return None
        half = t_quantile((1 + confidence) / 2, self.degrees) * self.log_error
        return self.value * math.exp(-half), self.value * math.exp(half)


@dataclass(frozen=True, slots=True)
class Ratio:
    """New value / old value, with an interval where both have an error."""

    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, old: Estimate, new: Estimate, confidence: float) -> Ratio | None:
        """Divide; None where a value is 0."""
        if old.value <= 0 or new.value <= 0:
            return None
        if old.log_error is None or new.log_error is None:
            return cls(new.value / old.value, None, None)
        return cls.mean([(old, new)], confidence)

    @classmethod
    def mean(cls, pairs: Sequence[tuple[Estimate, Estimate]], confidence: float) -> Ratio:
        """Geometric mean of new / old over levels, each of which counts the same. All of them have errors."""
        value = math.exp(math.fsum(math.log(new.value / old.value) for old, new in pairs) / len(pairs))
        ends = [end for pair in pairs for end in pair]
        errors = [(end.log_error or 0.0) / len(pairs) for end in ends]
        error = math.hypot(*errors)
        # Welch (1947) and Satterthwaite (1946): samples of unequal spread.
        parts = math.fsum(one**4 / end.degrees for one, end in zip(errors, ends, strict=True))
        degrees = int(error**4 / parts) if parts else ends[0].degrees
        half = t_quantile((1 + confidence) / 2, max(1, degrees)) * error
        return cls(value, value * math.exp(-half), value * math.exp(half))


def estimates(level: Level) -> dict[str, Estimate]:
    """Return what can be said of a level, by the name of the measure; nothing without records."""
    rows = level.requests
    if rows is None:
        return {}
    # As in the tables: a single stream has no start-up wave, every request of it counts.
    sample = rows if level.selection is Selection.ALL else rows[rows["part"] == Part.SAMPLE]
    sample = sample[sample["outcome"] != Outcome.CUT]
    if len(sample) < 2:
        return {}
    rounds = _Rounds.of(len(sample), level.plateau.users or 1)
    good = (sample["outcome"] == Outcome.SUCCESS).to_numpy()
    sent_s = sample["sent_unix_us"].to_numpy() / 1e6
    found = {}
    for measure in MEASURES:
        if measure.column is None:
            tokens = sample["output_tokens"].to_numpy(float)
            amounts = np.nan_to_num(tokens) if measure.statistic == "output_tokens" else np.ones(len(sample))
            seen = _rate(np.where(good, amounts, 0.0), sent_s, rounds)
        else:
            values = sample[measure.column].to_numpy(float)
            present = good & ~np.isnan(values)
            seen = _statistic(measure.statistic, values[present], rounds.place[present], rounds.draws)
        if seen is not None:
            value, resampled = seen
            found[measure.name] = Estimate(
                value, _log_error(value, resampled, rounds.count), rounds.count - 1
            )
    return found


@dataclass(frozen=True, slots=True)
class _Rounds:
    """`count` rounds of `size` requests, the last with what is left over; `place` is each request's round.

    `draws` says for each resample how often it has each round; None when the sample is too small.
    """

    count: int
    size: int
    place: NDArray[np.int64]
    draws: NDArray[np.int64] | None

    @classmethod
    def of(cls, requests: int, users: int) -> _Rounds:
        # Whole turns of all users: with outputs of one length they keep their order, and a round of a turn
        # and a bit would start at another phase of it each time.
        turns = math.ceil(requests / _MOST_ROUNDS / users)
        size = min(turns * users, max(1, requests // min(_LEAST_ROUNDS, requests)))
        count = requests // size
        draws = None
        if requests >= _LEAST_SAMPLE:
            draws = np.random.default_rng(_SEED).multinomial(count, [1 / count] * count, size=_RESAMPLES)
        return cls(count, size, np.minimum(np.arange(requests) // size, count - 1), draws)


_Seen = tuple[float, "NDArray[np.float64] | None"]


def _statistic(
    statistic: str, values: NDArray[np.float64], place: NDArray[np.int64], draws: NDArray[np.int64] | None
) -> _Seen | None:
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    ordered, place = values[order], place[order]
    if statistic == "mean":
        value = float(values.mean())
        if draws is None:
            return value, None
        rounds = draws.shape[1]
        sums = np.bincount(place, weights=ordered, minlength=rounds)
        counts = np.bincount(place, minlength=rounds)
        return value, _divided(draws, sums, counts)
    percent = float(statistic[1:])
    value = percentile(ordered.tolist(), percent) or 0.0
    if draws is None or len(ordered) * (1 - percent / 100) < _LEAST_BEYOND:
        return value, None
    step = max(1, _CELLS // len(ordered))
    parts = [
        _percentiles(ordered, place, draws[at : at + step], percent) for at in range(0, len(draws), step)
    ]
    return value, np.concatenate(parts)


def _percentiles(
    ordered: NDArray[np.float64], place: NDArray[np.int64], draws: NDArray[np.int64], percent: float
) -> NDArray[np.float64]:
    """Percentile of every resample: each value counts as often as its round was drawn."""
    rounds = draws.shape[1]
    # How many of the smallest values are each round's; then a product gives every resample's ranks.
    ranks = np.cumsum(place == np.arange(rounds)[:, None], axis=1, dtype=np.float32)
    weights = draws.astype(np.float32) @ ranks
    below = (weights < weights[:, -1:] * np.float32(percent / 100)).sum(axis=1)
    resampled: NDArray[np.float64] = ordered[np.minimum(below, len(ordered) - 1)]
    return resampled


def _rate(amounts: NDArray[np.float64], sent_s: NDArray[np.float64], rounds: _Rounds) -> _Seen | None:
    """Amount per second: in a steady closed loop as much begins as ends, so a round's sendings are its clock."""
    whole = rounds.count * rounds.size
    # The last round ends where the next one begins, or would have begun, one mean gap after its last sending.
    end = sent_s[whole] if whole < len(sent_s) else sent_s[-1] + (sent_s[-1] - sent_s[0]) / (len(sent_s) - 1)
    lengths = np.diff(np.append(sent_s[: whole : rounds.size], end))
    totals = amounts[:whole].reshape(rounds.count, rounds.size).sum(axis=1)
    if lengths.sum() <= 0:
        return None
    value = float(totals.sum() / lengths.sum())
    return value, None if rounds.draws is None else _divided(rounds.draws, totals, lengths)


def _divided(draws: NDArray[np.int64], above: NDArray[Any], below: NDArray[Any]) -> NDArray[np.float64]:
    """Ratio of two sums over the rounds of every resample; a resample without anything below is left out."""
    sums: NDArray[np.float64] = (draws @ above).astype(float)
    weights: NDArray[np.float64] = (draws @ below).astype(float)
    there = weights > 0
    return sums[there] / weights[there]


def _log_error(value: float, resampled: NDArray[np.float64] | None, rounds: int) -> float | None:
    if resampled is None or not len(resampled) or value <= 0:
        return None
    # Nothing has no logarithm: where a resample drew only rounds of an outage, its spread is that of the value.
    spread = np.log(resampled).std() if resampled.min() > 0 else resampled.std() / value
    # A bootstrap of n has the spread of n, not of n - 1.
    return float(spread * math.sqrt(rounds / (rounds - 1)))
