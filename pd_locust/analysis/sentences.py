"""Answers: one sentence a tier, the first thing that every output says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pd_locust.analysis.tables import limited
from pd_locust.units import format_count, format_ms, format_percent

if TYPE_CHECKING:
    from pd_locust.analysis.level import Level
    from pd_locust.capacity import CapacityRow
    from pd_locust.plateau import Plateau


def capacity_answer(row: CapacityRow, headroom: float) -> str:
    """Say what a tier carries and what to plan with."""
    if row.best is None:
        if row.worst is None:
            return f"{row.tier}: no level could be judged by {row.slo}."
        if not row.worst.successes:
            return _none_succeeded(row.worst)
        seen = f"the smallest that missed it, {format_count(row.worst.users)}, had {_mean_text(row.worst)}"
        # A mean within the limit has missed it by its failures.
        failed = f", {format_count(row.worst.failed)} failed" if row.worst.failed else ""
        return f"{row.tier}: no number of users tried kept {row.slo}; {seen}{failed}."
    whose = "users" if row.alone else "users of all tiers together"
    users = f"{'' if row.worst else 'at least '}{format_count(row.max_concurrency)} {whose}"
    plan = f"plan with {format_count(row.planned_users)} ({format_percent(headroom)} headroom)"
    return f"{row.tier}: {users} keep {row.slo} ({_mean_text(row.best)}); {plan}."


def fixed_answer(level: Level) -> str:
    """Say how a tier fares with the users that it was given, where no capacity was looked for."""
    seen = level.plateau
    where = (
        f"{seen.tier} at {format_count(seen.users)} users" if seen.users != 1 else f"{seen.tier}, one stream"
    )
    if not seen.successes:
        return _none_succeeded(seen)
    ttft = f"TTFT mean {format_ms(seen.ttft.mean)} ms, p95 {format_ms(seen.ttft.p95)} ms"
    tpot = f"TPOT mean {format_ms(seen.tpot.mean)} ms"
    success = f"{format_percent(seen.success_ratio)} of {format_count(seen.finished)} requests succeeded"
    return f"{where}: {ttft}; {tpot}; {success}."


def _none_succeeded(seen: Plateau) -> str:
    where = f"{seen.tier} at {format_count(seen.users)} users"
    if not seen.finished:
        return f"{where}: no request has ended."
    return f"{where}: none of {format_count(seen.finished)} requests succeeded."


def _mean_text(plateau: Plateau) -> str:
    return f"mean {format_ms(limited(plateau).mean)} ms, {format_count(plateau.finished)} requests"
