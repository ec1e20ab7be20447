"""What a run says while it goes on: one line a phase, renewed on a terminal, printed once in a log."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from pd_locust.record import Outcome, Part
from pd_locust.search import Found, GaveUp
from pd_locust.units import format_count, format_ms

if TYPE_CHECKING:
    from pd_locust.phase import Phase
    from pd_locust.plateau import Plateau
    from pd_locust.record import RequestRecord
    from pd_locust.search import Bracket

_WIDTH = 100
_BAR = 12
_RENEWED_S = 0.5


class PhaseLine:
    """`[ 3/17] sweep/short/32  ######......   96 requests  TTFT mean 78.1 ms`."""

    def __init__(self, head: str, phase: Phase) -> None:
        self._head = head
        self._phase = phase
        self._wanted = phase.requests
        self._finished = self._counted = self._failed = 0
        self._ttft_sum_ms = 0.0
        self._ttft_count = 0
        self._shown_s = 0.0
        self._live = sys.stderr.isatty()

    def take(self, row: RequestRecord) -> None:
        """Note a finished request."""
        self._finished += 1
        self._counted += row.part == Part.SAMPLE or self._phase.kind == "count"
        self._failed += row.outcome == Outcome.FAILURE
        if row.ttft_ms is not None and row.outcome == Outcome.SUCCESS:
            self._ttft_sum_ms += row.ttft_ms
            self._ttft_count += 1
        if self._live and time.monotonic() - self._shown_s > _RENEWED_S:
            self._shown_s = time.monotonic()
            self._print(self._text(), end="")

    def extend(self, wanted: int) -> None:
        """Note that a larger sample is wanted."""
        self._wanted = wanted

    def close(self, *, complete: bool) -> None:
        """Print the phase's last line."""
        self._print(self._text() + ("" if complete else "  ended early"), end="\n")

    def _text(self) -> str:
        mean_ms = self._ttft_sum_ms / self._ttft_count if self._ttft_count else None
        filled = min(_BAR, _BAR * self._counted // max(1, self._wanted))
        bar = "#" * filled + "." * (_BAR - filled)
        failed = f"  {self._failed} failed" if self._failed else ""
        return f"{self._head:<30} {bar} {self._finished:>5} requests  TTFT mean {format_ms(mean_ms):>8} ms{failed}"

    def _print(self, text: str, *, end: str) -> None:
        # On a terminal the line is written over itself: padded, so that nothing of a longer one stays.
        start, text = ("\r", f"{text[:_WIDTH]:<{_WIDTH}}") if self._live else ("", text)
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)


class SearchLine(PhaseLine):
    """A level of the search: what is held and why; then its verdict, the bracket and what is left at worst."""

    def __init__(self, phase: Phase, most_left: int) -> None:
        super().__init__(f"{phase.tier} at {phase.users} users, {most_left} levels left at most", phase)

    def close(self, *, complete: bool) -> None:
        """Say nothing yet when all went well: the verdict follows."""
        if not complete:
            super().close(complete=False)

    def judged(self, level: Plateau, bracket: Bracket) -> None:
        """Print the level's last line."""
        finding = level.judgement.primary
        seen = "no latency limit"
        if finding is not None:
            interval = "" if finding.low is None or finding.high is None else f" ({_range(finding.low, finding.high)})"
            seen = f"{finding.condition} saw {format_ms(finding.observed)}{interval}"
        text = (
            f"{level.tier:>8} {level.users:>5} users  {level.verdict:<12} {seen}  "
            f"n={format_count(level.finished)}  [{bracket.low or 0}, {bracket.high or '?'})"
        )
        self._print(text, end="\n")


def conclude(tier: str, end: Found | GaveUp) -> None:
    """Print a tier's answer."""
    if isinstance(end, GaveUp):
        text = f"{tier}: no answer, {end.why}"
    else:
        upper = "none larger was held" if end.bracket.high is None else f"{end.bracket.high} do not"
        text = f"{tier}: {end.bracket.low} users keep the limit, {upper}"
        text += "" if end.confirmed else " (not confirmed: out of levels)"
    print(text, file=sys.stderr, flush=True)


def _range(low: float, high: float) -> str:
    return f"{format_ms(low)} to {format_ms(high)}"
