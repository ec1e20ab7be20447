"""Totals of the server in Prometheus' text format, under vLLM's names where they fit."""

from bisect import bisect_left
from collections import Counter

from pd_sim.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT_BOUNDS_S = tuple(
    ms / 1000
    for ms in (1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1000, 2500, 5000, 10_000, 20_000, 40_000)
)
_LATENESS_BOUNDS_S = (0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)


class Histogram:
    """Counts per upper bound, in seconds."""

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, value_s: float, times: int = 1) -> None:
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
    """Running totals; the gauges are read from the service at each scrape."""

    def __init__(self, model: str, prompt_source: str) -> None:
        self._labels = f'model_name="{model}",engine="0"'
        self._prompt_source = prompt_source
        self.prompt_tokens = self.cached_tokens = self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.ttft = Histogram(_TTFT_BOUNDS_S)
        self.lateness = Histogram(_LATENESS_BOUNDS_S)

    def render(self, service: Service) -> bytes:
        """Return the whole page."""
        labels = self._labels
        source = f'{labels},source="{self._prompt_source}"'
        values: list[tuple[str, str, str, float]] = [
            ("gauge", "vllm:num_requests_running", labels, service.running),
            ("gauge", "vllm:num_requests_waiting", labels, service.waiting),
            ("gauge", "vllm:kv_cache_usage_perc", labels, service.kv_usage_ratio),
            ("counter", "vllm:prompt_tokens_total", labels, self.prompt_tokens),
            ("counter", "vllm:prompt_tokens_cached_total", labels, self.cached_tokens),
            ("counter", "vllm:generation_tokens_total", labels, self.generation_tokens),
            ("counter", "vllm:prompt_tokens_by_source_total", source, self.prompt_tokens),
        ]
        lines: list[str] = []
        for kind, name, labelled, value in values:
            lines += [f"# TYPE {name} {kind}", f"{name}{{{labelled}}} {value}"]
        lines.append("# TYPE vllm:request_success_total counter")
        lines += [
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {count}'
            for reason, count in sorted(self.finished.items())
        ]
        lines += self.ttft.lines("vllm:time_to_first_token_seconds", labels)
        # Writing time less model time of each token: when it grows, the simulator itself is the bottleneck.
        lines += self.lateness.lines("pd_locust_sim:token_lateness_seconds", labels)
        return "\n".join([*lines, ""]).encode()
