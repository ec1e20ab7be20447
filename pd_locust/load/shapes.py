"""Locust shapes that run one phase after another, in the order that a script yields."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from locust import LoadTestShape

from pd_locust.errors import ConfigError
from pd_locust.judge import LOOKS, sample_sizes
from pd_locust.load.live import SearchState
from pd_locust.load.progress import PhaseLine, SearchLine, conclude, interrupted
from pd_locust.load.settings import read_levels, split_names
from pd_locust.phase import Phase, PhaseKind, benchmark_phases, level_phase
from pd_locust.plateau import Plateau
from pd_locust.search import CapacitySearch, Found, GaveUp, Measured, NextLevel
from pd_locust.tier import MIX, choose_tiers

if TYPE_CHECKING:
    from pd_locust.load.plugin import Plugin
    from pd_locust.load.settings import Settings
    from pd_locust.record import RequestRecord

_DEFAULT_CONCURRENCY = 64
_DEFAULT_CONCURRENCY_TIER = "medium"
_COUNT_LIMIT_S = 3600.0
_SPAWN_RATE = 100.0


@dataclass(frozen=True, slots=True)
class Task:
    """One phase to run, and its progress line.

    `more` returns from the records so far the larger sample that is still needed, or None when it is enough.
    """

    phase: Phase
    line: PhaseLine
    limit_s: float
    more: Callable[[Sequence[RequestRecord]], int | None] = lambda _rows: None


Script = Generator[Task, "Sequence[RequestRecord]", None]


class PhasedShape(LoadTestShape):  # type: ignore[misc]
    """Asks Locust for a phase's users, runs the phase, and sends its records to the script, which yields the next one.

    Locust calls `tick` once a second and starts the users that it returns; a phase runs inside `tick`,
    so it ends when it is complete, not at the next full second. `--run-time` ends the run early.
    """

    abstract = True
    use_common_options = True

    def __init__(self) -> None:
        super().__init__()
        self._script: Script | None = None
        self._task: Task | None = None
        self._until_s = float("inf")
        self._ends_with_the_run = False

    @abstractmethod
    def script(self, plugin: Plugin, options: Any) -> Script:
        """Yield tasks; each is answered with the records of its phase."""

    @abstractmethod
    def tiers_to_measure(self, settings: Settings, options: Any) -> set[str]:
        """Names of the tiers whose requests will be sent; prompts are fitted for these only."""

    def reset_time(self) -> None:
        """Keep the script: on a master Locust calls this a second time, after the first tick."""
        super().reset_time()

    def tick(self) -> tuple[int, float] | None:
        """Run the phase whose users have been started, then return the users of the next one; None ends the run."""
        plugin: Plugin = self.runner.environment.pd_plugin
        options = self.runner.environment.parsed_options
        try:
            if self._script is None:
                self._end_with_the_run()
                self._script = self.script(plugin, options)
                self._until_s = time.monotonic() + options.run_time if options.run_time else float("inf")
                self._task = next(self._script)
            elif self._task is not None:
                rows = plugin.run_phase(self._task, stop=self._is_over)
                self._task = None if rows is None else self._script.send(rows)
        except StopIteration:
            self._task = None
        except ConfigError as error:
            plugin.refuse(error)
            self._task = None
        if self._task is None:
            self._end_script()
            return None
        # As fast as Locust likes it: users wait at the gate, and the phase spreads their first requests itself.
        return self._task.phase.users or 1, _SPAWN_RATE

    def _is_over(self) -> bool:
        nobody_answers = self._task is not None and self._task.line.nobody_answers
        return nobody_answers or time.monotonic() > self._until_s

    def _end_with_the_run(self) -> None:
        # Ctrl-C and the web UI's stop come between two ticks as well as inside of one.
        if not self._ends_with_the_run:
            self.runner.environment.events.test_stop.add_listener(self._end_script)
            self._ends_with_the_run = True

    def _end_script(self, **_kwargs: Any) -> None:
        """Close the script, which prints what is known so far; the next run has a new script."""
        if self._script is not None:
            self._script.close()
            self._script = None


class BenchmarkShape(PhasedShape):
    """The protocol: single stream per tier, an exact count at a concurrency (`--users`), a sweep per tier."""

    abstract = True

    def tiers_to_measure(self, settings: Settings, options: Any) -> set[str]:
        """Tiers of the protocol's phases."""
        return {phase.tier for phase in protocol(settings, options) if phase.tier}

    def script(self, plugin: Plugin, options: Any) -> Script:
        """Run the phases in order."""
        phases = protocol(plugin.settings, options)
        for position, phase in enumerate(phases, 1):
            limit_s = options.pd_level_max_s if phase.kind is PhaseKind.LEVEL else _COUNT_LIMIT_S
            yield Task(phase, PhaseLine(f"[{position:2}/{len(phases)}] {phase.name}", phase), limit_s)


