"""The tables of a report, with all their columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from pd_locust.analysis.level import Level, Selection
from pd_locust.analysis.table import Cell, Column, Table, text
from pd_locust.capacity import STATISTICS, CapacityRow
from pd_locust.units import NOT_AVAILABLE, format_count, format_ms, format_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pd_locust.analysis.requests import FailureCount
    from pd_locust.plateau import Plateau
    from pd_locust.summary import Summary

_T = TypeVar("_T")


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
