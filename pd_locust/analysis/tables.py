"""The tables of a report, with all their columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pd_locust.analysis.levels import Level, Selection
from pd_locust.capacity import STATISTICS, CapacityRow
from pd_locust.units import NOT_AVAILABLE, format_count, format_ms, format_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pd_locust.analysis.levels import FailureCount
    from pd_locust.analysis.report import Report
    from pd_locust.language import Speech
    from pd_locust.plateau import Plateau
    from pd_locust.summary import Summary

Cell = str | int | float | None
Row = dict[str, Cell]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Column(Generic[_T]):
    """`name` carries the unit and is the key in CSV and JSON; `heading` and `show` are for people.

    `translated` texts are words of ours, not a server's or a user's.
    """

    name: str
    heading: str
    show: Callable[[Any], str]
    value: Callable[[_T], Cell]
    translated: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows are mappings from column name to value; absent is None."""

    name: str
    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, name: str, columns: Iterable[Column[_T]], things: Iterable[_T]) -> Table:
        """One row for each thing."""
        columns = tuple(columns)
        rows = tuple({column.name: column.value(thing) for column in columns} for thing in things)
        return cls(name, columns, rows)


def text(value: Cell) -> str:
    """Names as they are; absent reads `n/a`."""
    return NOT_AVAILABLE if value is None else str(value)


def _tpot(milliseconds: float | None) -> str:
    return NOT_AVAILABLE if milliseconds is None else f"{milliseconds:,.2f}"


def _seconds(milliseconds: float | None) -> str:
    return NOT_AVAILABLE if milliseconds is None else f"{milliseconds / 1000:,.2f}"


def _rate(per_s: float | None) -> str:
    return NOT_AVAILABLE if per_s is None else f"{per_s:,.1f}"


def _summary(
    metric: str, show: Callable[[Any], str], find: Callable[[_T], Summary | None]
) -> list[Column[_T]]:
    """Mean and percentiles of one latency, say `ttft_mean_ms` to `ttft_p99_ms`."""

    def column(statistic: str) -> Column[_T]:
        heading = f"{metric.upper()} {statistic}"
        return Column(
            f"{metric}_{statistic}_ms", heading, show, lambda thing: getattr(find(thing), statistic, None)
        )

    return [column(statistic) for statistic in STATISTICS]


def single_stream(levels: Iterable[Level], nominal_tokens: Mapping[str, int]) -> Table:
    """One user at a time; all its requests. `pd_handoff_p50_ms` is an estimate of the KV transfer."""
    columns: list[Column[Level]] = [
        Column("run", "run", text, lambda level: level.run),
        Column("tier", "tier", text, lambda level: level.plateau.tier),
        Column(
            "nominal_tokens",
            "nominal tokens",
            format_count,
            lambda level: nominal_tokens.get(level.plateau.tier),
        ),
        Column("prompt_tokens", "prompt tokens", format_count, lambda level: level.plateau.prompt_tokens),
        *_counts(),
        *_summary("ttft", format_ms, lambda level: level.plateau.ttft),
        *_summary("tpot", _tpot, lambda level: level.plateau.tpot),
        *_summary("e2e", _seconds, lambda level: level.plateau.e2e),
        Column("ttst_mean_ms", "TTST mean", format_ms, lambda level: level.plateau.ttst.mean),
        Column("pd_handoff_p50_ms", "handoff p50", format_ms, lambda level: level.handoff_p50_ms),
        Column("stream_tokens_per_s", "tok/s", _rate, lambda level: level.plateau.stream_tok_s),
        Column("output_tokens", "output tokens", format_count, lambda level: level.plateau.output_tokens),
        Column("cached_share", "cached", format_percent, lambda level: level.plateau.cached_share),
    ]
    return Table.of("single_stream", columns, levels)


