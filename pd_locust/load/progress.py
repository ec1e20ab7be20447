"""What a run says while it goes on: one line a phase, renewed on a terminal, printed once in a log."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.cells import set_cell_size

from pd_locust.language import Speech
from pd_locust.record import Outcome, Part
from pd_locust.search import Discarded, Found, GaveUp, Measured, settled
from pd_locust.slo import Verdict
from pd_locust.stream import Category
from pd_locust.units import format_count, format_ms, format_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.phase import Phase
    from pd_locust.plateau import Plateau
    from pd_locust.record import RequestRecord
    from pd_locust.search import Bracket

_WIDTH = 100
_BAR = 12
_RENEWED_S = 0.5
_NOBODY_THERE = frozenset({Category.REFUSED, Category.RESET, Category.DNS, Category.CONNECT_TIMEOUT})


class PhaseLine:
    """`[ 3/17] sweep/short/32  ######......   96 requests  TTFT mean 78.1 ms`."""

    def __init__(self, head: str, phase: Phase) -> None:
        self._head = head
        self._phase = phase
        self._wanted = phase.requests
        self._finished = self._counted = self._failed = 0
        self._unanswered = 0
        self._ttft_sum_ms = 0.0
        self._ttft_count = 0
        self._shown_s = 0.0
        self._live = sys.stderr.isatty()
        self._say = Speech.chosen()

    def take(self, row: RequestRecord) -> None:
        """Note a finished request."""
        self._finished += 1
        self._counted += row.part == Part.SAMPLE or self._phase.kind == "count"
        self._failed += row.outcome == Outcome.FAILURE
        self._unanswered = self._unanswered + 1 if row.category in _NOBODY_THERE else 0
        if row.ttft_ms is not None and row.outcome == Outcome.SUCCESS:
            self._ttft_sum_ms += row.ttft_ms
            self._ttft_count += 1
        if self._live and time.monotonic() - self._shown_s > _RENEWED_S:
            self._shown_s = time.monotonic()
            self._print(self._text(), end="")

    @property
    def nobody_answers(self) -> bool:
        """Whether there is no reason to go on; a protocol's phase always goes on."""
        return False

    def extend(self, wanted: int) -> None:
        """Note that a larger sample is wanted."""
        self._wanted = wanted

    def close(self, *, complete: bool) -> None:
        """Print the phase's last line."""
        self._print(self._text() + ("" if complete else f"  {self._say('ended early')}"), end="\n")

    def _text(self) -> str:
        mean_ms = self._ttft_sum_ms / self._ttft_count if self._ttft_count else None
        filled = min(_BAR, _BAR * self._counted // max(1, self._wanted))
        bar = "#" * filled + "." * (_BAR - filled)
        say = self._say
        failed = f"  {say(f'{self._failed} failed')}" if self._failed else ""
        seen = (
            f"{say(f'{self._finished:>5} requests')}  {say('TTFT mean')} {format_ms(mean_ms):>8} ms{failed}"
        )
        return f"{self._head:<30} {bar} {seen}"

    def _print(self, text: str, *, end: str) -> None:
        # On a terminal the line is written over itself: padded, so that nothing of a longer one stays.
        if self._live:
            text = f"\r{text if end else text[:_WIDTH]:<{_WIDTH}}"
        print(text, end=end, file=sys.stderr, flush=True)


class SearchLine(PhaseLine):
    """A level of the search: its users and why; then its verdict, the bracket, and the most levels and seconds left."""

    def __init__(self, phase: Phase, why: str) -> None:
        say = Speech.chosen()
        super().__init__(f"{say(f'{phase.tier} at {phase.users} users')}{say.comma}{say(why)}", phase)

    @property
    def nobody_answers(self) -> bool:
        """Whether as many requests as there are users, and three at least, found no service in a row."""
        return self._unanswered >= max(3, self._phase.users or 0)

    def close(self, *, complete: bool) -> None:
        """Say nothing yet when all went well: the verdict follows."""
        if not complete:
            super().close(complete=False)

    def judged(self, level: Plateau, bracket: Bracket, most_left: int, left_s: float) -> None:
        """Print the level's last line."""
        say = self._say
        text = (
            f"{level.tier:>8} {level.users:>5} {say('users')}  "
            f"{set_cell_size(say(level.verdict), 12)}  {_seen(level, say)}  "
            f"n={format_count(level.finished)}  {say('in flight')} {format_ms(level.concurrency)}  "
            f"[{bracket.low or 0}, {bracket.high or '?'})  {say(f'{most_left} left, {left_s:.0f} s')}"
            f"{_why_unclear(level, say)}"
        )
        self._print(text, end="\n")


def conclude(tier: str, levels: Sequence[Plateau], end: Found | GaveUp) -> None:
    """Print a tier's answer."""
    say = Speech.chosen()
    if isinstance(end, GaveUp):
        text = f"{say('no answer')}{say.comma}{say(end.why)}"
    else:
        text = _edge(levels, end.bracket, say)
        text += "" if end.confirmed else f" ({say('not confirmed')}{say(': ')}{say(end.why)})"
    print(f"{tier}{say(': ')}{text}", file=sys.stderr, flush=True)


def interrupted(tier: str, levels: Sequence[Plateau], bracket: Bracket, *, service_gone: bool) -> None:
    """Print what is known of a tier whose search was ended."""
    say = Speech.chosen()
    why = say("the service does not answer any more") if service_gone else say("stopped")
    known = say("; ").join(
        (why, say("so far ") + _edge(levels, bracket, say), say("--pd-resume goes on from here"))
    )
    print(f"{tier}{say(': ')}{known}", file=sys.stderr, flush=True)


def _edge(levels: Sequence[Plateau], bracket: Bracket, say: Speech) -> str:
    """`47 users keep the limit (ttft mean 491.2, 490.1 to 492.3 ms), 48 do not`."""
    verdicts = settled([Measured.of(level) for level in levels])
    lower = say("no level kept the limit")
    if bracket.low is not None:
        best = next(
            level
            for level in reversed(levels)
            if level.users == bracket.low and level.verdict is Verdict.PASS
        )
        lower = f"{say(f'{bracket.low} users keep the limit')} ({_seen(best, say)})"
    if bracket.high is None:
        upper = say("no larger level was measured")
    elif verdicts[bracket.high] is Verdict.FAIL:
        upper = say(f"{bracket.high} do not")
    else:
        upper = say(f"of {bracket.high} it is not clear")
    return f"{lower}{say.comma}{upper}"


def _seen(level: Plateau, say: Speech) -> str:
    """`ttft mean 341.5, 337.5 to 345.5 ms, p95 345.6 ms`: the limited statistic with its interval."""
    limit, finding = level.slo.primary, level.judgement.primary
    if limit is None or finding is None:
        return say(f"{format_percent(level.attainment)} attained, {level.failed} failed")
    metric, statistic = limit.request.metric, limit.statistic
    known = finding.low is not None and finding.high is not None
    interval = f", {format_ms(finding.low)} to {format_ms(finding.high)}" if known else ""
    p95 = "" if statistic == "p95" else f", p95 {format_ms(level.summary_of(metric).p95)} ms"
    return f"{metric} {statistic} {format_ms(finding.observed)}{interval} ms{p95}"


def _why_unclear(level: Plateau, say: Speech) -> str:
    if level.verdict is not Verdict.INCONCLUSIVE:
        return ""
    match Measured.of(level).discarded:
        case Discarded.LATE:
            lag = say(f"loop lag p99 {format_ms(level.loop_lag_p99_ms)} ms")
            return f"  ({say(Discarded.LATE)}{say(': ')}{lag})"
        case Discarded.CUT_SHORT:
            return f"  ({say(Discarded.CUT_SHORT)})"
        case None:
            return f"  ({say('on the limit')})"
