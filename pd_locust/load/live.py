"""What can be said of a run while it goes on: counts, exact percentiles, a curve. Knows no clock and no Locust.

A finished request costs one `take`, some ten microseconds; reading sorts nothing larger than the window, and
memory does not grow with the run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pd_locust.load.level import Curve, Level
from pd_locust.plateau import Plateau
from pd_locust.record import Outcome
from pd_locust.search import GaveUp, NextLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pd_locust.phase import Phase
    from pd_locust.record import RequestRecord
    from pd_locust.search import Bracket, Found
    from pd_locust.slo import Slo
    from pd_locust.warnings import Doubt

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
        self._levels: dict[tuple[str, int | None], tuple[Level, dict[str, Any]]] = {}
        self._current: Level | None = None
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

    def _level_of(self, record: RequestRecord, at_s: float) -> tuple[Level, dict[str, Any]]:
        key = (record.phase, record.users)
        if key not in self._levels:
            span = {"users": record.users, "start_s": at_s, "stop_s": at_s}
            self._spans.append(span)
            self._levels[key] = (Level(self.tier, record.phase, record.users), span)
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
