"""From a level's sample to a verdict: an interval for every condition, and three answers.

Requests of a level come in waves, so neighbours are alike and their plain standard error is too small. The
sample is cut into batches of two rounds (a round is as many consecutive requests as there are users) or, when
that gives fewer, into four; Student's t over their means gives the interval (batch means: Law and Kelton, Simulation
Modeling and Analysis, ch. 9). A share also gets Wilson's score interval (1927), which does not collapse
when every batch says the same, and the wider of the two holds.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, stdev
from typing import TYPE_CHECKING, Any

from pd_locust.record import Outcome
from pd_locust.sample import Rows, Sample
from pd_locust.slo import AttainmentLimit, Condition, FailureLimit, LatencyLimit, Slo, Verdict
from pd_locust.summary import percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_CONFIDENCE = 0.95
# A level's sample grows in these steps until its verdict is clear, in rounds of one request a user. It is
# looked at after each, and each look gets its part of the error (Bonferroni).
_ROUNDS = (3, 5, 8, 12)
_LEAST_SAMPLES = (24, 40, 64, 96)
# In requests without a miss that are just enough to say that p95, say, keeps its limit. The first look needs
# none: it is for levels that miss by far.
_TIMES_ENOUGH = (0, 1, 2, 4)
LOOKS = len(_ROUNDS)
_LEAST_BATCHES = 4
_LEAST_SAMPLE = 8

_FINISHED = (Outcome.SUCCESS, Outcome.FAILURE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition, what was seen of it, and the interval that holds the truth at the given confidence.

    Latencies are in ms, shares of 1 otherwise. `low` and `high` are None when the sample is too small for
    an interval; `observed` is infinite when a percentile falls among the failures. `one_sided`: only one of `low` and
    `high` is known. `doubts` are codes of reasons why the interval may be too narrow.
    """

    condition: Condition
    observed: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    confidence: float = DEFAULT_CONFIDENCE
    one_sided: bool = False
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """FAIL if any condition fails, PASS if all pass, INCONCLUSIVE otherwise."""

    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def is_clear(self) -> bool:
        """Whether a larger sample is not needed."""
        return self.verdict is not Verdict.INCONCLUSIVE

    @property
    def primary(self) -> Finding | None:
        """The finding on the first latency limit."""
        return next((one for one in self.findings if isinstance(one.condition, LatencyLimit)), None)


def judge(
    sample: Sample | Sequence[Any],
    slo: Slo,
    users: int | None,
    confidence: float = DEFAULT_CONFIDENCE,
    *,
    looks: int = 1,
    client_error_ms: float = 0.0,
) -> Judgement:
    """Judge finished requests (cut ones are left out) that are in the order in which they were sent.

    A sample that grows until its verdict is clear is looked at up to `looks` times, and each look gets its part of
    the error (Bonferroni); a recorded level is looked at once. Latencies may be off by `client_error_ms`, the load
    generator's own lateness: their intervals are that much wider on both sides.
    """
    finished = (sample if isinstance(sample, Sample) else Rows(sample)).ended(*_FINISHED)
    if not len(finished):
        nothing = tuple(Finding(one, None, None, None, Verdict.INCONCLUSIVE) for one in slo.judged)
        return Judgement(Verdict.INCONCLUSIVE, nothing)
    alpha = (1 - confidence) / looks
    batches = _batches(finished, users)
    findings = tuple(
        replace(_widened(_find(condition, finished, batches, alpha), client_error_ms), confidence=1 - alpha)
        for condition in slo.judged
    )
    return Judgement(_worst([finding.verdict for finding in findings]), findings)


def sample_sizes(users: int, slo: Slo) -> list[int]:
    """Return the samples at which a level of so many users is looked at, ascending.

    A limit on p95 takes 119 requests at least, one on p99 618: fewer cannot bound so small a share.
    """
    enough = max((_enough_for(one) for one in slo.conditions), default=0)
    return [
        max(rounds * users, least, times * enough)
        for rounds, least, times in zip(_ROUNDS, _LEAST_SAMPLES, _TIMES_ENOUGH, strict=True)
    ]


