"""From a prefix to a Report: one look at the files of a run, from its records or from Locust's history."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pd_locust.analysis import tables
from pd_locust.analysis.history import History
from pd_locust.analysis.levels import (
    Kind,
    Level,
    Selection,
    cut_requests,
    failures_of,
    levels_of,
    load_requests,
)
from pd_locust.analysis.run import RunInfo, file_of
from pd_locust.analysis.tables import limited
from pd_locust.capacity import CapacityRow, capacity_row
from pd_locust.errors import HistoryError
from pd_locust.units import format_count, format_ms, format_percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pd_locust.analysis.tables import Table
    from pd_locust.plateau import Plateau
    from pd_locust.slo import Slo
    from pd_locust.warnings import Doubt

_FROM_REQUESTS = (
    "percentiles are of raw values, interpolated linearly; first wave: each user's first request; steady: "
    "what follows it and, in a sweep or stream, was sent after every user had finished a request at the level"
)
_TOGETHER = "several tiers were under load at once: users counts all of them together"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that terminal, Markdown, HTML, CSV and JSON show. `answers` has one sentence a tier.

    `held` are all levels in the order of time, `found` the capacities read from them. `source` is
    "requests" (exact) or "history" (what Locust kept); `cut` requests were ended by the end of the run and are
    in no other number.
    """

    prefix: Path
    run: RunInfo
    source: str
    slo: Slo
    headroom: float
    pairs: int | None
    held: tuple[Level, ...]
    found: tuple[CapacityRow, ...]
    answers: tuple[str, ...]
    single_stream: Table
    concurrency: Table
    capacity: Table
    levels: Table
    failures: Table
    cut: int
    doubts: tuple[Doubt, ...]
    notes: tuple[str, ...]


def build(
    prefix: Path,
    *,
    slo: Slo | None = None,
    headroom: float | None = None,
    pairs: int | None = None,
    history_only: bool = False,
) -> Report:
    """Read PREFIX_requests.csv or, without it or with `history_only`, PREFIX_stats_history.csv.

    `slo`, `headroom` (a share of 1) and `pairs` replace what PREFIX_run.json says. Raises HistoryError
    when neither file is there or one of them is not what its name says.
    """
    run = RunInfo.load(prefix)
    slo = slo or run.slo
    headroom = run.headroom if headroom is None else headroom
    pairs = pairs or run.pairs
    requests_path, history_path = file_of(prefix, "requests.csv"), file_of(prefix, "stats_history.csv")
    failed, cut = tables.failures(()), 0
    if requests_path.exists() and not history_only:
        source = "requests"
        frame, doubts = load_requests(requests_path)
        levels = list(levels_of(frame, slo, run.nominal_tokens, run.confidence))
        failed, cut = tables.failures(failures_of(frame)), cut_requests(frame)
        notes = [_FROM_REQUESTS]
    elif history_path.exists():
        source = "history"
        history = History.load(history_path)
        levels, doubts = history.levels(slo), history.doubts.copy()
        notes = history.notes(run.ended_unix_s)
    else:
        missing = history_path if history_only else f"{requests_path} and {history_path.name}"
        raise HistoryError(f"{missing}: no such file; run locust with --csv {prefix} --csv-full-history")
    if not all(level.alone for level in levels):
        notes.append(_TOGETHER)
    found = _capacity(levels, slo, headroom, run, judged_percentiles=source == "requests")
    doubts += [doubt for level in levels if _speaks(level) for doubt in level.plateau.doubts]
    doubts += [doubt for row in found for doubt in row.doubts]
    return Report(
        prefix=prefix,
        run=run,
        source=source,
        slo=slo,
        headroom=headroom,
        pairs=pairs,
        held=tuple(levels),
        found=tuple(found),
        answers=tuple(_answers(levels, found, headroom)),
        single_stream=tables.single_stream(_of(levels, Kind.SINGLE), run.nominal_tokens),
        concurrency=tables.concurrency(_of(levels, Kind.CONCURRENCY, Kind.STREAM), pairs),
        capacity=tables.capacity(found),
        levels=tables.levels(capacity_levels(levels, run)),
        failures=failed,
        cut=cut,
        doubts=_once(doubts, run.doubts),
        notes=tuple(notes),
    )