class CapacityShape(PhasedShape):
    """Searches, tier by tier, for the largest concurrency that keeps the limit. CapacitySearch decides."""

    abstract = True

    def tiers_to_measure(self, settings: Settings, options: Any) -> set[str]:  # noqa: ARG002 - the base's signature
        """Tiers that are searched, and tiers of the mix."""
        return {*settings.search_tiers, *settings.mix}

    def script(self, plugin: Plugin, options: Any) -> Script:
        """Search every tier, then the mix. Levels in the records of a resumed run are not measured again."""
        search = CapacitySearch(options.pd_start, options.pd_max_users, options.pd_resolution)
        for tier in (*plugin.settings.search_tiers, *([MIX] if plugin.settings.mix else [])):
            levels = [self._judge(plugin, tier, users, rows) for users, rows in plugin.resumed_levels(tier)]
            # A level that the end of the earlier run cut short is measured again, however clear it looked.
            levels = [level for level in levels if Measured.of(level).discarded is None and _is_whole(level)]
            held = [Measured.of(level) for level in levels]
            longest_s = 0.0
            while isinstance(step := self._next(plugin, search, tier, levels), NextLevel):
                phase = self._phase(plugin, tier, step.users, levels)
                line = SearchLine(phase, step.why)
                started_s = time.monotonic()
                try:
                    rows = yield Task(
                        phase, line, options.pd_level_max_s, self._unclear(plugin, tier, step.users)
                    )
                except GeneratorExit:
                    if plugin.refused:
                        raise
                    interrupted(tier, levels, search.bracket(held), service_gone=line.nobody_answers)
                    raise
                longest_s = max(longest_s, time.monotonic() - started_s)
                levels.append(self._judge(plugin, tier, step.users, rows))
                held.append(Measured.of(levels[-1]))
                most_left = search.most_left(held)
                line.judged(levels[-1], search.bracket(held), most_left, most_left * longest_s)
            conclude(tier, levels, step)

    def _next(
        self, plugin: Plugin, search: CapacitySearch, tier: str, levels: Sequence[Plateau]
    ) -> NextLevel | Found | GaveUp:
        held = [Measured.of(level) for level in levels]
        step = search.next(held)
        if plugin.live is not None:
            state = SearchState(tuple(levels), search.bracket(held), step, search.most_left(held))
            plugin.live.publish(tier, state)
        return step

    def _phase(self, plugin: Plugin, tier: str, users: int, levels: Sequence[Plateau]) -> Phase:
        measured_before = sum(level.users == users for level in levels)
        return level_phase(tier, users, measured_before, sample_sizes(users, plugin.settings.slo)[0])

    def _unclear(
        self, plugin: Plugin, tier: str, users: int
    ) -> Callable[[Sequence[RequestRecord]], int | None]:
        """Ask for the next larger sample as long as the verdict is open."""
        sizes = iter(sample_sizes(users, plugin.settings.slo)[1:])

        def more(rows: Sequence[RequestRecord]) -> int | None:
            level = self._judge(plugin, tier, users, rows)
            # A larger sample does not make a late generator's requests fewer than one in a hundred.
            return None if level.judgement.is_clear or level.client_limited else next(sizes, None)

        return more

    def _judge(self, plugin: Plugin, tier: str, users: int, rows: Sequence[RequestRecord]) -> Plateau:
        settings = plugin.settings
        return Plateau.of(
            rows,
            phase="",
            tier=tier,
            users=users,
            slo=settings.slo,
            confidence=settings.confidence,
            looks=LOOKS,
        )


def _is_whole(level: Plateau) -> bool:
    """Whether a level has at least the sample with which it is looked at for the first time."""
    return level.finished >= sample_sizes(level.users or 1, level.slo)[0]


def protocol(settings: Any, options: Any) -> list[Phase]:
    """Return the benchmark's phases that the options ask for; ConfigError if there are none."""
    names = [tier.name for tier in settings.tiers]
    sweep = split_names(options.pd_sweep_tiers) if options.pd_sweep_tiers else settings.search_tiers
    choose_tiers(sweep or names, settings.tiers)
    usual = _DEFAULT_CONCURRENCY_TIER if _DEFAULT_CONCURRENCY_TIER in names else names[0]
    (count_tier,) = choose_tiers([options.pd_concurrency_tier or usual], settings.tiers)
    phases = benchmark_phases(
        tiers=names,
        single_requests=options.pd_single_requests,
        concurrency=options.num_users if (options.num_users or 0) > 1 else _DEFAULT_CONCURRENCY,
        concurrency_tier=count_tier.name,
        concurrency_requests=options.pd_requests,
        sweep_tiers=sweep,
        levels=read_levels(options.pd_levels),
        level_requests=options.pd_level_requests,
    )
    if not phases:
        raise ConfigError("nothing to do: --pd-single-requests, --pd-requests and --pd-levels are all empty")
    return phases
