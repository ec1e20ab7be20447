"""A Report for people: rich tables in a terminal, GitHub tables in Markdown; the same views in both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from pd_locust.analysis import tables
from pd_locust.capacity import STATISTICS
from pd_locust.units import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pd_locust.analysis.report import Report

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
            "tier max_users limited_mean_ms first_failed_users first_failed_mean_ms "
            "users_by_mean users_by_p50 users_by_p95 users_by_p99"
        ),
    ),
    (
        "Levels: TTFT in ms",
        "levels",
        "run tier users verdict {ttft} requests failed in_flight attainment_share output_tokens_per_s",
    ),
)
"""Title, table and columns of what people are shown, the most important first; CSV and JSON have them all."""


@dataclass(frozen=True, slots=True)
class _View:
    """Some columns of a table, the most important first: a narrow terminal drops them from the end."""

    title: str
    columns: tuple[tables.Column[Any], ...]
    rows: tuple[tables.Row, ...]

    def cells(self, row: tables.Row) -> list[str]:
        return [column.show(row[column.name]) for column in self.columns]


def render_terminal(report: Report, console: Console) -> None:
    """Print the answers, then the tables, failures, warnings and notes."""
    console.print(Text(f"{report.prefix}: {_SOURCES[report.source]}", style="bold"))
    _print_lines([f"{name}: {fact}" for name, fact in report.run.facts()], console, mark="  ")
    console.print()
    _print_lines(list(report.answers), console, style="bold green")
    for view in _views(report):
        console.print()
        _print_view(view, console)
    if report.failures.rows:
        console.print()
        _print_view(_view("Failures", report.failures, ["category", "count", "share", "example"]), console)
        _print_lines(
            [f"{row['category']}: {row['hint']}" for row in report.failures.rows], console, mark="- "
        )
    if report.doubts:
        console.print(Text("\nWarnings", style="bold"))
        _print_lines([str(doubt) for doubt in report.doubts], console, mark="- ", style="yellow")
    console.print(Text("\nHow it was measured", style="bold"))
    _print_lines(_notes(report), console, mark="- ", style="dim")


def to_markdown(report: Report) -> str:
    """One GitHub page: what was measured, the answers, the tables, warnings, failures with hints."""
    parts = [f"# PD benchmark: {report.prefix.name}"]
    facts = [*report.run.facts(), ("source", _SOURCES[report.source])]
    parts.append(_markdown_table([("", ""), *facts], "ll"))
    if report.answers:
        parts.append("\n".join(f"- **{_escaped(sentence)}**" for sentence in report.answers))
    for view in _views(report):
        parts += [f"## {view.title}", _markdown_view(view)]
    if report.failures.rows:
        parts += ["## Failures", _markdown_view(_View("", report.failures.columns, report.failures.rows))]
    if report.doubts:
        parts += ["## Warnings", "\n".join(f"- {_escaped(str(doubt))}" for doubt in report.doubts)]
    parts += ["## How it was measured", "\n".join(f"- {_escaped(note)}" for note in _notes(report))]
    return "\n\n".join(parts) + "\n"


_SOURCES = {"requests": "every request, as recorded", "history": "Locust's history, without the requests"}


def _views(report: Report) -> list[_View]:
    views = [
        _view(title.format(slo=report.slo), getattr(report, table), columns.format_map(_FOUR).split())
        for title, table, columns in _VIEWS
    ]
    return [view for view in views if view.rows]


def _view(title: str, table: tables.Table, names: Sequence[str]) -> _View:
    by_name = {column.name: column for column in table.columns}
    # Most files hold one run, and a column of ones would only take the place of another.
    several_runs = len({row.get("run") for row in table.rows}) > 1
    return _View(title, tuple(by_name[name] for name in names if several_runs or name != "run"), table.rows)


def _notes(report: Report) -> list[str]:
    cut = f"requests cut off by the end of the run, counted nowhere else: {format_count(report.cut)}"
    return [*report.notes, *([cut] if report.cut else [])]


def _print_view(view: _View, console: Console) -> None:
    columns, padding = view.columns, 1
    while _width(table := _rich_table(view, columns, padding), console) > console.width and len(columns) > 1:
        # First the columns move together, then the least important ones go.
        columns, padding = (columns, 0) if padding else (columns[:-1], 0)
    console.print(Text(view.title, style="bold"))
    console.print(table)
    if left_out := [column.heading for column in view.columns[len(columns) :]]:
        _print_lines([f"left out at this width: {', '.join(left_out)}"], console, style="dim")


def _width(table: RichTable, console: Console) -> int:
    """Columns of the terminal that the table would like; asked without the limit that it has."""
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _rich_table(view: _View, columns: tuple[tables.Column[Any], ...], padding: int) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, padding, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        is_text = column.show is tables.text
        heading = Text(column.heading.replace(" ", "\n"))
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=column.name != "example")
    for row in view.rows:
        table.add_row(*(Text(cell) for cell in view.cells(row)[: len(columns)]))
    return table


def _print_lines(lines: list[str], console: Console, *, mark: str = "", style: str = "") -> None:
    """Each line wrapped and indented under its mark. A rich grid would do it with blanks up to the margin."""
    for line in lines:
        wrapped = Text(line, style=style).wrap(console, max(20, console.width - len(mark)))
        for number, part in enumerate(wrapped):
            part.rstrip()
            console.print(Text(mark if not number else " " * len(mark)).append_text(part), highlight=False)


def _markdown_view(view: _View) -> str:
    headings = tuple(column.heading for column in view.columns)
    align = "".join("l" if column.show is tables.text else "r" for column in view.columns)
    return _markdown_table([headings, *(tuple(view.cells(row)) for row in view.rows)], align)


def _markdown_table(rows: list[tuple[str, ...]], align: str) -> str:
    lines = [f"| {' | '.join(map(_escaped, row))} |" for row in rows]
    lines.insert(1, f"|{'|'.join({'l': '---', 'r': '---:'}[side] for side in align)}|")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    # A pipe or a tag in a server's message must not become markup.
    text = re.sub(r"<(?=[A-Za-z/!])", "&lt;", text)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
