"""What of a Report's tables people are shown, and in which order: the same in terminal, Markdown and HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pd_locust.capacity import STATISTICS
from pd_locust.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.analysis.report import Report
    from pd_locust.analysis.table import Column, Row, Table
    from pd_locust.language import Speech

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
