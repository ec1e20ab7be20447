"""The benchmark's protocol as a Locust shape: it only obeys the list of phases."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from locust import LoadTestShape

from pd_locust.errors import ConfigError
from pd_locust.load.options import read_levels, split_names
from pd_locust.phase import Phase, PhaseKind, benchmark_phases
from pd_locust.record import Outcome
from pd_locust.tier import choose_tiers
from pd_locust.units import format_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.load.plugin import Plugin, Seen

_DEFAULT_CONCURRENCY = 64
_COUNT_LIMIT_S = 3600.0
_SPAWN_RATE = 100.0


class BenchmarkShape(LoadTestShape):  # type: ignore[misc]
    """Runs one phase after another; the users of the next one are asked for when the last has drained.

    Locust calls `tick` once a second and starts the users that it returns; a phase is held inside of
    `tick`, so that it ends when it is complete and not at the next full second. `--users` is the
    concurrency of the exact-count part, `--run-time` ends the run early.
    """

    abstract = True
    use_common_options = True

    def __init__(self) -> None:
        super().__init__()
        self._phases: list[Phase] | None = None
        self._position = 0
        self._begun_s = 0.0

    def reset_time(self) -> None:
        """Start over. Locust calls this again after the first tick, when the phases are already known."""
        super().reset_time()
        if self._position <= 1:
            return
        self._phases = None
        self._position = 0

    def tick(self) -> tuple[int, float] | None:
        """Hold the phase whose users are there, then name the users of the next one; None ends the run."""
        plugin: Plugin = self.runner.environment.pd_plugin
        if self._phases is None:
            self._phases = plan(plugin.settings, self.runner.environment.parsed_options)
            self._position = 0
            self._begun_s = time.monotonic()
        elif self._position and not self._hold(plugin, self._phases):
            return None
        if self._position >= len(self._phases):
            self._phases = None
            return None
        phase = self._phases[self._position]
        self._position += 1
        # As fast as Locust likes it: users wait at the gate, and the phase spreads their first requests itself.
        return phase.users or 1, _SPAWN_RATE

    def _hold(self, plugin: Plugin, phases: Sequence[Phase]) -> bool:
        if plugin.refused:
            return False
        options: Any = self.runner.environment.parsed_options
        run_time_s = options.run_time
        until_s = self._begun_s + run_time_s if run_time_s else float("inf")
        phase = phases[self._position - 1]
        limit_s = options.pd_level_max_s if phase.kind is PhaseKind.LEVEL else _COUNT_LIMIT_S
        progress = PhaseReport(phase, self._position, len(phases))
        plugin.on_record = progress.take
        phase = plugin.spread(phase)
        complete = plugin.conductor.run_phase(
            phase,
            limit_s=limit_s,
            drain_s=options.pd_drain,
            stop=lambda: plugin.refused or time.monotonic() > until_s,
        )
        progress.close(complete=complete)
        plugin.on_record = None
        return time.monotonic() <= until_s and not plugin.refused


def plan(settings: Any, options: Any) -> list[Phase]:
    """Return the phases that the options ask for; ConfigError if there are none."""
    names = [tier.name for tier in settings.tiers]
    sweep = split_names(options.pd_sweep_tiers) if options.pd_sweep_tiers else [name for name in names if name != "xlong"]
    choose_tiers(sweep or names, settings.tiers)
    count_tier = options.pd_concurrency_tier if options.pd_concurrency_tier in names else names[0]
    phases = benchmark_phases(
        tiers=names,
        single_requests=options.pd_single_requests,
        concurrency=options.num_users if (options.num_users or 0) > 1 else _DEFAULT_CONCURRENCY,
        concurrency_tier=count_tier,
        concurrency_requests=options.pd_requests,
        sweep_tiers=sweep,
        levels=read_levels(options.pd_levels),
        level_requests=options.pd_level_requests,
    )
    if not phases:
        raise ConfigError("nothing to do: --pd-single-requests, --pd-requests and --pd-levels are all empty")
    return phases


class PhaseReport:
    """One line a phase, as it goes: what is held, how far it is, and what it found."""

    def __init__(self, phase: Phase, position: int, total: int) -> None:
        self._head = f"[{position:2}/{total}] {phase.name:<22}"
        self._finished: defaultdict[str, int] = defaultdict(int)
        self._ttft_sum_ms = 0.0
        self._ttft_count = 0
        self._shown_s = 0.0
        self._live = sys.stderr.isatty()

    def take(self, seen: Seen) -> None:
        """Note a finished request; on a terminal the line is renewed about once a second."""
        self._finished[seen.outcome] += 1
        if seen.ttft_ms is not None and seen.outcome == Outcome.SUCCESS:
            self._ttft_sum_ms += seen.ttft_ms
            self._ttft_count += 1
        now_s = time.monotonic()
        if self._live and now_s - self._shown_s > 1:
            self._shown_s = now_s
            self._print("\r", end="")

    def close(self, *, complete: bool) -> None:
        """Print the phase's last line."""
        self._print("\r" if self._live else "", end="\n", note="" if complete else "  ended early")

    def _print(self, start: str, *, end: str, note: str = "") -> None:
        mean_ms = self._ttft_sum_ms / self._ttft_count if self._ttft_count else None
        failed = self._finished[Outcome.FAILURE]
        text = f"{self._head} {sum(self._finished.values()):>5} requests  TTFT mean {format_ms(mean_ms):>8} ms"
        if failed:
            text += f"  {failed} failed"
        print(f"{start}{text}{note}", end=end, file=sys.stderr, flush=True)