def concurrency(levels: Iterable[Level], pairs: int | None) -> Table:
    """Show runs at a fixed concurrency. `in_flight` is measured, `users` were asked for."""

    def per_pair(plateau: Plateau) -> float | None:
        total = plateau.output_tok_s
        return None if total is None or pairs is None else total / pairs

    columns: list[Column[Level]] = [
        Column("run", "run", text, lambda level: level.run),
        Column("phase", "phase", text, lambda level: level.plateau.phase),
        Column("tier", "tier", text, lambda level: level.plateau.tier),
        Column("users", "users", format_count, lambda level: level.plateau.users),
        Column("part", "part", text, lambda level: str(level.selection), translated=True),
        *_counts(),
        *_summary("ttft", format_ms, lambda level: level.plateau.ttft),
        *_summary("tpot", _tpot, lambda level: level.plateau.tpot),
        *_summary("e2e", _seconds, lambda level: level.plateau.e2e),
        *_flow(),
        *_client(),
        Column("output_tokens_per_s_per_pair", "tok/s /pair", _rate, _unless_wave(per_pair)),
    ]
    return Table.of("concurrency", columns, levels)


def levels(levels: Iterable[Level]) -> Table:
    """Every level that the capacity was read from, with its verdict; steady part only."""
    columns: list[Column[Level]] = [
        Column("run", "run", text, lambda level: level.run),
        Column("phase", "phase", text, lambda level: level.plateau.phase),
        Column("tier", "tier", text, lambda level: level.plateau.tier),
        Column("users", "users", format_count, lambda level: level.plateau.users),
        Column("slo", "limit", text, lambda level: str(level.plateau.slo)),
        Column("verdict", "verdict", text, lambda level: str(level.plateau.verdict), translated=True),
        *_counts(),
        *_summary("ttft", format_ms, lambda level: level.plateau.ttft),
        *_interval(lambda level: level.plateau),
        *_summary("tpot", _tpot, lambda level: level.plateau.tpot),
        *_summary("e2e", _seconds, lambda level: level.plateau.e2e),
        *_flow(),
        *_client(),
    ]
    return Table.of("levels", columns, levels)


def capacity(rows: Iterable[CapacityRow]) -> Table:
    """One row a tier: the largest level that kept the limit, the smallest that missed it, and the plan.

    `users_by_STATISTIC` is the answer when that statistic is limited instead. `limited_mean_ms` and
    `first_failed_mean_ms` are means of the latency that the limit is on.
    """

    def of_best(value: Callable[[Plateau], Cell]) -> Callable[[CapacityRow], Cell]:
        return lambda row: None if row.best is None else value(row.best)

    def by(statistic: str) -> Column[CapacityRow]:
        return Column(
            f"users_by_{statistic}", f"by {statistic}", format_count, lambda row: row.by_statistic[statistic]
        )

    columns: list[Column[CapacityRow]] = [
        Column("tier", "tier", text, lambda row: row.tier),
        Column("slo", "limit", text, lambda row: str(row.slo)),
        Column("prompt_tokens", "prompt tokens", format_count, of_best(lambda best: best.prompt_tokens)),
        Column("max_users", "max users", format_count, lambda row: row.max_concurrency),
        Column("planned_users", "plan with", format_count, lambda row: row.planned_users),
        *_summary("ttft", format_ms, lambda row: row.best.ttft if row.best else None),
        *_interval(lambda row: row.best),
        Column("limited_mean_ms", "mean", format_ms, of_best(lambda best: limited(best).mean)),
        Column("attainment_share", "attained", format_percent, of_best(lambda best: best.attainment)),
        Column("failed", "failed", format_count, of_best(lambda best: best.failed)),
        Column("samples", "samples", format_count, of_best(lambda best: limited(best).count)),
        Column("in_flight", "in flight", _rate, of_best(lambda best: best.concurrency)),
        Column("output_tokens_per_s", "tok/s", format_count, of_best(lambda best: best.output_tok_s)),
        Column(
            "first_failed_users",
            "first miss",
            format_count,
            lambda row: row.worst.users if row.worst else None,
        ),
        Column(
            "first_failed_mean_ms",
            "its mean",
            format_ms,
            lambda row: limited(row.worst).mean if row.worst else None,
        ),
        *map(by, STATISTICS),
    ]
    return Table.of("capacity", columns, rows)


def failures(counts: Iterable[FailureCount]) -> Table:
    """Show what went wrong, how often, and what to try."""
    columns: list[Column[FailureCount]] = [
        Column("category", "category", text, lambda failure: str(failure.category)),
        Column("count", "count", format_count, lambda failure: failure.count),
        Column("share", "share", format_percent, lambda failure: failure.share),
        Column("example", "example", text, lambda failure: failure.example),
        Column("hint", "hint", text, lambda failure: failure.category.hint, translated=True),
    ]
    return Table.of("failures", columns, counts)