def _enough_for(condition: Condition) -> int:
    """Requests of which none misses, so that Wilson's interval ends below the share that may: z^2 (1 - s) / s."""
    match condition:
        case LatencyLimit(percent=float(percent)):
            share = 1 - percent / 100
        case AttainmentLimit(at_least=at_least):
            share = 1 - at_least
        case _:
            return 0
    z = NormalDist().inv_cdf(1 - (1 - DEFAULT_CONFIDENCE) / LOOKS / 2)
    return math.ceil(z * z * (1 - share) / share) if share > 0 else 0


def judge_means(means_ms: Mapping[str, float | None], failed_share: float, slo: Slo) -> Verdict:
    """Judge a level of which only exact means, by metric, and the share of failures are known, without an interval.

    Anything but limits on those means and on failures is INCONCLUSIVE.
    """
    verdicts = []
    for condition in slo.judged:
        match condition:
            case LatencyLimit(request=request, statistic="mean") if (
                mean_ms := means_ms.get(request.metric)
            ) is not None:
                verdicts.append(Verdict.PASS if mean_ms <= request.limit_ms else Verdict.FAIL)
            case FailureLimit(at_most=at_most):
                verdicts.append(Verdict.PASS if failed_share <= at_most else Verdict.FAIL)
            case _:
                verdicts.append(Verdict.INCONCLUSIVE)
    return _worst(verdicts)


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        if verdict in verdicts:
            return verdict
    return Verdict.PASS


