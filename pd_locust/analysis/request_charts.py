"""Charts of single requests: TTFT over the time of the run, and how latencies are distributed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pd_locust.analysis.level_charts import STYLES
from pd_locust.analysis.levels import Kind, Level, Selection
from pd_locust.analysis.tables import Column, Table, text
from pd_locust.draw.chart import Chart, Point, Series, Span
from pd_locust.record import Outcome, Part
from pd_locust.summary import percentile
from pd_locust.units import format_count, format_ms, format_percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

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
    spans, clouds = [], dict[tuple[str, str], list[_Cloud]]()
    for level, rows in _with_requests(whole.values()):
        sent_s = (rows["sent_unix_us"].to_numpy() - start_us) / 1e6
        users = format_count(level.plateau.users)
        limited = level.plateau.client_limited
        spans.append(Span(float(sent_s[0]), float(sent_s[-1]), users, "limited" if limited else ""))
        for name, cloud in _clouds(level, rows, sent_s, say):
            clouds.setdefault(name, []).append(cloud)
    requests = sum(len(cloud.sent_s) for parts in clouds.values() for cloud in parts)
    tiers = list(dict.fromkeys(level.plateau.tier for level in levels))
    shown = {
        (style or STYLES[tiers.index(name) % len(STYLES)], name): _drawn(parts, say)
        # Tiers come first, so that what stands out of them is drawn over them.
        for (style, name), parts in sorted(clouds.items(), key=lambda item: item[0][0])
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


@dataclass(frozen=True, slots=True)
class _Cloud:
    """Requests of one level in one series. `categories` are those of failures, empty among successes."""

    tier: str
    sent_s: NDArray[np.float64]
    ttft_ms: NDArray[np.float64]
    categories: list[str]


def _clouds(
    level: Level, rows: pd.DataFrame, sent_s: NDArray[np.float64], say: Speech
) -> Iterator[tuple[tuple[str, str], _Cloud]]:
    """Yield ((style, name of the series), cloud); a tier has no style yet."""
    tier, ttft_ms = level.plateau.tier, rows["ttft_ms"].to_numpy(float)
    good = (rows["outcome"] == Outcome.SUCCESS).to_numpy() & ~np.isnan(ttft_ms)
    failed = (rows["outcome"] == Outcome.FAILURE).to_numpy()
    wave = (rows["part"] == Part.WAVE).to_numpy() & good & (level.kind is not Kind.SINGLE)
    for name, chosen in ((("", tier), good & ~wave), (("wave", say("first wave")), wave)):
        if chosen.any():
            yield name, _Cloud(tier, sent_s[chosen], ttft_ms[chosen], [])
    if failed.any():
        categories = rows.loc[failed, "category"].astype(str).tolist()
        yield ("failed", say("failed")), _Cloud(tier, sent_s[failed], np.zeros(failed.sum()), categories)


def _drawn(parts: list[_Cloud], say: Speech) -> list[Point]:
    """Points of a series that can be told apart: only for them is there a text."""
    sent_s = np.concatenate([part.sent_s for part in parts])
    ttft_ms = np.concatenate([part.ttft_ms for part in parts])
    places = thinned_places(sent_s, ttft_ms, _COLUMNS_OF_TIME)
    firsts = np.cumsum([0, *(len(part.sent_s) for part in parts)])
    points = []
    for place in places.tolist():
        of = int(np.searchsorted(firsts, place, side="right")) - 1
        part, x, y = parts[of], float(sent_s[place]), float(ttft_ms[place])
        if part.categories:
            what = f"{say('failed')}: {part.categories[place - int(firsts[of])]}"
        else:
            what = f"{format_ms(y)} ms"
        points.append(Point(x, y, f"{part.tier} · {x:,.1f} s · {what}"))
    return points


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


def cumulative_share(ordered: Sequence[float], at_most: int = 200) -> list[tuple[float, float]]:
    """Points (value, share of values up to it) of an empirical distribution, thinned evenly by rank."""
    count = len(ordered)
    return [(ordered[rank], (rank + 1) / count) for rank in _even_ranks(count, at_most)]


def thinned_places(
    x: NDArray[np.float64], y: NDArray[np.float64], columns: int, each: int = 8
) -> NDArray[np.intp]:
    """Places of points to draw: at most `each` of each of `columns` stretches of x, lowest, highest and between.

    Those between are even by rank. Nothing extreme is lost, and the file stays small however long the run.
    Places come in order of x's stretches, or of x when all are drawn.
    """
    by_x = np.argsort(x, kind="stable")
    if len(x) <= each * columns:
        return by_x
    x, y = x[by_x], y[by_x]
    stretch = ((x - x[0]) / ((x[-1] - x[0]) / columns or 1.0)).astype(np.int64)
    by_height = by_x[np.lexsort((y, stretch))]
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    parts = np.split(by_height, starts[1:])
    return np.concatenate([part[_even_ranks(len(part), each)] for part in parts])


def _even_ranks(count: int, at_most: int) -> list[int]:
    """Return ranks from the first to the last."""
    kept = min(at_most, count)
    return sorted({round(n * (count - 1) / max(1, kept - 1)) for n in range(kept)})
