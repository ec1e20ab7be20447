"""A Plan for people and programs: what is needed, what of it was measured, and what cannot be concluded."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pd_locust.analysis.tables import Column, Table, View, text
from pd_locust.units import format_count, format_ms, format_percent

if TYPE_CHECKING:
    from pd_locust.language import Speech
    from pd_locust.planning import Plan, TierPlan

_BINDS = (
    "not known: whether prefill or decode binds. One topology cannot tell; a run with max_tokens 1 (prefill alone), "
    "a run with short prompts and long outputs (decode), or the server's metrics can"
)


def answer(plan: Plan, say: Speech) -> str:
    """Say how many pairs the mix needs."""
    mix = ", ".join(f"{tier.tier} {tier.rate_per_s:g}/s" for tier in plan.tiers)
    headroom = format_percent(plan.headroom)
    if plan.pairs_needed == 1:
        return say(f"{mix}: 1 pair with {headroom} headroom, {plan.pairs_with_spare} with one to spare.")
    return say(
        f"{mix}: {plan.pairs_needed} pairs with {headroom} headroom, {plan.pairs_with_spare} with one to spare."
    )


def plan_view(plan: Plan, say: Speech) -> View:
    """One row a tier."""
    columns: list[Column[TierPlan]] = [
        Column("tier", "tier", text, lambda tier: tier.tier),
        Column("users", "max users", format_count, lambda tier: tier.users),
        Column("requests_per_s", "carries req/s", format_ms, lambda tier: tier.requests_per_s),
        Column("users_per_pair", "users /pair", format_ms, lambda tier: tier.users / plan.pairs),
        Column(
            "requests_per_s_per_pair", "req/s /pair", format_ms, lambda tier: tier.requests_per_s / plan.pairs
        ),
        Column("rate_per_s", "asked req/s", format_ms, lambda tier: tier.rate_per_s),
        Column("users_in_flight", "in flight", format_ms, lambda tier: tier.users_in_flight),
        Column("share", "share", format_percent, lambda tier: tier.share),
    ]
    table = Table.of("plan", columns, plan.tiers)
    title = say(f"Plan, from a deployment of {plan.pairs} pairs")
    return View.of(title, table, [column.name for column in columns], say)


def remarks(plan: Plan, say: Speech, *, pairs_known: bool) -> list[str]:
    """Say what was measured, what is extrapolated and what cannot be concluded."""
    told = [
        say(
            f"measured: {tier.tier} alone, {'at least ' if tier.at_least else ''}{tier.users} users, "
            f"TTFT mean {format_ms(tier.ttft_ms)} ms, TPOT mean {format_ms(tier.tpot_ms)} ms, "
            f"{format_count(tier.output_tokens)} output tokens"
        )
        for tier in plan.tiers
    ]
    if len(plan.tiers) > 1:
        told.append(
            say("extrapolated: that tiers share a deployment in proportion; the mix itself was not run")
        )
    if not pairs_known:
        told.append(
            say("the number of pairs is not known (--pairs, or the label pairs): one pair stands for it all")
        )
    if plan.pairs_needed != plan.pairs:
        told.append(
            say(
                "extrapolated: that capacity grows with the number of pairs; router and network may not allow it"
            )
        )
    return [*told, say(_BINDS)]


def to_json(plan: Plan) -> dict[str, Any]:
    """Plain data with stable keys."""
    return {"format": 1, **asdict(plan), "pairs_with_spare": plan.pairs_with_spare}
