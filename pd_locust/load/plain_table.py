"""Locust's own table in our tab: what is seen where our script does not run."""

from __future__ import annotations

from typing import Any

COLUMNS = {
    "name": "Tier",
    "users": "Users",
    "finished": "# Finished",
    "failed": "# Failed",
    **{
        f"{metric}_{statistic}": f"{metric.upper()} {statistic} (ms)"
        for metric in ("ttft", "tpot")
        for statistic in ("mean", "p50", "p95", "p99")
    },
    "output_tokens_per_s": "tok/s",
    "in_flight": "In flight",
    "goodput_per_s": "Goodput/s",
}


def row_of(tier: dict[str, Any]) -> dict[str, Any]:
    """One line of the table; a missing number reads n/a, where Locust would print nothing."""
    level, window = tier["level"] or {}, tier["window"] or {}
    row = {
        "name": tier["tier"],
        "users": level.get("users"),
        **{key: tier[key] for key in ("finished", "failed")},
    }
    for metric in ("ttft", "tpot"):
        for statistic in ("mean", "p50", "p95", "p99"):
            value = level.get(f"{metric}_ms", {}).get(statistic)
            row[f"{metric}_{statistic}"] = None if value is None else round(value, 3)
    for key in ("output_tokens_per_s", "goodput_per_s"):
        value = window.get(key)
        row[key] = None if value is None else round(value, 1)
    return {
        key: "n/a" if value is None else value
        for key, value in (row | {"in_flight": tier["in_flight"]}).items()
    }
