"""What can be said of a run while it goes on: counts, exact percentiles, a curve. Knows no clock and no Locust.

A finished request costs one `take`, some ten microseconds; reading sorts nothing larger than the window, and
memory does not grow with the run.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pd_locust.plateau import EVERYTHING, STEADY, Plateau
from pd_locust.record import Outcome, Part
from pd_locust.search import GaveUp, NextLevel
from pd_locust.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pd_locust.phase import Phase
    from pd_locust.record import RequestRecord
    from pd_locust.search import Bracket, Found
    from pd_locust.slo import Slo
    from pd_locust.warnings import Doubt

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


class LevelLive:
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


_LEVELS = 4
_SPANS = 60
_HELD = 100
# What is still in flight is missing from a window: these say something of a level that has ended.
_NEED_A_WHOLE_LEVEL = frozenset({"little", "under-concurrency", "few-samples"})


@dataclass(frozen=True, slots=True)
class SearchState:
    """How far the search of one tier has come: levels held, and what it said to them."""

    levels: tuple[Plateau, ...]
    bracket: Bracket
    step: NextLevel | Found | GaveUp
    most_left: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; `end` is None while the search goes on."""
        going_on = isinstance(self.step, NextLevel)
        end = None if going_on else "gave up" if isinstance(self.step, GaveUp) else "found"
        return {
            "low": self.bracket.low,
            "high": self.bracket.high,
            "next_users": self.step.users if isinstance(self.step, NextLevel) else None,
            "why": getattr(self.step, "why", ""),
            "confirmed": getattr(self.step, "confirmed", False),
            "end": end,
            "most_left": self.most_left if going_on else 0,
        }


class TierLive:
    """Everything kept of one tier."""

    def __init__(self, tier: str) -> None:
        self.tier = tier
        self.finished = self.failed = self.cut = 0
        self.held: deque[Plateau] = deque(maxlen=_HELD)
        self._curve = Curve()
        self._spans: deque[dict[str, Any]] = deque(maxlen=_SPANS)
        self._levels: dict[tuple[str, int | None], tuple[LevelLive, dict[str, Any]]] = {}
        self._current: LevelLive | None = None
        self._newest_us = 0

    def take(self, record: RequestRecord, at_s: float) -> None:
        """Note a request that has ended `at_s` seconds after the run's start."""
        if record.outcome is Outcome.CUT:
            self.cut += 1
            return
        self.finished += 1
        self.failed += record.outcome is Outcome.FAILURE
        level, span = self._level_of(record, at_s)
        level.take(record, at_s)
        span["stop_s"] = at_s
        # Requests of the last level may end after the first ones of the next: the latest sending decides.
        if record.sent_unix_us >= self._newest_us:
            self._newest_us, self._current = record.sent_unix_us, level
        if record.ttft_ms is not None and record.outcome is Outcome.SUCCESS:
            self._curve.add(at_s, record.ttft_ms)

    def _level_of(self, record: RequestRecord, at_s: float) -> tuple[LevelLive, dict[str, Any]]:
        key = (record.phase, record.users)
        if key not in self._levels:
            span = {"users": record.users, "start_s": at_s, "stop_s": at_s}
            self._spans.append(span)
            self._levels[key] = (LevelLive(self.tier, record.phase, record.users), span)
            if len(self._levels) > _LEVELS:
                del self._levels[next(iter(self._levels))]
        return self._levels[key]

    def to_json(self, now_s: float, slo: Slo) -> dict[str, Any]:
        """Plain values."""
        current = self._current
        return {
            "tier": self.tier,
            "finished": self.finished,
            "failed": self.failed,
            "cut": self.cut,
            "level": current.to_json() if current else None,
            "window": current.window(now_s, slo) if current else None,
            "curve": {
                "step_s": self._curve.step_s,
                "points": self._curve.points(),
                "spans": list(self._spans),
            },
        }

    def plateau(self, now_s: float, slo: Slo) -> Plateau | None:
        """Return the latest requests as a level, for what is doubtful; None before there are any."""
        return self._current.plateau(now_s, slo) if self._current else None


