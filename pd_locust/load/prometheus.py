"""What the tab shows, as Prometheus scrapes it: the text format, base units, one family after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}
_RATES = {
    "requests_per_s": "requests_per_second",
    "output_tokens_per_s": "output_tokens_per_second",
    "goodput_per_s": "goodput_per_second",
}


def exposition(shown: dict[str, Any]) -> str:
    """Return the document of `pd/live` as metrics. Latencies and rates are of the last 30 s; absent ones are left out.

    Counters begin again with each run.
    """
    return "".join(f"{line}\n" for family in _families(shown) for line in family)


def _families(shown: dict[str, Any]) -> Iterator[list[str]]:
    yield _family("users", "gauge", [("", shown["users"])])
    tiers = [(_quoted(tier["tier"]), tier) for tier in shown["tiers"]]
    yield _family("in_flight", "gauge", [(f"tier={name}", tier["in_flight"]) for name, tier in tiers])
    yield _family(
        "requests_total",
        "counter",
        [
            (f'tier={name},outcome="{outcome}"', value)
            for name, tier in tiers
            for outcome, value in (
                ("success", tier["finished"] - tier["failed"]),
                ("failure", tier["failed"]),
                ("cut", tier["cut"]),
            )
        ],
    )
    windows = [(name, tier["window"]) for name, tier in tiers if tier["window"]]
    for metric in ("ttft", "tpot"):
        seen = [(name, window[f"{metric}_ms"]) for name, window in windows]
        quantiles = [
            (f'tier={name},quantile="{quantile}"', _seconds(summary[key]))
            for name, summary in seen
            for key, quantile in _QUANTILES.items()
        ]
        yield _family(f"{metric}_seconds", "gauge", quantiles)
        means = [(f"tier={name}", _seconds(summary["mean"])) for name, summary in seen]
        yield _family(f"{metric}_mean_seconds", "gauge", means)
    for key, rate in _RATES.items():
        yield _family(rate, "gauge", [(f"tier={name}", window[key]) for name, window in windows])
    client = shown["client"]
    yield _family(
        "client_loop_lag_seconds", "gauge", [('quantile="0.99"', _seconds(client["loop_lag_p99_ms"]))]
    )
    yield _family("client_cpu_share", "gauge", [("", client["cpu_share"])])


def _family(name: str, kind: str, samples: list[tuple[str, float | None]]) -> list[str]:
    lines = [
        f"pd_locust_{name}{{{labels}}} {value!r}" if labels else f"pd_locust_{name} {value!r}"
        for labels, value in samples
        if value is not None
    ]
    return [f"# TYPE pd_locust_{name} {kind}", *lines] if lines else []


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
