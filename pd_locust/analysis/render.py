"""A Report for people: rich tables in a terminal, GitHub tables in Markdown; the same views in both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from pd_locust.analysis.tables import View, facts, notes, views, warned
from pd_locust.analysis.tables import text as as_text
from pd_locust.language import ENGLISH

if TYPE_CHECKING:
    from rich.console import Console

    from pd_locust.analysis.report import Report
    from pd_locust.analysis.tables import Column
    from pd_locust.language import Speech

_FAILURES = ("category", "count", "share", "example")


def render_terminal(report: Report, console: Console, say: Speech = ENGLISH) -> None:
    """Print the answers, then the tables, failures, warnings and notes."""
    *known, (_, source) = facts(report, say)
    console.print(Text(f"{report.prefix}: {source}", style="bold"))
    print_lines([f"{name}: {fact}" for name, fact in known], console, mark="  ")
    console.print()
    print_lines([say(answer) for answer in report.answers], console, style="bold green")
    for view in views(report, say):
        console.print()
        print_view(view, console)
    if report.failures.rows:
        console.print()
        print_view(View.of("Failures", report.failures, _FAILURES, say), console)
        hints = [f"{row['category']}: {say(str(row['hint']))}" for row in report.failures.rows]
        print_lines(hints, console, mark="- ")
    if report.doubts:
        console.print(Text(f"\n{say('Warnings')}", style="bold"))
        print_lines([one.in_one_line(say) for one in warned(report, say)], console, mark="- ", style="yellow")
    console.print(Text(f"\n{say('How it was measured')}", style="bold"))
    print_lines(notes(report, say), console, mark="- ", style="dim")


def to_markdown(report: Report, say: Speech = ENGLISH) -> str:
    """One GitHub page: what was measured, the answers, the tables, warnings, failures with hints."""
    parts = [
        f"# {say('PD benchmark')}: {report.prefix.name}",
        markdown_table([("", ""), *facts(report, say)], "ll"),
    ]
    if report.answers:
        parts.append("\n".join(f"- **{escaped(say(sentence))}**" for sentence in report.answers))
    for view in views(report, say):
        parts += [f"## {view.title}", markdown_view(view)]
    if report.failures.rows:
        view = View.of("Failures", report.failures, (*_FAILURES, "hint"), say)
        parts += [f"## {view.title}", markdown_view(view)]
    if report.doubts:
        told = [f"- {escaped(one.in_one_line(say))}" for one in warned(report, say)]
        parts += [f"## {say('Warnings')}", "\n".join(told)]
    measured = "\n".join(f"- {escaped(note)}" for note in notes(report, say))
    return "\n\n".join([*parts, f"## {say('How it was measured')}", measured]) + "\n"


def print_view(view: View, console: Console) -> None:
    """Print a table; a narrow terminal leaves out columns from the end and says which."""
    columns, padding = view.columns, 1
    while _width(table := _rich_table(view, columns, padding), console) > console.width and len(columns) > 1:
        # First the columns move together, then the least important ones go.
        columns, padding = (columns, 0) if padding else (columns[:-1], 0)
    console.print(Text(view.title, style="bold"))
    console.print(table)
    if left_out := view.headings[len(columns) :]:
        said = view.say(f"left out at this width: {', '.join(left_out)}")
        print_lines([said], console, style="dim")


def _width(table: RichTable, console: Console) -> int:
    """Columns of the terminal that the table would like; asked without the limit that it has."""
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _rich_table(view: View, columns: tuple[Column[Any], ...], padding: int) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, padding, 0, 0), pad_edge=False, show_edge=False)
    for column, words in zip(columns, view.headings, strict=False):
        is_text = column.show is as_text
        heading = Text(words.replace(" ", "\n"))
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=column.name != "example")
    for row in view.rows:
        table.add_row(*(Text(cell) for cell in view.cells(row)[: len(columns)]))
    return table


def print_lines(lines: list[str], console: Console, *, mark: str = "", style: str = "") -> None:
    """Each line wrapped and indented under its mark. A rich grid would do it with blanks up to the margin."""
    for line in lines:
        wrapped = Text(line, style=style).wrap(console, max(20, console.width - len(mark)))
        for number, part in enumerate(wrapped):
            part.rstrip()
            console.print(Text(mark if not number else " " * len(mark)).append_text(part), highlight=False)


def markdown_view(view: View) -> str:
    """Show every column as GitHub's table."""
    align = "".join("l" if column.show is as_text else "r" for column in view.columns)
    return markdown_table([view.headings, *(tuple(view.cells(row)) for row in view.rows)], align)


def markdown_table(rows: list[tuple[str, ...]], align: str) -> str:
    """GitHub's table; the first row is its heading, `align` has l or r for each column."""
    lines = [f"| {' | '.join(map(escaped, row))} |" for row in rows]
    lines.insert(1, f"|{'|'.join({'l': '---', 'r': '---:'}[side] for side in align)}|")
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Keep what others wrote from becoming markup."""
    # A pipe or a tag in a server's message must not become markup.
    text = re.sub(r"<(?=[A-Za-z/!])", "&lt;", text)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