class Live:
    """One run, tier by tier. Times given to it are those of one monotonic clock."""

    def __init__(self, slo: Slo) -> None:
        self.slo = slo
        self.tiers: dict[str, TierLive] = {}
        self.searches: dict[str, SearchState] = {}
        self._upcoming: dict[str, SearchState] = {}
        self._started_s: float | None = None
        self._stopped_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Forget the last run: one begins now."""
        self.tiers.clear()
        self.searches, self._upcoming = self._upcoming, {}
        self._started_s, self._stopped_s = now_s, None

    def end(self, now_s: float) -> None:
        """Stop the clock that is shown."""
        self._stopped_s = now_s

    def publish(self, tier: str, state: SearchState) -> None:
        """Take a search's word. A shape names its first level before Locust says that the run begins."""
        running = self._started_s is not None and self._stopped_s is None
        (self.searches if running else self._upcoming)[tier] = state

    def elapsed_s(self, now_s: float) -> float | None:
        """Seconds of the run so far, or of the whole run when it is over; None before the first."""
        return None if self._started_s is None else (self._stopped_s or now_s) - self._started_s

    def take(self, record: RequestRecord, now_s: float) -> None:
        """Note a request that has just ended."""
        if self._started_s is None:
            self.begin(now_s)
        tier = self.tiers.get(record.tier)
        if tier is None:
            tier = self.tiers[record.tier] = TierLive(record.tier)
        tier.take(record, now_s - (self._started_s or 0.0))

    def held(self, phase: Phase, rows: Sequence[RequestRecord]) -> None:
        """Note a phase that has been held, with all its records."""
        tier = self.tiers.get(phase.tier or "")
        if tier is not None:
            level = Plateau.of(rows, phase=phase.name, tier=tier.tier, users=phase.users, slo=self.slo)
            tier.held.append(level)

    def show(
        self, tier: TierLive, now_s: float, pause: Callable[[], None] = lambda: None
    ) -> tuple[dict[str, Any], list[Doubt], Plateau | None]:
        """Plain values of one tier, what is doubtful about it, and its latest requests.

        Between the two halves of the work, two milliseconds each at most, `pause` lets others run.
        """
        at_s = (now_s if self._stopped_s is None else self._stopped_s) - (self._started_s or 0.0)
        document = tier.to_json(at_s, self.slo)
        pause()
        latest = tier.plateau(at_s, self.slo)
        search = self.searches.get(tier.tier)
        levels = list(search.levels if search else tier.held)
        document["levels"] = [level_to_json(level) for level in levels]
        document["search"] = search.to_json() if search else None
        doubts = [doubt for doubt in latest.doubts if doubt.code not in _NEED_A_WHOLE_LEVEL] if latest else []
        for level in reversed(levels):
            # A search judges a level by its interval, which knows how large the sample was.
            doubts += [one for one in level.doubts if not (search and one.code == "few-samples")]
        return document, doubts, latest


def level_to_json(level: Plateau) -> dict[str, Any]:
    """A level that was held: its verdict, and the limited statistic with its interval."""
    finding = level.judgement.primary
    return {
        "phase": level.phase,
        "users": level.users,
        "verdict": str(level.verdict),
        "client_limited": level.client_limited,
        "observed_ms": finding.observed if finding else None,
        "low_ms": finding.low if finding else None,
        "high_ms": finding.high if finding else None,
        "ttft_ms": asdict(level.ttft),
        "tpot_ms": asdict(level.tpot),
        "finished": level.finished,
        "failed": level.failed,
        "in_flight": level.concurrency,
        "output_tokens_per_s": level.output_tok_s,
        "goodput_per_s": level.goodput,
    }


def client_to_json(windows: Iterable[Plateau | None]) -> dict[str, Any]:
    """The generator's own health, by the worst of the windows."""
    seen = [window for window in windows if window is not None]
    return {
        "loop_lag_p99_ms": max(
            (one.loop_lag_p99_ms for one in seen if one.loop_lag_p99_ms is not None), default=None
        ),
        "cpu_share": max(
            (one.client_cpu_share for one in seen if one.client_cpu_share is not None), default=None
        ),
        "limited": any(one.client_limited for one in seen),
    }