def _capacity(
    levels: list[Level], slo: Slo, headroom: float, run: RunInfo, *, judged_percentiles: bool
) -> list[CapacityRow]:
    chosen = capacity_levels(levels, run)
    tiers = dict.fromkeys(level.plateau.tier for level in chosen)
    rows = []
    for tier in tiers:
        held = [level for level in chosen if level.plateau.tier == tier]
        row = capacity_row(tier, [level.plateau for level in held], slo, headroom)
        rows.append(replace(row, alone=all(level.alone for level in held)))
    if judged_percentiles:
        return rows
    # What Locust rounded is shown but not compared with a limit: its 500 ms may have been 504.
    only_mean = [
        {name: row.by_statistic[name] if name == "mean" else None for name in row.by_statistic}
        for row in rows
    ]
    return [replace(row, by_statistic=answers) for row, answers in zip(rows, only_mean, strict=True)]


def capacity_levels(levels: Sequence[Level], run: RunInfo) -> list[Level]:
    """Levels of the sweep; without a sweep, those that a plain stream happened to hold.

    By tier, in the order in which the run declares them, then by users.
    """
    chosen = _of(levels, Kind.SWEEP) or _of(levels, Kind.STREAM)
    seen = [*run.nominal_tokens, *(level.plateau.tier for level in chosen)]
    return sorted(chosen, key=lambda level: (seen.index(level.plateau.tier), level.plateau.users or 0))


def _of(levels: Iterable[Level], *kinds: Kind) -> list[Level]:
    return [level for level in levels if level.kind in kinds]


def _answers(levels: list[Level], found: list[CapacityRow], headroom: float) -> list[str]:
    if found:
        return [capacity_answer(row, headroom) for row in found]
    counted = [level for level in _of(levels, Kind.CONCURRENCY) if level.plateau.finished]
    steady = [level for level in counted if level.selection is Selection.STEADY]
    # A count of one request a user is all first wave.
    whole = [level for level in counted if level.selection is Selection.ALL]
    return [fixed_answer(level) for level in steady or whole or _of(levels, Kind.SINGLE)]


def _speaks(level: Level) -> bool:
    """Whether a level's doubts are told: of a concurrency run, seen three times, those of its steady part."""
    return level.kind is not Kind.CONCURRENCY or level.selection is Selection.STEADY


def _once(computed: list[Doubt], recorded: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    """Each doubt once; where the live run and the records name the same one, the records' figures count."""
    known = {(doubt.code, doubt.where) for doubt in computed}
    live_only = [doubt for doubt in recorded if (doubt.code, doubt.where) not in known]
    return tuple(dict.fromkeys([*computed, *live_only]))


def capacity_answer(row: CapacityRow, headroom: float) -> str:
    """Say what a tier carries and what to plan with."""
    if row.best is None:
        if row.worst is None:
            return f"{row.tier}: no level could be judged by {row.slo}."
        if not row.worst.successes:
            return _none_succeeded(row.worst)
        seen = f"the smallest that missed it, {format_count(row.worst.users)}, had {_mean_text(row.worst)}"
        # A mean within the limit has missed it by its failures.
        failed = f", {format_count(row.worst.failed)} failed" if row.worst.failed else ""
        return f"{row.tier}: no number of users tried kept {row.slo}; {seen}{failed}."
    whose = "users" if row.alone else "users of all tiers together"
    users = f"{'' if row.worst else 'at least '}{format_count(row.max_concurrency)} {whose}"
    plan = f"plan with {format_count(row.planned_users)} ({format_percent(headroom)} headroom)"
    return f"{row.tier}: {users} keep {row.slo} ({_mean_text(row.best)}); {plan}."


def fixed_answer(level: Level) -> str:
    """Say how a tier fares with the users that it was given, where no capacity was looked for."""
    seen = level.plateau
    where = (
        f"{seen.tier} at {format_count(seen.users)} users" if seen.users != 1 else f"{seen.tier}, one stream"
    )
    if not seen.successes:
        return _none_succeeded(seen)
    ttft = f"TTFT mean {format_ms(seen.ttft.mean)} ms, p95 {format_ms(seen.ttft.p95)} ms"
    tpot = f"TPOT mean {format_ms(seen.tpot.mean)} ms"
    success = f"{format_percent(seen.success_ratio)} of {format_count(seen.finished)} requests succeeded"
    return f"{where}: {ttft}; {tpot}; {success}."


def _none_succeeded(seen: Plateau) -> str:
    where = f"{seen.tier} at {format_count(seen.users)} users"
    if not seen.finished:
        return f"{where}: no request has ended."
    return f"{where}: none of {format_count(seen.finished)} requests succeeded."


def _mean_text(plateau: Plateau) -> str:
    return f"mean {format_ms(limited(plateau).mean)} ms, {format_count(plateau.finished)} requests"
