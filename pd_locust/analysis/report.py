"""From a prefix to a Report: one look at the files of a run, from its records or from Locust's history."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pd_locust.analysis import tables
from pd_locust.analysis.history import History
from pd_locust.analysis.level import Kind, Level, Selection
from pd_locust.analysis.requests import cut_requests, failures_of, levels_of, load_requests
from pd_locust.analysis.run import RunInfo, file_of
from pd_locust.capacity import CapacityRow, capacity_row
from pd_locust.errors import HistoryError

if TYPE_CHECKING:
    from pathlib import Path

    from pd_locust.slo import Slo
    from pd_locust.warnings import Doubt

REPORT_FORMAT = 1

_FROM_REQUESTS = (
    "percentiles are of raw values, interpolated linearly; first wave: each user's first request; steady: "
    "what follows it and, in a sweep or stream, was sent after every user had finished a request at the level"
)
_TOGETHER = "several tiers were under load at once: users counts all of them together"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that terminal, Markdown, CSV and JSON show. `answers` has one sentence a tier.

    `source` is "requests" (exact) or "history" (what Locust kept); `cut` requests were ended by the end of
    the run and are in no other number.
    """

    prefix: Path
    run: RunInfo
    source: str
    slo: Slo
    headroom: float
    pairs: int | None
    answers: tuple[str, ...]
    single_stream: tables.Table
    concurrency: tables.Table
    capacity: tables.Table
    levels: tables.Table
    failures: tables.Table
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
        levels = list(levels_of(frame, slo, run.nominal_tokens))
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
    answers = _capacity(levels, slo, headroom, run, judged_percentiles=source == "requests")
    doubts += [doubt for level in levels if _speaks(level) for doubt in level.plateau.doubts]
    doubts += [doubt for row in answers for doubt in row.doubts]
    return Report(
        prefix=prefix,
        run=run,
        source=source,
        slo=slo,
        headroom=headroom,
        pairs=pairs,
        answers=tuple(tables.answer(row, headroom) for row in answers),
        single_stream=tables.single_stream(_of(levels, Kind.SINGLE), run.nominal_tokens),
        concurrency=tables.concurrency(_of(levels, Kind.CONCURRENCY, Kind.STREAM), pairs),
        capacity=tables.capacity(answers),
        levels=tables.levels(_ordered(_capacity_levels(levels), run)),
        failures=failed,
        cut=cut,
        doubts=_once(doubts, run.doubts),
        notes=tuple(notes),
    )


def to_json(report: Report) -> dict[str, Any]:
    """Plain data with stable keys: milliseconds, tokens, shares of 1; absent is None."""
    return {
        "format": REPORT_FORMAT,
        "source": report.source,
        "run": report.run.document,
        "slo": str(report.slo),
        "headroom": report.headroom,
        "pairs": report.pairs,
        "answers": list(report.answers),
        **{table.name: list(table.rows) for table in (*_csv_tables(report), report.failures)},
        "cut": report.cut,
        "warnings": [doubt.to_json() for doubt in report.doubts],
        "notes": list(report.notes),
    }


def write_tables(report: Report, prefix: Path) -> list[Path]:
    """Write PREFIX_single_stream.csv, _concurrency.csv, _capacity.csv and _levels.csv, empty ones too."""
    paths = []
    for table in _csv_tables(report):
        path = file_of(prefix, f"{table.name}.csv")
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [column.name for column in table.columns], lineterminator="\n")
            writer.writeheader()
            writer.writerows(table.rows)
        paths.append(path)
    return paths


def _csv_tables(report: Report) -> tuple[tables.Table, ...]:
    return report.single_stream, report.concurrency, report.capacity, report.levels


def _capacity(
    levels: list[Level], slo: Slo, headroom: float, run: RunInfo, *, judged_percentiles: bool
) -> list[CapacityRow]:
    chosen = _ordered(_capacity_levels(levels), run)
    tiers = dict.fromkeys(level.plateau.tier for level in chosen)
    rows = [
        capacity_row(tier, [level.plateau for level in chosen if level.plateau.tier == tier], slo, headroom)
        for tier in tiers
    ]
    if judged_percentiles:
        return rows
    # What Locust rounded is shown but not compared with a limit: its 500 ms may have been 504.
    only_mean = [
        {name: row.by_statistic[name] if name == "mean" else None for name in row.by_statistic}
        for row in rows
    ]
    return [replace(row, by_statistic=answers) for row, answers in zip(rows, only_mean, strict=True)]


def _capacity_levels(levels: list[Level]) -> list[Level]:
    """Levels of the sweep; without a sweep, those that a plain stream happened to hold."""
    return _of(levels, Kind.SWEEP) or _of(levels, Kind.STREAM)


def _of(levels: list[Level], *kinds: Kind) -> list[Level]:
    return [level for level in levels if level.kind in kinds]


def _ordered(levels: list[Level], run: RunInfo) -> list[Level]:
    """By tier, in the order in which the run declares them, then by users."""
    declared = list(run.nominal_tokens)
    seen = [*declared, *(level.plateau.tier for level in levels)]
    return sorted(levels, key=lambda level: (seen.index(level.plateau.tier), level.plateau.users or 0))


def _speaks(level: Level) -> bool:
    """Whether a level's doubts are told: of a concurrency run, seen three times, those of its steady part."""
    return level.kind is not Kind.CONCURRENCY or level.selection is Selection.STEADY


def _once(computed: list[Doubt], recorded: tuple[Doubt, ...]) -> tuple[Doubt, ...]:
    """Each doubt once; where the live run and the records name the same one, the records' figures count."""
    known = {(doubt.code, doubt.where) for doubt in computed}
    live_only = [doubt for doubt in recorded if (doubt.code, doubt.where) not in known]
    return tuple(dict.fromkeys([*computed, *live_only]))
