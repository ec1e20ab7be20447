"""Server metrics in Prometheus' text format, under vLLM's names where they fit."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pd_sim.job import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT_BOUNDS_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    10.0,
    20.0,
    40.0,
)
_LATENESS_BOUNDS_S = (0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)


class Histogram:
    """Counts per upper bound, in seconds."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, value_s: float, times: int = 1) -> None:
        """Count one value, or several equal ones."""
        self._counts[bisect_left(self._bounds_s, value_s)] += times
        self._sum_s += value_s * times

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the exposition lines."""
        lines = [f"# TYPE {name} histogram"]
        below = 0
        for bound_s, count in zip((*self._bounds_s, "+Inf"), self._counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{{labels},le="{bound_s}"}} {below}')
        return [*lines, f"{name}_sum{{{labels}}} {self._sum_s}", f"{name}_count{{{labels}}} {below}"]


class Metrics:
    """Running totals; the gauges are read from the service when asked for."""

    def __init__(self, model: str, prompt_source: str) -> None:
        self._labels = f'model_name="{model}",engine="0"'
        self._prompt_source = prompt_source
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.ttft = Histogram(_TTFT_BOUNDS_S)
        self.lateness = Histogram(_LATENESS_BOUNDS_S)

    def render(self, service: Service) -> bytes:
        """Return the whole page."""
        counters = {
            "vllm:prompt_tokens_total": self.prompt_tokens,
            "vllm:prompt_tokens_cached_total": self.cached_tokens,
            "vllm:generation_tokens_total": self.generation_tokens,
        }
        gauges = {
            "vllm:num_requests_running": service.running,
            "vllm:num_requests_waiting": service.waiting,
            "vllm:kv_cache_usage_perc": service.kv_usage_ratio,
        }
        lines: list[str] = []
        for kind, values in (("gauge", gauges), ("counter", counters)):
            for name, value in values.items():
                lines += [f"# TYPE {name} {kind}", f"{name}{{{self._labels}}} {value}"]
        source = f'{self._labels},source="{self._prompt_source}"'
        lines += [
            "# TYPE vllm:prompt_tokens_by_source_total counter",
            f"vllm:prompt_tokens_by_source_total{{{source}}} {self.prompt_tokens}",
            "# TYPE vllm:request_success_total counter",
        ]
        lines += [
            f'vllm:request_success_total{{{self._labels},finished_reason="{reason}"}} {count}'
            for reason, count in sorted(self.finished.items())
        ]
        lines += self.ttft.lines("vllm:time_to_first_token_seconds", self._labels)
        # Writing time less model time of each token: when it grows, the simulator itself is the bottleneck.
        lines += self.lateness.lines("pd_locust_sim:token_lateness_seconds", self._labels)
        return "\n".join([*lines, ""]).encode()