def limited(plateau: Plateau) -> Summary:
    """Summary of the latency that the limit is on; TTFT where no latency is limited."""
    limit = plateau.slo.primary
    return plateau.summary_of(limit.request.metric if limit else "ttft")


def _interval(find: Callable[[_T], Plateau | None]) -> list[Column[_T]]:
    """Bounds of the statistic that is limited, at the confidence at which its verdict was found."""

    def bound(name: str) -> Callable[[_T], Cell]:
        def read(thing: _T) -> Cell:
            plateau = find(thing)
            finding = plateau.judgement.primary if plateau else None
            value: float | None = getattr(finding, name, None)
            # Among failures, which are infinitely late; JSON knows no infinity.
            return None if value is None or math.isinf(value) else value

        return read

    return [
        Column("interval_low_ms", "CI low", format_ms, bound("low")),
        Column("interval_high_ms", "CI high", format_ms, bound("high")),
    ]


def _counts() -> list[Column[Level]]:
    return [
        Column("requests", "requests", format_count, lambda level: level.plateau.finished),
        Column("failed", "failed", format_count, lambda level: level.plateau.failed),
        Column("success_share", "success", format_percent, lambda level: level.plateau.success_ratio),
    ]


def _unless_wave(value: Callable[[Plateau], Cell]) -> Callable[[Level], Cell]:
    # The window of a first wave is the time in which its users started: nothing ends in it, it has no rates.
    return lambda level: None if level.selection is Selection.FIRST_WAVE else value(level.plateau)


def _client() -> list[Column[Level]]:
    """The generator's own health; in files, and in people's tables only as the warning that it gives."""
    return [
        Column("loop_lag_p50_ms", "loop lag p50", format_ms, lambda level: level.plateau.loop_lag_p50_ms),
        Column("loop_lag_p99_ms", "loop lag p99", format_ms, lambda level: level.plateau.loop_lag_p99_ms),
        Column("loop_lag_max_ms", "loop lag max", format_ms, lambda level: level.plateau.loop_lag_max_ms),
        Column(
            "client_cpu_share", "CPU of a core", format_percent, lambda level: level.plateau.client_cpu_share
        ),
        Column(
            "shared_reads_share",
            "reads shared",
            format_percent,
            lambda level: level.plateau.shared_reads_share,
        ),
    ]


def _flow() -> list[Column[Level]]:
    return [
        Column("window_s", "window s", _rate, _unless_wave(lambda seen: seen.window_s)),
        Column("in_flight", "in flight", _rate, _unless_wave(lambda seen: seen.concurrency)),
        Column("requests_per_s", "req/s", _rate, _unless_wave(lambda seen: seen.request_rate)),
        Column("output_tokens_per_s", "tok/s", format_count, _unless_wave(lambda seen: seen.output_tok_s)),
        Column(
            "little_residual_share", "Little", format_percent, _unless_wave(lambda seen: seen.little_residual)
        ),
        Column("attainment_share", "attained", format_percent, lambda level: level.plateau.attainment),
        Column("goodput_per_s", "good/s", _rate, _unless_wave(lambda seen: seen.goodput)),
    ]


_FOUR = {
    metric: " ".join(f"{metric}_{statistic}_ms" for statistic in STATISTICS)
    for metric in ("ttft", "tpot", "e2e")
}
_VIEWS = (
    (
        "Single stream: TTFT, TPOT in ms, E2E in s",
        "single_stream",
        (
            "run tier nominal_tokens prompt_tokens ttft_mean_ms tpot_mean_ms stream_tokens_per_s e2e_mean_ms "
            "ttst_mean_ms pd_handoff_p50_ms cached_share"
        ),
    ),
    ("Single stream: TTFT in ms", "single_stream", "run tier requests success_share {ttft}"),
    ("Concurrency: TTFT in ms", "concurrency", "run tier users part {ttft} requests failed success_share"),
    ("Concurrency: TPOT in ms, E2E latency in s", "concurrency", "run tier users part {tpot} {e2e}"),
    (
        "Concurrency: throughput",
        "concurrency",
        (
            "run tier users part in_flight requests_per_s output_tokens_per_s output_tokens_per_s_per_pair "
            "little_residual_share attainment_share goodput_per_s"
        ),
    ),
    (
        "Capacity under {slo}: TTFT in ms",
        "capacity",
        (
            "tier prompt_tokens max_users planned_users {ttft} failed samples attainment_share in_flight "
            "output_tokens_per_s"
        ),
    ),
    (
        "Capacity: the next step, and users if another statistic had the limit",
        "capacity",
        (
            "tier max_users limited_mean_ms interval_low_ms interval_high_ms first_failed_users "
            "first_failed_mean_ms users_by_mean users_by_p50 users_by_p95 users_by_p99"
        ),
    ),
    (
        "Levels: TTFT in ms",
        "levels",
        (
            "run tier users verdict {ttft} interval_low_ms interval_high_ms requests failed in_flight "
            "attainment_share output_tokens_per_s"
        ),
    ),
)
"""Title, table and columns, the most important first; CSV and JSON have them all."""

