"""Charts of single requests: TTFT over the time of the run, and how latencies are distributed."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from pd_locust.analysis.chart import Chart, Point, Series, Span, cumulative_share, thinned
from pd_locust.analysis.curves import STYLES
from pd_locust.analysis.level import Kind, Level, Selection
from pd_locust.analysis.table import Column, Table, text
from pd_locust.record import Outcome, Part
from pd_locust.summary import percentile
from pd_locust.units import format_count, format_ms, format_percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from pd_locust.analysis.report import Report
    from pd_locust.language import Speech

_COLUMNS_OF_TIME = 300
_PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
_METRICS = (
    ("ttft_ms", "Distribution of TTFT", "TTFT, ms"),
    ("tpot_ms", "Distribution of TPOT", "TPOT, ms"),
    ("itl_p99_ms", "Distribution of ITL (p99 of each request)", "ITL p99, ms"),
)


def timeline(report: Report, say: Speech) -> list[Chart]:
    """TTFT of every request by the time of its sending, levels shaded; none without records."""
    levels = [level for level in report.held if level.selection is not Selection.FIRST_WAVE]
    whole = {id(level.requests): level for level in levels if level.requests is not None}
    if not whole:
        return []
    start_us = min(int(rows["sent_unix_us"].iloc[0]) for _, rows in _with_requests(whole.values()))
    spans, clouds = [], dict[tuple[str, str], list[Point]]()
    for level, rows in _with_requests(whole.values()):
        sent_s = (rows["sent_unix_us"] - start_us) / 1e6
        users = format_count(level.plateau.users)
        limited = level.plateau.client_limited
        spans.append(Span(sent_s.iloc[0], sent_s.iloc[-1], users, "limited" if limited else ""))
        for name, point in _points(level, rows, sent_s, say):
            clouds.setdefault(name, []).append(point)
    requests = sum(map(len, clouds.values()))
    tiers = list(dict.fromkeys(level.plateau.tier for level in levels))
    shown = {
        (style or STYLES[tiers.index(name) % len(STYLES)], name): thinned(
            sorted(points, key=attrgetter("x")), _COLUMNS_OF_TIME
        )
        # Tiers come first, so that what stands out of them is drawn over them.
        for (style, name), points in sorted(clouds.items(), key=lambda item: item[0][0])
    }
    kept = sum(map(len, shown.values()))
    note = say("shaded: levels, with their users; hatched: limited by the load generator")
    if kept < requests:
        drawn, everything = format_count(kept), format_count(requests)
        note += say("; ")
        note += say(f"{drawn} of {everything} requests drawn, of every moment the lowest and the highest")
    return [
        Chart(
            key="timeline",
            title=say("TTFT over time"),
            x_label=say("seconds since the first request"),
            y_label=say("TTFT, ms"),
            series=tuple(
                Series(name, style, tuple(points), line=False) for (style, name), points in shown.items()
            ),
            table=_cloud_table(list(shown.items())),
            note=note,
            spans=tuple(spans),
            wide=True,
        )
    ]


def distributions(report: Report, say: Speech) -> list[Chart]:
    """Cumulative shares of TTFT, TPOT and ITL; one line for each level that a table speaks of."""
    levels = [level for level in _spoken_of(report) if level.requests is not None][: len(STYLES)]
    charts = []
    for column, title, label in _METRICS:
        samples = {
            say(_name(level)): ordered
            for level, rows in _with_requests(levels)
            if (ordered := _ordered(level, rows, column))
        }
        if not samples:
            continue
        series = tuple(
            Series(name, STYLES[place], tuple(_share_points(name, ordered)))
            for place, (name, ordered) in enumerate(samples.items())
        )
        charts.append(
            Chart(
                key=f"distribution_{column.removesuffix('_ms')}",
                title=say(title),
                x_label=say(label),
                y_label=say("% of requests"),
                series=series,
                table=_share_table(column, samples),
                y_range=(0.0, 100.0),
            )
        )
    return charts


def _with_requests(levels: Iterable[Level]) -> Iterator[tuple[Level, pd.DataFrame]]:
    return ((level, level.requests) for level in levels if level.requests is not None)


def _points(
    level: Level, rows: pd.DataFrame, sent_s: pd.Series[float], say: Speech
) -> Iterator[tuple[tuple[str, str], Point]]:
    """Yield ((style, name of the series), point); a tier has no style yet."""
    tier = level.plateau.tier
    for x, ttft_ms, part, outcome, category in zip(
        sent_s, rows["ttft_ms"], rows["part"], rows["outcome"], rows["category"], strict=True
    ):
        if outcome == Outcome.FAILURE:
            yield (
                ("failed", say("failed")),
                Point(x, 0.0, f"{tier} · {x:,.1f} s · {say('failed')}: {category}"),
            )
        elif ttft_ms == ttft_ms and outcome == Outcome.SUCCESS:  # noqa: PLR0124 - NaN differs from itself
            wave = part == Part.WAVE and level.kind is not Kind.SINGLE
            name = ("wave", say("first wave")) if wave else ("", tier)
            yield name, Point(x, ttft_ms, f"{tier} · {x:,.1f} s · {format_ms(ttft_ms)} ms")


def _cloud_table(clouds: list[tuple[tuple[str, str], list[Point]]]) -> Table:
    columns: list[Column[tuple[str, Point]]] = [
        Column("series", "series", text, lambda row: row[0]),
        Column("sent_s", "sent, s", format_ms, lambda row: round(row[1].x, 3)),
        Column("ttft_ms", "TTFT, ms", format_ms, lambda row: row[1].y or None),
    ]
    return Table.of("timeline", columns, ((name, point) for (_, name), points in clouds for point in points))


def _spoken_of(report: Report) -> Iterator[Level]:
    best = {id(row.best) for row in report.found}
    for level in report.held:
        steady = level.kind is Kind.CONCURRENCY and level.selection is Selection.STEADY
        if level.kind is Kind.SINGLE or steady or id(level.plateau) in best:
            yield level


def _name(level: Level) -> str:
    tier, users = level.plateau.tier, format_count(level.plateau.users)
    return f"{tier}, one stream" if level.kind is Kind.SINGLE else f"{tier} at {users} users"


def _ordered(level: Level, rows: pd.DataFrame, column: str) -> list[float]:
    chosen = rows["outcome"] == Outcome.SUCCESS
    if level.selection is Selection.STEADY:
        chosen &= rows["part"] == Part.SAMPLE
    ordered: list[float] = rows.loc[chosen, column].dropna().sort_values().tolist()
    return ordered


def _share_points(name: str, ordered: list[float]) -> Iterator[Point]:
    for value, share in cumulative_share(ordered):
        yield Point(value, share * 100, f"{name} · {format_percent(round(share, 4))} ≤ {value:,.2f} ms")


def _share_table(column: str, samples: dict[str, list[float]]) -> Table:
    columns: list[Column[int]] = [
        Column("percent", "% of requests", text, lambda percent: percent),
        *(
            Column(name, name, _two_decimals, partial(percentile, ordered))
            for name, ordered in samples.items()
        ),
    ]
    return Table.of(f"distribution_{column}", columns, _PERCENTS)


def _two_decimals(value: float) -> str:
    return f"{value:,.2f}"