def _batches(finished: Sample, users: int | None) -> list[Sample]:
    """Cut into pairs of rounds of one request a user; into four parts when that gives fewer."""
    if len(finished) < _LEAST_SAMPLE:
        return []
    # Pairs, because a wave rarely begins where a batch does: with one round each, neighbours share a wave, and
    # up to twice as many levels whose true mean is on the limit get a verdict (benchmarks/verdict_coverage.py).
    count = max(_LEAST_BATCHES, len(finished) // max(1, 2 * (users or 1)))
    # A single user's requests need no rounds of one: 30 batches estimate their spread well enough.
    count = min(count, 30, len(finished) // 2)
    edges = [round(index * len(finished) / count) for index in range(count + 1)]
    return [finished[start:end] for start, end in itertools.pairwise(edges)]


def _find(condition: Condition, finished: Sample, batches: list[Sample], alpha: float) -> Finding:
    match condition:
        case LatencyLimit(statistic="mean"):
            return _find_mean(condition, finished, batches, alpha)
        case LatencyLimit():
            return _find_percentile(condition, finished, batches, alpha)
        case AttainmentLimit():
            return _find_attainment(condition, finished, batches, alpha)
        case FailureLimit():
            return _find_failures(condition, finished, alpha)


def _widened(finding: Finding, error_ms: float) -> Finding:
    limit = finding.condition
    if not error_ms or not isinstance(limit, LatencyLimit) or finding.low is None or finding.high is None:
        return finding
    low, high = max(0.0, finding.low - error_ms), finding.high + error_ms
    return replace(finding, low=low, high=high, verdict=_against(low, high, limit.request.limit_ms))


def _find_mean(limit: LatencyLimit, finished: Sample, batches: list[Sample], alpha: float) -> Finding:
    values = _values(limit, finished)
    if not values:
        # Nothing succeeded: the failure limit beside the mean says so.
        return Finding(limit, None, None, None, Verdict.INCONCLUSIVE)
    observed = fmean(values)
    means = [fmean(part) for batch in batches if (part := _values(limit, batch))]
    if len(means) < 2:
        return Finding(limit, observed, None, None, Verdict.INCONCLUSIVE)
    half = t_quantile(1 - alpha / 2, len(means) - 1) * stdev(means) / math.sqrt(len(means))
    low, high = max(0.0, observed - half), observed + half
    return Finding(limit, observed, low, high, _against(low, high, limit.request.limit_ms))


def _find_percentile(limit: LatencyLimit, finished: Sample, batches: list[Sample], alpha: float) -> Finding:
    column, limit_ms = limit.request.column, limit.request.limit_ms
    ordered = sorted(finished.latencies_ms(column))
    percent = limit.percent or 0.0
    observed = percentile(ordered, percent)
    if observed is None:
        return Finding(limit, None, None, None, Verdict.INCONCLUSIVE)
    # p95 is within the limit exactly when at most 5 % of requests are beyond it: a share has an interval
    # that needs no shape of the distribution.
    late = _share_interval(
        [[value > limit_ms for value in batch.latencies_ms(column)] for batch in batches], alpha
    )
    if late is None:
        return Finding(limit, observed, None, None, Verdict.INCONCLUSIVE)
    verdict = _against(*late, 1 - percent / 100)
    half_percent = 50 * (late[1] - late[0])
    low = percentile(ordered, max(0.0, percent - half_percent))
    high = percentile(ordered, min(100.0, percent + half_percent))
    return Finding(limit, observed, low, high, verdict)


def _find_attainment(
    limit: AttainmentLimit, finished: Sample, batches: list[Sample], alpha: float
) -> Finding:
    observed = sum(finished.met(limit.requests)) / len(finished)
    missed = _share_interval([[not met for met in batch.met(limit.requests)] for batch in batches], alpha)
    if missed is None:
        return Finding(limit, observed, None, None, Verdict.INCONCLUSIVE)
    return Finding(limit, observed, 1 - missed[1], 1 - missed[0], _against(*missed, 1 - limit.at_least))


def _find_failures(limit: FailureLimit, finished: Sample, alpha: float) -> Finding:
    observed = len(finished.ended(Outcome.FAILURE)) / len(finished)
    # Not by batches: failures that came in one burst are failures all the same.
    low, high = _wilson(observed, len(finished), alpha)
    # A rare failure needs hundreds of requests to be bounded: the share seen decides, unless it is over the
    # limit by so little that chance explains it.
    if observed <= limit.at_most:
        verdict = Verdict.PASS
    else:
        verdict = Verdict.FAIL if low > limit.at_most else Verdict.INCONCLUSIVE
    return Finding(limit, observed, low, high, verdict)


def _against(low: float, high: float, limit: float) -> Verdict:
    if high <= limit:
        return Verdict.PASS
    return Verdict.FAIL if low > limit else Verdict.INCONCLUSIVE


def _values(limit: LatencyLimit, finished: Sample) -> Sequence[float]:
    return finished.ended(Outcome.SUCCESS).values(limit.request.column)


def _share_interval(batches: Sequence[Sequence[bool]], alpha: float) -> tuple[float, float] | None:
    """Interval of the share of True: the wider of Wilson's, as if all were independent, and batch means."""
    filled = [batch for batch in batches if batch]
    if len(filled) < 2:
        return None
    count = sum(map(len, filled))
    share = sum(map(sum, filled)) / count
    low, high = _wilson(share, count, alpha)
    means = [fmean(batch) for batch in filled]
    spread = t_quantile(1 - alpha / 2, len(means) - 1) * stdev(means) / math.sqrt(len(means))
    return max(0.0, min(low, share - spread)), min(1.0, max(high, share + spread))


def _wilson(share: float, count: int, alpha: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf(1 - alpha / 2)
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t for probabilities above 1/2.

    Exact for 1 and 2 degrees of freedom, Hill's expansion beyond (Communications of the ACM 13, 1970,
    algorithm 396), good to five digits.
    """
    tail = 2 * (1 - probability)
    if degrees == 1:
        return 1 / math.tan(tail * math.pi / 2)
    if degrees == 2:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    n = float(degrees)
    a = 1 / (n - 0.5)
    b = 48 / (a * a)
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tail) ** (2 / n)
    if y > 0.05 + a:
        x = NormalDist().inv_cdf(tail / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (
            n + 1
        ) / (n + 2) + 1 / y
    return math.sqrt(n * y)
