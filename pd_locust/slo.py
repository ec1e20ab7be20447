"""Latency limits: how they are written, and the three verdicts on them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pd_locust.errors import ConfigError
from pd_locust.summary import percentile

METRICS = ("ttft", "ttfo", "ttst", "tpot", "e2e")
_LIMIT = re.compile(
    rf"\s*(?P<metric>{'|'.join(METRICS)})_(?P<statistic>mean|p\d{{1,2}}(?:\.\d+)?)"
    r"\s*<=\s*(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>ms|s)\s*"
)


class Verdict(StrEnum):
    """No samples, or a doubtful generator, is INCONCLUSIVE; it is never a PASS."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Slo:
    """One limit on one statistic of one latency, e.g. mean TTFT at most 500 ms."""

    metric: str
    statistic: str
    limit_ms: float

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read `ttft_mean<=500ms`, `tpot_p99<=20ms`, `e2e_p95<=3s`; anything else says what is accepted."""
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"limit {text!r}: expected METRIC_STATISTIC<=NUMBERms, with METRIC one of {', '.join(METRICS)} "
                "and STATISTIC mean or p50 to p99.9, for example 'ttft_mean<=500ms'"
            )
        limit_ms = float(match["value"]) * (1000 if match["unit"] == "s" else 1)
        return cls(match["metric"], match["statistic"], limit_ms)

    def __str__(self) -> str:
        return f"{self.metric}_{self.statistic}<={self.limit_ms:g}ms"

    @property
    def percent(self) -> float | None:
        """The percentile asked for, or None for the mean."""
        return None if self.statistic == "mean" else float(self.statistic[1:])

    def observe(self, successes_ms: Sequence[float], failed: int) -> float | None:
        """Return the judged statistic; for a percentile every failed request counts as infinitely late."""
        if self.percent is None:
            return math.fsum(successes_ms) / len(successes_ms) if len(successes_ms) else None
        return percentile([*sorted(successes_ms), *([math.inf] * failed)], self.percent)

    def judge(self, successes_ms: Sequence[float], failed: int, max_failure_ratio: float = 0.01) -> Verdict:
        """PASS, FAIL or, without any finished request, INCONCLUSIVE.

        Beside a mean, which cannot hold a failure, the share of failed requests has its own limit.
        """
        finished = len(successes_ms) + failed
        if not finished:
            return Verdict.INCONCLUSIVE
        observed_ms = self.observe(successes_ms, failed)
        if observed_ms is None or observed_ms > self.limit_ms:
            return Verdict.FAIL
        if self.percent is None and failed / finished > max_failure_ratio:
            return Verdict.FAIL
        return Verdict.PASS


DEFAULT_SLO = Slo("ttft", "mean", 500.0)
