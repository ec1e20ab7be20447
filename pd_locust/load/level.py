"""One concurrency of one tier while it is under load: exact percentiles, a window, a curve. Knows no clock."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pd_locust.plateau import EVERYTHING, STEADY, Plateau
from pd_locust.record import Outcome, Part
from pd_locust.summary import Summary

if TYPE_CHECKING:
    from pd_locust.record import RequestRecord
    from pd_locust.slo import Slo

WINDOW_S = 30.0
_WINDOW_ROWS = 1_200
# A plateau of as many takes two milliseconds, in which no stream is read: enough for doubts.
_DOUBTED_ROWS = 250
_SAMPLE_VALUES = 10_000
_BUCKETS = 240
_SHORTEST_RATE_S = 3.0


class Values:
    """The last _SAMPLE_VALUES values of a sample, always in order."""

    def __init__(self) -> None:
        self._ordered: list[float] = []
        self._in_turn: deque[float] = deque()

    def add(self, value: float) -> None:
        """Put a value in its place; the oldest makes room."""
        insort(self._ordered, value)
        self._in_turn.append(value)
        if len(self._in_turn) > _SAMPLE_VALUES:
            del self._ordered[bisect_left(self._ordered, self._in_turn.popleft())]

    def summary(self) -> Summary:
        """Exact figures of what is kept."""
        return Summary.of(self._ordered)


class Level:
    """One concurrency of one tier. `sample` is what percentiles are taken from, as everywhere."""

    def __init__(self, tier: str, phase: str, users: int | None) -> None:
        self.tier, self.phase, self.users = tier, phase, users
        self.sampled = self.failed = self.before_sample = 0
        self._ttft, self._tpot = Values(), Values()
        self._recent: deque[tuple[float, RequestRecord]] = deque(maxlen=_WINDOW_ROWS)
        self._first_s: float | None = None

    def take(self, record: RequestRecord, at_s: float) -> None:
        """Note a request that finished at `at_s`."""
        self._first_s = at_s if self._first_s is None else self._first_s
        self._recent.append((at_s, record))
        if record.part is not Part.SAMPLE:
            self.before_sample += 1
            return
        self.sampled += 1
        if record.outcome is Outcome.FAILURE:
            self.failed += 1
            return
        if record.ttft_ms is not None:
            self._ttft.add(record.ttft_ms)
        if record.tpot_ms is not None:
            self._tpot.add(record.tpot_ms)

    def to_json(self) -> dict[str, Any]:
        """Figures of the sample so far."""
        return {
            "phase": self.phase,
            "users": self.users,
            "sampled": self.sampled,
            "failed": self.failed,
            "before_sample": self.before_sample,
            "ttft_ms": asdict(self._ttft.summary()),
            "tpot_ms": asdict(self._tpot.summary()),
        }

    def window(self, now_s: float, slo: Slo) -> dict[str, Any]:
        """Figures of the last WINDOW_S seconds of this level, or of its last _WINDOW_ROWS requests.

        Latencies are of the sample, or of whatever finished while there is no sample; rates count whatever
        finished.
        """
        rows = self._rows_since(now_s - WINDOW_S)
        since_s = max(now_s - WINDOW_S, self._first_s or 0.0)
        if len(rows) == _WINDOW_ROWS:
            since_s = self._recent[0][0]
        seconds = now_s - since_s if rows else 0.0
        settled = _is_settled(rows)
        good = [record for record in rows if record.outcome is Outcome.SUCCESS]
        chosen = [record for record in good if record.part is Part.SAMPLE or not settled]
        met = sum(all(limit.is_met(record) for limit in slo.request_limits) for record in good)
        return {
            "seconds": round(seconds, 1),
            "finished": len(rows),
            "failed": len(rows) - len(good),
            "settled": settled,
            "ttft_ms": asdict(Summary.of(one.ttft_ms for one in chosen if one.ttft_ms is not None)),
            "tpot_ms": asdict(Summary.of(one.tpot_ms for one in chosen if one.tpot_ms is not None)),
            # A first wave that has just finished together is no rate.
            "requests_per_s": _rate(len(rows), seconds),
            "output_tokens_per_s": _rate(sum(one.output_tokens or 0 for one in good), seconds),
            "goodput_per_s": _rate(met, seconds),
            "attainment_share": met / len(rows) if rows else None,
        }

    def plateau(self, now_s: float, slo: Slo) -> Plateau:
        """Return the last _DOUBTED_ROWS requests of the window, judged as a level is, for what is doubtful."""
        rows = self._rows_since(now_s - WINDOW_S)[-_DOUBTED_ROWS:]
        parts = STEADY if _is_settled(rows) else EVERYTHING
        return Plateau.of(rows, phase=self.phase, tier=self.tier, users=self.users, slo=slo, parts=parts)

    def _rows_since(self, since_s: float) -> list[RequestRecord]:
        return [record for at_s, record in self._recent if at_s > since_s]


class Curve:
    """Mean, least and largest value over time, in at most _BUCKETS steps that widen as the run goes on."""

    def __init__(self) -> None:
        self.step_s = 1.0
        self._buckets: dict[int, tuple[int, float, float, float]] = {}

    def add(self, at_s: float, value: float) -> None:
        """Add a value to the step of its time."""
        self._merge(int(at_s // self.step_s), (1, value, value, value))
        if len(self._buckets) > _BUCKETS:
            narrow, self._buckets = self._buckets, {}
            self.step_s *= 2
            for index, bucket in narrow.items():
                self._merge(index // 2, bucket)

    def _merge(self, index: int, more: tuple[int, float, float, float]) -> None:
        known = self._buckets.get(index)
        if known is not None:
            more = (known[0] + more[0], known[1] + more[1], min(known[2], more[2]), max(known[3], more[3]))
        self._buckets[index] = more

    def points(self) -> list[list[float]]:
        """Middle of the step in seconds, mean, least, largest, count."""
        return [
            [(index + 0.5) * self.step_s, round(total / count, 3), least, largest, count]
            for index, (count, total, least, largest) in sorted(self._buckets.items())
        ]


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if seconds >= _SHORTEST_RATE_S else None


def _is_settled(rows: list[RequestRecord]) -> bool:
    return any(record.part is Part.SAMPLE for record in rows)
