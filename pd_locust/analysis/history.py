"""Levels from Locust's PREFIX_stats_history.csv alone: exact counts and means, windowed percentiles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pd_locust import warnings
from pd_locust.analysis.csvfile import read_csv
from pd_locust.analysis.levels import Kind, Level, Selection
from pd_locust.errors import HistoryError
from pd_locust.judge import Judgement, judge_means
from pd_locust.plateau import Plateau
from pd_locust.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pd_locust.slo import Slo
    from pd_locust.warnings import Doubt

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


# A slow ramp stays for seconds at every count without being a level.
_SHORTEST_S = 5

_PERCENTILE = re.compile(r"\d+(\.\d+)?%")
_COUNT, _FAILED, _MEAN_MS = "Total Request Count", "Total Failure Count", "Total Average Response Time"
_NEEDED = ("Timestamp", "User Count", "Type", "Name", _COUNT, _FAILED, _MEAN_MS)
_REMEDY = "it must be a PREFIX_stats_history.csv as Locust wrote it (--csv PREFIX --csv-full-history)"

# From, to and step of Locust's own rounding (stats.bucket_response_time), the coarsest that a file can have.
_BUCKETS = (
    (0, 100, 1, "below 100 ms"),
    (100, 1_000, 10, "from 100 ms"),
    (1_000, 10_000, 100, "from 1 s"),
    (10_000, float("inf"), 1_000, "from 10 s"),
)


@dataclass(frozen=True, slots=True)
class History:
    """The file as `frame`, its times of writing, a second apart, as `seconds`: time_s, users, run, plateau.

    `run` rises whenever counts fall: the test was started anew or its statistics were reset. `plateau`
    numbers the stretches of constant User Count.
    """

    frame: pd.DataFrame
    seconds: pd.DataFrame
    percentiles: list[str]
    doubts: list[Doubt]

    @classmethod
    def load(cls, path: Path) -> History:
        """Read the file. Raises HistoryError when it has no TTFT rows or is not a history."""
        frame, cut = read_csv(
            path,
            needed=_NEEDED,
            texts=("Type", "Name"),
            filled="Total Average Content Size",
            keep=lambda name: bool(_PERCENTILE.fullmatch(name)),
            remedy=_REMEDY,
        )
        if not (frame["Type"] == TTFT).any():
            raise HistoryError(f"{path}: no TTFT rows; run locust with --csv-full-history")
        # The Aggregated row, the only one without a type, ends what is written at one time.
        frame["second"] = frame["Type"].isna().shift(fill_value=False).cumsum()
        by_second = frame.groupby("second")
        seconds = pd.DataFrame(
            {
                "time_s": by_second["Timestamp"].first(),
                "users": by_second["User Count"].first(),
                "run": (by_second[_COUNT].last().diff() < 0).cumsum() + 1,
            }
        )
        place = seconds[["run", "users"]]
        seconds["plateau"] = (place != place.shift()).any(axis=1).cumsum()
        percentiles = [name for name in frame.columns if _PERCENTILE.fullmatch(name)]
        return cls(frame, seconds, percentiles, [cut] if cut else [])

    def levels(self, slo: Slo) -> list[Level]:
        """Judge every plateau, tier by tier, in the order of time; with one user it is a single stream."""
        tiers = self.frame.loc[self.frame["Type"] == TTFT, "Name"].unique()
        stays = [stay for tier in tiers for stay in self._stays(tier)]
        return [
            Level(
                run=stay.run,
                kind=Kind.SINGLE if stay.users == 1 else Kind.STREAM,
                selection=Selection.ALL if stay.users == 1 else Selection.STEADY,
                plateau=stay.judge(slo),
                alone=not any(stay.overlaps(other) for other in stays),
            )
            for stay in sorted(stays, key=lambda stay: stay.start_s)
        ]

    def notes(self, ended_unix_s: Sequence[float]) -> list[str]:
        """Say what these numbers are and are not; `ended_unix_s` are the ends of the runs, where known."""
        last_s = float(self.seconds["time_s"].iloc[-1])
        missing_s = max(ended_unix_s, default=last_s) - last_s
        missing = f"the last {missing_s:.1f} s" if missing_s > 0 else "up to a second"
        exact = (
            "counts and means are exact, of what ended between the first and the last row of a plateau; "
            "up to 1 s at its edges is in no number (with workers up to 3 s, or in the next plateau)"
        )
        end = (
            f"the history ends at {datetime.fromtimestamp(last_s, UTC):%Y-%m-%d %H:%M:%S} UTC: {missing} "
            "of the run came after its last row and cannot be seen"
        )
        windows = (
            f"percentiles are medians over Locust's windows of about {WINDOW_S} s within the plateau, "
            f"in steps of {self._resolution()}; limits on them are not judged"
        )
        short = f"plateaus shorter than {_SHORTEST_S} s are left out"
        failed = "E2E latencies are n/a after the first failure: Locust averages failures with successes"
        return [exact, end, windows, short, *([failed] if self.frame[_FAILED].any() else [])]

    def _stays(self, tier: str) -> Iterator[Stay]:
        series = {kind: self._series(kind, tier) for kind in (TTFT, TPOT, E2E)}
        ended = series[TTFT]["count"] + series[E2E]["count"]
        for _, rows in self.seconds[self.seconds["users"] > 0].groupby("plateau"):
            moves = np.flatnonzero(ended.loc[rows.index].diff() > 0)
            if not len(moves):
                continue
            # Users may have held another tier for a part of the plateau: only while this one's counts moved.
            held = rows.iloc[moves[0] - 1 : moves[-1] + 1]
            start_s, stop_s = float(held["time_s"].iloc[0]), float(held["time_s"].iloc[-1])
            if stop_s - start_s >= _SHORTEST_S:
                yield Stay(
                    tier=tier,
                    run=int(held["run"].iloc[0]),
                    users=int(held["users"].iloc[0]),
                    start_s=start_s,
                    stop_s=stop_s,
                    rows={kind: values.loc[held.index] for kind, values in series.items()},
                    in_window=held["time_s"] - WINDOW_S >= start_s,
                )

    def _series(self, kind: str, tier: str) -> pd.DataFrame:
        """Return cumulative `count`, `failed` and `total_ms` of one entry, and its percentiles, by second."""
        chosen = self.frame[(self.frame["Type"] == kind) & (self.frame["Name"] == tier)]
        found = chosen.set_index("second").reindex(self.seconds.index)
        totals = pd.DataFrame(
            {"count": found[_COUNT], "failed": found[_FAILED], "total_ms": found[_COUNT] * found[_MEAN_MS]}
        )
        # No row means nothing new, and every run starts from nothing.
        totals = totals.groupby(self.seconds["run"]).ffill().fillna(0)
        # Locust writes 0 when nothing ended in the window.
        return totals.join(found[self.percentiles].replace(0, np.nan))

    def _resolution(self) -> str:
        """Coarsest step that the file's percentiles are multiples of: Locust's rounding, or a finer one."""
        columns = self.frame.loc[self.frame["Type"].isin([TTFT, TPOT]), self.percentiles]
        values = columns.to_numpy(dtype=float, na_value=np.nan).ravel()
        steps = [
            f"{_step_ms(band_ms, coarsest_ms):g} ms {where}"
            for low_ms, high_ms, coarsest_ms, where in _BUCKETS
            if len(band_ms := values[(values > 0) & (values >= low_ms) & (values < high_ms)])
        ]
        return ", ".join(steps) or "nothing"


def _step_ms(values_ms: np.ndarray, coarsest_ms: float) -> float:
    step_ms = coarsest_ms
    while step_ms > 1e-3 and np.abs(np.round(values_ms / step_ms) * step_ms - values_ms).max() > 1e-6:
        step_ms /= 10
    return step_ms
