"""A Comparison for people and programs: sentences, tables, overlaid curves, JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from pd_locust.analysis.compare import Average, CapacityLine, Comparison, FailedShares, Finding, Line
from pd_locust.analysis.level_charts import overlaid
from pd_locust.analysis.page import render_page
from pd_locust.analysis.render import print_lines, print_view
from pd_locust.analysis.rounds import MEASURES, Measure
from pd_locust.analysis.tables import Column, Table, View, text
from pd_locust.language import ENGLISH
from pd_locust.units import NOT_AVAILABLE, format_count, format_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pd_locust.language import Speech

COMPARISON_FORMAT = 1
_SHOWN = ("tok_s", "ttft_mean", "ttft_p95", "tpot_mean")
"""Measures that people are shown, throughput first; JSON has all."""
_CALLED = (Finding.FASTER, Finding.SLOWER)


def summary(compared: Comparison, say: Speech = ENGLISH) -> list[str]:
    """One sentence for each measure: for which tiers the new run is slower, faster or cannot be told apart."""
    sentences = []
    for measure in _measures_of(compared):
        averages = [one for one in compared.averages if one.measure is measure]
        told = []
        for finding in (Finding.SLOWER, Finding.FASTER, Finding.SAME, Finding.LIMITED, Finding.KNEE):
            tiers = say(", ").join(
                f"{one.tier} ({_percent(one.ratio.value)})" if one.ratio and finding in _CALLED else one.tier
                for one in averages
                if one.finding is finding
            )
            if tiers:
                told.append(say(str(finding) + f" for {tiers}"))
        sentences.append(f"{say(measure.heading)}{say(': ')}{say('; ').join(told)}{say('.')}")
    for one in compared.failures:
        _, tier, users = one.place
        old, new = map(format_percent, (one.old, one.new))
        sentences.append(say(f"{tier} at {users} users: {new} of requests failed, {old} before."))
    return sentences


def print_comparison(compared: Comparison, console: Console, say: Speech = ENGLISH) -> None:
    """Print what differs in the set-up first, then sentences and tables."""
    old, new = names(compared)
    console.print(Text(say(f"{new} compared with {old}"), style="bold"))
    print_lines(
        [f"{name}: {one or '-'} → {other or '-'}" for name, one, other in compared.differences], console
    )
    console.print()
    print_lines(summary(compared, say), console, style="bold")
    for view in comparison_views(compared, say):
        console.print()
        print_view(view, console)


def comparison_page(comparisons: Sequence[Comparison], say: Speech = ENGLISH) -> str:
    """One HTML file with overlaid curves; nothing in it comes from elsewhere."""
    old = names(comparisons[0])[0]
    reports = {old: comparisons[0].old} | {names(one)[1]: one.new for one in comparisons}
    return render_page(
        "compare.html",
        say,
        title=say("PD benchmarks compared"),
        prefix="comparison",
        charts=overlaid(reports, say),
        parts=[
            {
                "name": names(one)[1],
                "heading": say(f"{names(one)[1]} compared with {old}"),
                "differences": one.differences,
                "sentences": summary(one, say),
                "views": comparison_views(one, say),
            }
            for one in comparisons
        ],
    )


def comparison_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Plain data with stable keys; ratios are new / old."""
    return {
        "format": COMPARISON_FORMAT,
        "comparisons": [
            {
                "old": str(one.old.prefix),
                "new": str(one.new.prefix),
                "differences": [
                    dict(zip(("name", "old", "new"), difference, strict=True))
                    for difference in one.differences
                ],
                "summary": summary(one),
                "capacity": list(_capacity_table(one).rows),
                "failures": [_failure_json(shares) for shares in one.failures],
                "averages": list(_average_table(one, MEASURES).rows),
                "lines": list(_line_table(one, MEASURES).rows),
            }
            for one in comparisons
        ],
    }


def _failure_json(shares: FailedShares) -> dict[str, Any]:
    phase, tier, users = shares.place
    return {"phase": str(phase), "tier": tier, "users": users, "old": shares.old, "new": shares.new}


def comparison_views(compared: Comparison, say: Speech) -> list[View]:
    """Capacity, then a table for each measure that people are shown."""
    measures = _measures_of(compared)
    found = [
        _view(say("Capacity, users"), _capacity_table(compared), say),
        _view(say("Mean over levels, those at the knee left out"), _average_table(compared, measures), say),
    ]
    for measure in measures:
        heading = measure.heading if measure.unit in measure.heading else f"{measure.heading}, {measure.unit}"
        found.append(_view(heading, _line_table(compared, [measure]), say, without=("measure",)))
    return [view for view in found if view.rows]


def names(compared: Comparison) -> tuple[str, str]:
    """Short names of the runs; whole paths where the short ones are the same."""
    old, new = compared.old.prefix, compared.new.prefix
    return (old.name, new.name) if old.name != new.name else (str(old), str(new))


def _measures_of(compared: Comparison) -> list[Measure]:
    there = {line.measure.name for line in compared.lines}
    return [measure for name in _SHOWN for measure in MEASURES if measure.name == name and name in there]


def _view(title: str, table: Table, say: Speech, without: tuple[str, ...] = ()) -> View:
    return View.of(title, table, [column.name for column in table.columns if column.name not in without], say)


def _line_table(compared: Comparison, measures: Sequence[Measure]) -> Table:
    old, new = names(compared)
    columns: list[Column[Line]] = [
        Column("tier", "tier", text, lambda line: line.place[1]),
        Column("phase", "phase", text, lambda line: str(line.place[0])),
        Column("users", "users", format_count, lambda line: line.place[2]),
        Column("measure", "measure", text, lambda line: line.measure.name),
        Column("old", old, _number, lambda line: line.old.value),
        Column("new", new, _number, lambda line: line.new.value),
        *_ratio_columns(),
    ]
    return Table.of("lines", columns, [line for line in compared.lines if line.measure in measures])


def _average_table(compared: Comparison, measures: Sequence[Measure]) -> Table:
    columns: list[Column[Average]] = [
        Column("tier", "tier", text, lambda one: one.tier),
        Column("measure", "measure", text, lambda one: one.measure.name),
        Column("levels", "levels", format_count, lambda one: one.levels),
        *_ratio_columns(),
    ]
    rows = [one for measure in measures for one in compared.averages if one.measure is measure]
    return Table.of("averages", columns, rows)


def _capacity_table(compared: Comparison) -> Table:
    old, new = names(compared)
    columns: list[Column[CapacityLine]] = [
        Column("tier", "tier", text, lambda line: line.tier),
        Column("old", old, format_count, lambda line: line.old.max_concurrency),
        Column("new", new, format_count, lambda line: line.new.max_concurrency),
        *_ratio_columns(),
    ]
    return Table.of("capacity", columns, compared.capacities)


def _ratio_columns() -> list[Column[Any]]:
    return [
        Column("ratio", "change", _percent, lambda line: line.ratio and line.ratio.value),
        Column("ratio_low", "from", _percent, lambda line: line.ratio and line.ratio.low),
        Column("ratio_high", "to", _percent, lambda line: line.ratio and line.ratio.high),
        Column("finding", "finding", text, lambda line: str(line.finding), translated=True),
    ]


def _number(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:,.2f}"


def _percent(ratio: float | None) -> str:
    return NOT_AVAILABLE if ratio is None else f"{(ratio - 1) * 100:+.1f} %"
