"""A Report as one HTML file: nothing in it comes from elsewhere, so it opens offline and years later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from pd_locust.analysis.export import csv_tables, to_csv
from pd_locust.analysis.level_charts import curves
from pd_locust.analysis.request_charts import distributions, timeline
from pd_locust.analysis.tables import View, facts, notes, text, views, warned
from pd_locust.draw.svg import tips, to_svg
from pd_locust.language import ENGLISH
from pd_locust.units import NOT_AVAILABLE, format_count

if TYPE_CHECKING:
    from pd_locust.analysis.report import Report
    from pd_locust.analysis.tables import Column, Table
    from pd_locust.capacity import CapacityRow
    from pd_locust.language import Speech

_LONGEST_TABLE = 60
"""Rows that a page shows below a chart; a longer table is in its CSV alone."""


@dataclass(frozen=True, slots=True)
class Card:
    """A tier's answer: the number that everybody looks for, and the sentence around it."""

    tier: str
    figure: str
    unit: str
    sentence: str
    style: str


def to_html(report: Report, say: Speech = ENGLISH) -> str:
    """Answers and warnings first, then charts, tables, failures and how it was measured."""
    return render_page(
        "report.html",
        say,
        title=f"{say('PD benchmark')}: {report.prefix.name}",
        facts=facts(report, say),
        cards=_cards(report, say),
        warned=warned(report, say),
        sections=[
            (say("Against concurrency"), curves(report, say)),
            (say("Every request"), [*timeline(report, say), *distributions(report, say)]),
        ],
        views=views(report, say),
        failures=report.failures.rows,
        notes=notes(report, say),
        downloads=[table for table in csv_tables(report) if table.rows],
        prefix=report.prefix.name,
    )


def render_page(template: str, say: Speech, **content: object) -> str:
    """Fill a template; every value is escaped, and a name that it lacks is an error."""
    return _ENVIRONMENT.get_template(template).render(say=say, **content) + "\n"


def _cards(report: Report, say: Speech) -> list[Card]:
    if not report.found:
        return [Card("", "", "", say(answer), "") for answer in report.answers]
    return [
        Card(
            row.tier,
            _users(row),
            say("users"),
            say(answer),
            "pass" if row.best else "fail" if row.worst else "inconclusive",
        )
        for row, answer in zip(report.found, report.answers, strict=True)
    ]


def _users(row: CapacityRow) -> str:
    if row.best:
        return f"{'' if row.worst else '≥ '}{format_count(row.max_concurrency)}"
    return f"< {format_count(row.worst.users)}" if row.worst else NOT_AVAILABLE


def _csv_link(table: Table) -> str:
    return f"data:text/csv;charset=utf-8,{quote(to_csv(table))}"


def _short_view(table: Table, say: Speech) -> View | None:
    """Return a chart's numbers as a table, unless nobody would scroll through it."""
    if len(table.rows) > _LONGEST_TABLE:
        return None
    return View.of("", table, [column.name for column in table.columns], say)


def _is_text(column: Column[object]) -> bool:
    return column.show is text


_ENVIRONMENT = Environment(
    loader=PackageLoader("pd_locust.analysis"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(
    svg=to_svg, tips=tips, csv_link=_csv_link, short_view=_short_view, is_text=_is_text
)