_LONGEST_WARNING = 4
"""Levels that one warning names; a doubt that all of twenty levels raise would bury the others."""

_SOURCES = {"requests": "every request, as recorded", "history": "Locust's history, without the requests"}


@dataclass(frozen=True, slots=True)
class View:
    """Some columns of a table, the most important first; `title` and `headings` are in the language of `say`."""

    title: str
    table: Table
    columns: tuple[Column[Any], ...]
    headings: tuple[str, ...]
    say: Speech

    @classmethod
    def of(cls, title: str, table: Table, names: Sequence[str], say: Speech) -> View:
        """Show the columns of these names."""
        by_name = {column.name: column for column in table.columns}
        # Most files hold one run, and a column of ones would only take the place of another.
        several_runs = len({row.get("run") for row in table.rows}) > 1
        columns = tuple(by_name[name] for name in names if several_runs or name != "run")
        return cls(say(title), table, columns, tuple(say(column.heading) for column in columns), say)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Rows of the table."""
        return self.table.rows

    def cells(self, row: Row) -> list[str]:
        """Texts of one row."""
        shown = [column.show(row[column.name]) for column in self.columns]
        # A tier's name or a server's message is nobody's to translate.
        return [
            self.say(cell) if column.translated else cell
            for column, cell in zip(self.columns, shown, strict=True)
        ]


def views(report: Report, say: Speech) -> list[View]:
    """Return every view that has rows."""
    found = [
        View.of(title.format(slo=report.slo), getattr(report, table), columns.format_map(_FOUR).split(), say)
        for title, table, columns in _VIEWS
    ]
    return [view for view in found if view.rows]


def facts(report: Report, say: Speech) -> list[tuple[str, str]]:
    """Return what a reader must know before the numbers, as (name, text)."""
    return [
        *((say(name), fact) for name, fact in report.run.facts()),
        (say("source"), say(_SOURCES[report.source])),
    ]


@dataclass(frozen=True, slots=True)
class Warned:
    """Doubts of one kind: `seen` says where and what, and is shortened; cause and remedy are told once."""

    seen: tuple[str, ...]
    more: str
    cause: str
    remedy: str

    def in_one_line(self, say: Speech) -> str:
        """Where, what was seen, the likely cause, what to try."""
        seen = say("; ").join((*self.seen, *([self.more] if self.more else [])))
        return f"{seen}{say('. Likely cause: ')}{self.cause}{say('. Try: ')}{self.remedy}{say('.')}"


def warned(report: Report, say: Speech) -> list[Warned]:
    """Return the doubts, those with the same cause and remedy together, in the order in which they arose."""
    groups: dict[tuple[str, str], list[str]] = {}
    for doubt in report.doubts:
        seen = f"{say(doubt.where)}{say(': ')}{say(doubt.seen)}"
        groups.setdefault((doubt.cause, doubt.remedy), []).append(seen)
    return [
        Warned(
            tuple(seen[:_LONGEST_WARNING]),
            say(f"and {len(seen) - _LONGEST_WARNING} more") if len(seen) > _LONGEST_WARNING else "",
            say(cause),
            say(remedy),
        )
        for (cause, remedy), seen in groups.items()
    ]


def notes(report: Report, say: Speech) -> list[str]:
    """Say how the numbers came about, and what is in none of them."""
    cut = f"requests cut off by the end of the run, counted nowhere else: {format_count(report.cut)}"
    return [say(note) for note in (*report.notes, *([cut] if report.cut else []))]
