"""Curves of several runs over each other, a chart for each tier and quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pd_locust.analysis.chart import Chart, Point, Series
from pd_locust.analysis.curves import STYLES
from pd_locust.analysis.report import capacity_levels
from pd_locust.analysis.table import Column, Table, text
from pd_locust.units import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pd_locust.analysis.report import Report
    from pd_locust.language import Speech
    from pd_locust.plateau import Plateau

_QUANTITIES: tuple[tuple[str, str, str, Callable[[Plateau], float | None]], ...] = (
    ("ttft", "TTFT mean", "ms", lambda seen: seen.ttft.mean),
    ("tpot", "TPOT mean", "ms", lambda seen: seen.tpot.mean),
    ("throughput", "output tok/s", "tok/s", lambda seen: seen.output_tok_s),
)
_Shown = tuple[str, "Plateau", float]


def overlaid(reports: Mapping[str, Report], say: Speech) -> list[Chart]:
    """One line for each run, by the names given; a tier with a single level in every run has no chart."""
    held = {
        name: [level.plateau for level in capacity_levels(report.held, report.run)]
        for name, report in reports.items()
    }
    tiers = dict.fromkeys(seen.tier for plateaus in held.values() for seen in plateaus)
    charts = []
    for tier in tiers:
        for key, quantity, unit, value in _QUANTITIES:
            shown: list[_Shown] = [
                (name, seen, found)
                for name, plateaus in held.items()
                for seen in plateaus
                if seen.tier == tier and seen.users and (found := value(seen)) is not None
            ]
            if len({seen.users for _, seen, _ in shown}) < 2:
                continue
            limit = next(iter(reports.values())).slo.primary if key == "ttft" else None
            charts.append(
                Chart(
                    key=f"{key}_{tier}",
                    title=f"{tier}{say(': ')}{say(quantity)}",
                    x_label=say("users"),
                    y_label=unit,
                    series=tuple(
                        Series(
                            name,
                            STYLES[place % len(STYLES)],
                            _points(name, shown, unit, say, marked=limit is not None),
                        )
                        for place, name in enumerate(held)
                    ),
                    table=_table(f"{key}_{tier}", quantity, shown),
                    limit=(limit.request.limit_ms, str(limit))
                    if limit and limit.request.metric == key
                    else None,
                )
            )
    return charts


def _points(name: str, shown: list[_Shown], unit: str, say: Speech, *, marked: bool) -> tuple[Point, ...]:
    return tuple(
        Point(
            float(seen.users or 0),
            value,
            f"{name} · {format_count(seen.users)} {say('users')} · {value:,.1f} {unit}",
            seen.verdict if marked else None,
        )
        for run, seen, value in shown
        if run == name
    )


def _table(key: str, quantity: str, shown: list[_Shown]) -> Table:
    columns: list[Column[_Shown]] = [
        Column("run", "run", text, lambda one: one[0]),
        Column("users", "users", format_count, lambda one: one[1].users),
        Column(key, quantity, lambda value: f"{value:,.2f}", lambda one: one[2]),
        Column("verdict", "verdict", text, lambda one: str(one[1].verdict), translated=True),
    ]
    return Table.of(key, columns, shown)
