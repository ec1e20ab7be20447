"""Limits: how they are written, and what they ask of a single request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pd_locust.errors import ConfigError

METRICS = ("ttft", "ttfo", "ttst", "tpot", "itl", "e2e")
_ATTRIBUTES = {metric: f"{metric}_ms" for metric in METRICS} | {"itl": "itl_p99_ms"}
_ABSENT_IN_ONE_TOKEN = frozenset({"ttst", "tpot", "itl"})
DEFAULT_FAILURE_SHARE = 0.01

_METRIC = rf"(?P<metric>{'|'.join(METRICS)})"
_VALUE = r"\s*<=\s*(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>ms|s)"
_LATENCY = re.compile(rf"{_METRIC}_(?P<statistic>mean|p\d{{1,2}}(?:\.\d+)?){_VALUE}")
_REQUEST = re.compile(rf"{_METRIC}{_VALUE}")
_FAILURES = re.compile(r"failures\s*<=\s*(?P<percent>\d+(?:\.\d+)?)\s*%")
_ATTAINMENT = re.compile(r"attainment\((?P<limits>[^()]*)\)\s*>=\s*(?P<percent>\d+(?:\.\d+)?)\s*%")
_ACCEPTED = (
    f"METRIC_STATISTIC<=NUMBERms with METRIC one of {', '.join(METRICS)} and STATISTIC mean or p50 to p99.9; "
    "attainment(METRIC<=NUMBERms, ...)>=NUMBER%; failures<=NUMBER%; several joined by 'and'"
)


class Verdict(StrEnum):
    """No samples, or a doubtful generator, is INCONCLUSIVE; it is never a PASS."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class RequestLimit:
    """What one request must keep. `itl` is the request's own 99th percentile of gaps between chunks."""

    metric: str
    limit_ms: float

    @property
    def column(self) -> str:
        """Name of the metric in a record."""
        return _ATTRIBUTES[self.metric]

    @property
    def absent_is_met(self) -> bool:
        """Whether a successful request may lack the metric: an answer of one token has no pace to keep."""
        return self.metric in _ABSENT_IN_ONE_TOKEN

    def value_ms(self, row: Any) -> float | None:
        """Read the metric from a record."""
        value: float | None = getattr(row, self.column)
        return value

    def is_met(self, row: Any) -> bool:
        """Whether a successful request kept the limit.

        An answer of one token has no pace to keep; an answer that never came (TTFO) is a miss.
        """
        value = self.value_ms(row)
        return self.absent_is_met if value is None else value <= self.limit_ms

    def __str__(self) -> str:
        return f"{self.metric}<={self.limit_ms:g}ms"


@dataclass(frozen=True, slots=True)
class LatencyLimit:
    """A limit on the mean or on a percentile of one latency."""

    request: RequestLimit
    statistic: str

    @property
    def percent(self) -> float | None:
        """The percentile, or None for the mean."""
        return None if self.statistic == "mean" else float(self.statistic[1:])

    def __str__(self) -> str:
        return f"{self.request.metric}_{self.statistic}<={self.request.limit_ms:g}ms"


@dataclass(frozen=True, slots=True)
class AttainmentLimit:
    """At least this share of finished requests keeps all of `requests`; a failed one keeps none."""

    requests: tuple[RequestLimit, ...]
    at_least: float

    def __str__(self) -> str:
        return f"attainment({', '.join(map(str, self.requests))})>={self.at_least * 100:g}%"


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """At most this share of finished requests fails."""

    at_most: float

    def __str__(self) -> str:
        return f"failures<={self.at_most * 100:g}%"


Condition = LatencyLimit | AttainmentLimit | FailureLimit


@dataclass(frozen=True, slots=True)
class Slo:
    """Conditions that must all hold.

    A mean cannot hold a failed request, so a limit on a mean brings `failures<=1%` with it unless the
    share is given. Percentiles and attainment count a failed request as infinitely late.
    """

    conditions: tuple[Condition, ...]

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read `ttft_mean<=500ms`, `ttft_p95<=800ms and tpot_mean<=20ms`, `attainment(ttft<=1s)>=99%`.

        Raises ConfigError naming the part that is wrong and what is accepted.
        """
        return cls(tuple(_condition(part.strip(), text) for part in re.split(r"\s+and\s+", text.strip())))

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))

    @property
    def judged(self) -> tuple[Condition, ...]:
        """Conditions, with the failure limit that a mean implies."""
        means = any(isinstance(one, LatencyLimit) and one.percent is None for one in self.conditions)
        if means and not any(isinstance(one, FailureLimit) for one in self.conditions):
            return (*self.conditions, FailureLimit(DEFAULT_FAILURE_SHARE))
        return self.conditions

    @property
    def request_limits(self) -> tuple[RequestLimit, ...]:
        """What a single request must keep to count as good: every latency limit, taken for itself."""
        limits: list[RequestLimit] = []
        for condition in self.conditions:
            if isinstance(condition, LatencyLimit):
                limits.append(condition.request)
            elif isinstance(condition, AttainmentLimit):
                limits += condition.requests
        return tuple(limits)

    @property
    def primary(self) -> LatencyLimit | None:
        """The first limit on a latency's statistic: the one that tables and curves are drawn against."""
        return next((one for one in self.conditions if isinstance(one, LatencyLimit)), None)


def _condition(part: str, whole: str) -> Condition:
    if match := _LATENCY.fullmatch(part):
        return LatencyLimit(_request(match, whole), match["statistic"])
    if match := _FAILURES.fullmatch(part):
        return FailureLimit(_share(match["percent"], whole))
    if match := _ATTAINMENT.fullmatch(part):
        requests = [_REQUEST.fullmatch(one.strip()) for one in match["limits"].split(",")]
        if all(requests):
            limits = tuple(_request(found, whole) for found in requests if found)
            return AttainmentLimit(limits, _share(match["percent"], whole))
    raise ConfigError(f"limit {whole!r}: {part!r} is not understood; expected {_ACCEPTED}")


def _request(match: re.Match[str], whole: str) -> RequestLimit:
    limit_ms = float(match["value"]) * (1000 if match["unit"] == "s" else 1)
    if not limit_ms:
        raise ConfigError(f"limit {whole!r}: a latency of 0 is kept by no request")
    return RequestLimit(match["metric"], limit_ms)


def _share(percent: str, whole: str) -> float:
    share = float(percent) / 100
    if share > 1:
        raise ConfigError(f"limit {whole!r}: a share is at most 100 %")
    return share


DEFAULT_SLO = Slo.parse("ttft_mean<=500ms")
