"""One tier's stay at one User Count, as Locust's history shows it, and the plateau that it amounts to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pd_locust import warnings
from pd_locust.analysis.level import Kind
from pd_locust.judgement import Judgement, judge_means
from pd_locust.plateau import Plateau
from pd_locust.summary import Summary

if TYPE_CHECKING:
    import pandas as pd

    from pd_locust.slo import Slo

# Values of Locust's Type column. TTFT and TPOT are told of successes only, POST of every request.
TTFT, TPOT, E2E = "TTFT", "TPOT", "POST"

# Locust's CURRENT_RESPONSE_TIME_PERCENTILE_WINDOW. A window that began before the stay describes both.
WINDOW_S = 10

_NOTHING = Summary.of(())


@dataclass(frozen=True, slots=True)
class Stay:
    """`rows` has, by Type, cumulative `count`, `failed`, `total_ms` and the percentiles, second by second.

    What ended after the first and up to the last row is the stay's; `in_window` marks the rows whose
    percentiles are of nothing else.
    """

    tier: str
    run: int
    users: int
    start_s: float
    stop_s: float
    rows: dict[str, pd.DataFrame]
    in_window: pd.Series[bool]

    def overlaps(self, other: Stay) -> bool:
        """Whether `other` is another tier that was under load meanwhile."""
        return other.tier != self.tier and self.start_s < other.stop_s and other.start_s < self.stop_s

    def judge(self, slo: Slo) -> Plateau:
        """Return what the history shows as a plateau; what it does not record is None."""
        ttft, tpot, e2e = (self._summary(kind) for kind in (TTFT, TPOT, E2E))
        failed = int(self._grown(E2E, "failed"))
        # Another locustfile may call its requests something else than POST; then TTFT counts the successes.
        finished = int(self._grown(E2E, "count")) or ttft.count
        means_ms = {"ttft": ttft.mean, "tpot": tpot.mean, "e2e": e2e.mean}
        where = f"{self.tier} at {self.users} users"
        return Plateau(
            phase=Kind.STREAM,
            tier=self.tier,
            users=self.users,
            successes=finished - failed,
            failed=failed,
            cut=0,
            ttft=ttft,
            ttfo=_NOTHING,
            ttst=_NOTHING,
            tpot=tpot,
            itl_p99=_NOTHING,
            e2e=e2e,
            prompt_tokens=None,
            cached_share=None,
            output_tokens=None,
            stream_tok_s=None,
            window_s=self.stop_s - self.start_s,
            concurrency=None,
            request_rate=finished / (self.stop_s - self.start_s),
            output_tok_s=None,
            little_residual=None,
            loop_lag_p50_ms=None,
            loop_lag_p99_ms=None,
            loop_lag_max_ms=None,
            client_cpu_share=None,
            shared_reads_share=None,
            attainment=None,
            goodput=None,
            slo=slo,
            # A percentile that Locust rounded is no ground for a verdict: its 500 ms may have been 504.
            judgement=Judgement(judge_means(means_ms, failed / finished if finished else 0.0, slo), ()),
            doubts=(warnings.failures(where, failed, finished),) if failed else (),
        )

    def _grown(self, kind: str, column: str) -> float:
        values = self.rows[kind][column]
        return float(values.iloc[-1] - values.iloc[0])

    def _summary(self, kind: str) -> Summary:
        """Count and mean, exact; percentiles None where no window lies within the stay."""
        rows, count = self.rows[kind], int(self._grown(kind, "count"))
        # A failure's latency, or its lack of one, is averaged with the successes: no mean can be told.
        if not count or rows["failed"].iloc[-1]:
            return _NOTHING
        windows = rows[self.in_window]
        p50, p95, p99 = (_median(windows, name) for name in ("50%", "95%", "99%"))
        return Summary(count, self._grown(kind, "total_ms") / count, p50, p95, p99, None)


def _median(windows: pd.DataFrame, name: str) -> float | None:
    # Which percentiles there are depends on Locust's PERCENTILES_TO_REPORT.
    known = windows[name].dropna().to_list() if name in windows else []
    return Summary.of(known).p50
