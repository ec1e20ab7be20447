"""Charts of levels: latency, pace and throughput against concurrency, and against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pd_locust.analysis.report import capacity_levels
from pd_locust.analysis.tables import Column, Table, text
from pd_locust.capacity import STATISTICS
from pd_locust.draw.chart import Chart, Point, Series
from pd_locust.units import format_count, format_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pd_locust.analysis.report import Report
    from pd_locust.language import Speech
    from pd_locust.plateau import Plateau
    from pd_locust.slo import LatencyLimit

STYLES = ("c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7")
_STATISTIC_STYLES = dict(zip(STATISTICS, ("mean", "p50", "p95", "p99"), strict=True))
_BELOW_TIERS = (
    *("tier", "users", "verdict", "ttft_mean_ms"),
    *("tpot_mean_ms", "tpot_p95_ms", "requests_per_s", "output_tokens_per_s"),
)


def curves(report: Report, say: Speech) -> list[Chart]:
    """One chart of TTFT for each tier, then all tiers together; none where no tier has two levels."""
    tiers: dict[str, list[Plateau]] = {}
    for level in capacity_levels(report.held, report.run):
        tiers.setdefault(level.plateau.tier, []).append(level.plateau)
    if all(len(plateaus) < 2 for plateaus in tiers.values()):
        return []
    limit = report.slo.primary
    charts = [_ttft(report, tier, plateaus, limit, say) for tier, plateaus in tiers.items()]
    table = _columns_of(report.levels, "against_concurrency", _BELOW_TIERS)
    users, tokens = say("users"), say("output tok/s")
    tpot = Chart(
        key="tpot",
        title=say("TPOT against concurrency"),
        x_label=users,
        y_label=say("TPOT mean, ms"),
        series=_by_tier(tiers, lambda seen: seen.users, lambda seen: seen.tpot.mean, "ms", say),
        table=table,
        limit=_limit_line(limit, "tpot"),
    )
    throughput = Chart(
        key="throughput",
        title=say("Throughput against concurrency"),
        x_label=users,
        y_label=tokens,
        series=_by_tier(tiers, lambda seen: seen.users, lambda seen: seen.output_tok_s or None, "tok/s", say),
        table=table,
    )
    exchange = Chart(
        key="exchange",
        title=say("Throughput against latency"),
        x_label=tokens,
        y_label=say("TTFT mean, ms"),
        series=_by_tier(
            tiers, lambda seen: seen.output_tok_s, lambda seen: seen.ttft.mean, "ms", say, labelled=True
        ),
        table=table,
        note=say("numbers at the points: users"),
        limit=_limit_line(limit, "ttft"),
    )
    return [chart for chart in (*charts, tpot, throughput, exchange) if chart.series]


def _ttft(
    report: Report, tier: str, plateaus: Sequence[Plateau], limit: LatencyLimit | None, say: Speech
) -> Chart:
    limited = limit.statistic if limit and limit.request.metric == "ttft" else "mean"
    statistics = dict.fromkeys((*STATISTICS, limited))
    band = [
        (float(seen.users or 0), finding.low, finding.high)
        for seen in plateaus
        if (finding := seen.judgement.primary) and finding.low is not None and finding.high is not None
    ]
    names = [
        "users",
        "verdict",
        *(f"ttft_{name}_ms" for name in STATISTICS),
        "interval_low_ms",
        "interval_high_ms",
    ]
    series = [_statistic(plateaus, name, say, marked=name == limited) for name in statistics]
    return Chart(
        key=f"ttft_{tier}",
        title=say(f"TTFT against concurrency: {tier}"),
        x_label=say("users"),
        y_label=say("TTFT, ms"),
        series=tuple(one for one in series if one.points),
        table=_columns_of(report.levels, f"ttft_{tier}", names, tier),
        limit=_limit_line(limit, "ttft"),
        band=tuple(band) if limit and limit.request.metric == "ttft" else (),
    )


def _statistic(plateaus: Iterable[Plateau], name: str, say: Speech, *, marked: bool) -> Series:
    points = []
    for seen in plateaus:
        finding = seen.judgement.primary
        # A limit may be on a percentile that no table has.
        value = getattr(seen.ttft, name, None if finding is None else finding.observed)
        if value is None or seen.users is None:
            continue
        verdict = f" · {say(seen.verdict)}" if marked else ""
        tip = f"{format_count(seen.users)} {say('users')} · {name} {format_ms(value)} ms{verdict}"
        points.append(Point(seen.users, value, tip, seen.verdict if marked else None))
    return Series(say(name), _STATISTIC_STYLES.get(name, "mean"), tuple(points))


def _by_tier(
    tiers: dict[str, list[Plateau]],
    x: Callable[[Plateau], float | None],
    y: Callable[[Plateau], float | None],
    unit: str,
    say: Speech,
    *,
    labelled: bool = False,
) -> tuple[Series, ...]:
    found = []
    for place, (tier, plateaus) in enumerate(tiers.items()):
        points = tuple(
            Point(
                across,
                up,
                f"{tier} · {format_count(seen.users)} {say('users')} · {up:,.1f} {unit}",
                label=format_count(seen.users) if labelled else "",
            )
            for seen in plateaus
            if (across := x(seen)) is not None and (up := y(seen)) is not None
        )
        if points:
            found.append(Series(tier, STYLES[place % len(STYLES)], points))
    return tuple(found)


def _limit_line(limit: LatencyLimit | None, metric: str) -> tuple[float, str] | None:
    return (limit.request.limit_ms, str(limit)) if limit and limit.request.metric == metric else None


def _columns_of(table: Table, title: str, columns: Sequence[str], tier: str | None = None) -> Table:
    by_name = {column.name: column for column in table.columns}
    rows = ({name: row[name] for name in columns} for row in table.rows if tier in (None, row["tier"]))
    return Table(title, tuple(by_name[name] for name in columns), tuple(rows))


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
