"""The one place where pd_locust takes part in Locust's life: a locustfile calls `register(events)`."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gevent
import locust.argument_parser
import locust.runners
import locust.stats
from locust.runners import MasterRunner, WorkerRunner

from pd_locust.endpoint import Endpoint
from pd_locust.errors import ConfigError, PdLocustError
from pd_locust.load import options
from pd_locust.load.failure_limit import FailureWindow
from pd_locust.load.locust_patches import install_precision, keep_out_of_total
from pd_locust.load.phases_on_workers import PhaseMaster, PhaseWorker
from pd_locust.load.recorder import Outbox, RecordsFile, RunFile, recorded_levels
from pd_locust.load.session import STREAM_PHASE, Session
from pd_locust.load.settings import Settings
from pd_locust.load.setup import prepare
from pd_locust.load.simulated import SimulatedService
from pd_locust.load.users import choose_users
from pd_locust.load.web import WebTab
from pd_locust.phase import PhaseKind
from pd_locust.ramp import Latencies
from pd_locust.record import Outcome, RequestRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pd_locust.load.live import Live
    from pd_locust.load.shapes import Task
    from pd_locust.phase import Phase

logger = logging.getLogger(__name__)

_REPORT_INTERVAL_S = 1.0
_RAMP_S = 10
# At a kilobyte each.
_MOST_COUNTED = 50_000
_EXIT_FAILED = 1
_EXIT_CONFIG = 2


def register(events: Any, *, phases: Callable[[Any], None] | None = None) -> None:
    """Add the options, and take part in every run of this locustfile. Call it once, at its top level.

    `phases` adds the options of a locustfile whose shape holds phases; without it users stream freely.
    """
    install_precision()
    # Locust's workers report every 3 s; records are to be on disk within about one.
    locust.runners.WORKER_REPORT_INTERVAL = _REPORT_INTERVAL_S
    _parse_defaults_once()

    def add_arguments(parser: Any, **_kwargs: Any) -> None:
        options.add_arguments(parser)
        if phases is not None:
            phases(parser)

    def start(environment: Any, **_kwargs: Any) -> None:
        _take_ctrl_c_out_of_streams()
        try:
            settings = Settings.read(environment.parsed_options)
            keep_out_of_total(environment.stats)
            if isinstance(environment.runner, WorkerRunner):
                Worker(environment, settings, phased=phases is not None)
            else:
                Plugin(environment, settings, phased=phases is not None)
        except PdLocustError as error:
            print(f"pd_locust: {error}", file=sys.stderr)
            sys.exit(_EXIT_CONFIG)

    events.init_command_line_parser.add_listener(add_arguments)
    events.init.add_listener(start)


def _parse_defaults_once() -> None:
    """Keep Locust's answer to what its default options are.

    A worker asks for them once for every option of every spawn message and builds a parser each time: no stream
    is read meanwhile, for 0.15 to 0.7 s at every change of the number of users.
    """
    defaults = locust.argument_parser.default_args_dict
    if not hasattr(defaults, "cache_info"):
        locust.argument_parser.default_args_dict = functools.cache(defaults)


def _take_ctrl_c_out_of_streams() -> None:
    """Let SIGINT interrupt Locust's main greenlet alone.

    Python raises KeyboardInterrupt in whatever runs, which under load is a user that reads a stream: that
    request was cut, and missing from the end of every busy run. Handlers of others, and a SIGINT that a shell has
    switched off, are left as they are.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        hub = gevent.get_hub()
        gevent.signal_handler(signal.SIGINT, hub.handle_system_error, KeyboardInterrupt, KeyboardInterrupt())


class Worker:
    """pd_locust in a worker process: streams, and sends its records with Locust's reports."""

    def __init__(self, environment: Any, settings: Settings, *, phased: bool) -> None:
        outbox = Outbox()
        environment.pd_session = Session(environment, outbox.put)
        environment.stop_timeout = 0
        PhaseWorker(environment, environment.pd_session)
        if not phased:
            choose_users(environment, settings.tiers)

        def add_records(client_id: str, data: dict[str, Any]) -> None:
            del client_id
            data["pd_records"] = outbox.take()
            data["pd_in_flight"] = environment.pd_session.in_flight_by_tier()

        environment.events.report_to_master.add_listener(add_records)


class Plugin:
    """pd_locust on the master or in the only process: prepares the run, runs phases, records, reports."""

    def __init__(self, environment: Any, settings: Settings, *, phased: bool) -> None:
        self.environment = environment
        self.settings = settings
        self.refused = False
        self.over = False
        self._failures = FailureWindow(environment.parsed_options.pd_max_failure_ratio)
        self._on_record: Callable[[RequestRecord], None] | None = None
        self._latencies = Latencies()
        self._options = environment.parsed_options
        self._phased = phased
        self._resumed = self._levels_to_resume()
        self._runs = max((row.run for _, rows in self._resumed for row in rows), default=0)
        self._scratch = contextlib.ExitStack()
        prefix = (
            self._options.csv_prefix or f"{self._scratch.enter_context(tempfile.TemporaryDirectory())}/run"
        )
        self._prefix = prefix
        self._simulated = self._find_target()  # before the records of an earlier run are replaced
        self._records = RecordsFile(prefix)
        for _, rows in self._resumed:
            self._records.write(row.to_row() for row in rows)
        self._run_file = RunFile(prefix, locustfile=str(environment.locustfile))
        self._take_over_locust_options()
        environment.pd_plugin = self
        environment.pd_session = Session(environment, self._take)
        if not isinstance(environment.runner, MasterRunner):
            PhaseWorker(environment, environment.pd_session)
        self.phase_master = PhaseMaster(environment)
        if not phased:
            choose_users(environment, settings.tiers)
        self._listen()
        self.live = self._show_live()

    def _show_live(self) -> Live | None:
        if not getattr(self.environment, "web_ui", None):
            return None
        doubts = lambda: self._run_file.doubts  # noqa: E731 - read when somebody looks
        return WebTab(self.environment, self.settings, self._records, doubts).live

    def _levels_to_resume(self) -> list[tuple[Phase, list[RequestRecord]]]:
        prefix = getattr(self._options, "pd_resume", None)
        return recorded_levels(prefix) if prefix else []

    def _find_target(self) -> SimulatedService | None:
        environment = self.environment
        environment.host = environment.host or options.base_url_from_env()
        if environment.host:
            Endpoint.parse(environment.host)  # a wrong one is said now, not after the web UI has started
            return None
        service = SimulatedService.start(self._options)
        environment.host = service.base_url
        logger.info("no --host: measuring the simulated service at %s", service.base_url)
        return service

    def _take_over_locust_options(self) -> None:
        """Set what Locust's defaults would spoil."""
        chosen = self._options
        # Locust kills requests in flight at the end unless it waits --stop-timeout; the drain waits instead.
        if chosen.stop_timeout:
            chosen.pd_drain = float(chosen.stop_timeout)
        self.environment.stop_timeout = 0
        if chosen.spawn_rate is None and chosen.num_users:
            # Locust's default of one user a second would spend a two-minute run on ramping up.
            chosen.spawn_rate = max(1.0, chosen.num_users / _RAMP_S)

    def _listen(self) -> None:
        listen = self.environment.events
        listen.test_start.add_listener(self._on_test_start)
        listen.spawning_complete.add_listener(self._on_spawning_complete)
        listen.test_stopping.add_listener(self._on_test_stopping)
        listen.test_stop.add_listener(self._on_test_stop)
        listen.quitting.add_listener(self._on_quitting)
        listen.quit.add_listener(self._on_quit)
        listen.worker_report.add_listener(self._on_worker_report)
        listen.worker_connect.add_listener(self._on_worker_connect)
        self._setup: Any = None
        self._flusher = gevent.spawn(self._flush_every_second)

    def _flush_every_second(self) -> None:
        while True:
            gevent.sleep(1)
            self._records.flush()

    def _on_test_start(self, **_kwargs: Any) -> None:
        chosen = self._options
        chosen.pd_api_key = options.API_KEY.keep(chosen.pd_api_key or "")
        self.refused = self.over = False
        self._failures.clear()
        self._runs += 1
        service = self._simulated
        simulated = service if service is not None and self.environment.host == service.base_url else None
        try:
            self._setup = prepare(
                self.settings,
                self._tiers(),
                base_url=self.environment.host,
                # A real key is nobody's business but the real target's.
                api_key=None if simulated else options.API_KEY.reveal(),
                model=simulated.model if simulated else chosen.pd_model or options.model_from_env(),
                run=self._runs,
            )
        except Exception as error:
            # Whatever it was: Locust would log it and start the users all the same.
            self.refuse(error)
            if not isinstance(error, ConfigError):
                raise
            return
        settings, workers = self.settings, self.phase_master.workers
        if simulated:
            settings = replace(settings, labels=simulated.labels | settings.labels)
        self._run_file.begin(self._setup, settings, vars(chosen), simulated=bool(simulated), workers=workers)
        self.phase_master.set_up(self._setup)
        if not self._phased:
            self.phase_master.open_level(STREAM_PHASE)

    def _tiers(self) -> list[Any]:
        if self._phased:
            measured = self.environment.shape_class.tiers_to_measure(self.settings, self._options)
            return [tier for tier in self.settings.tiers if tier.name in measured]
        wanted = {getattr(user, "tier", None) for user in self.environment.user_classes}
        return [tier for tier in self.settings.tiers if tier.name in wanted]

    def refuse(self, error: Exception) -> None:
        """Say why the run cannot begin, and end it."""
        self.refused = True
        self._end(str(error), exit_code=_EXIT_CONFIG)

    def _end(self, last_word: str, *, exit_code: int) -> None:
        self.over = True
        print(f"pd_locust: {last_word}", file=sys.stderr)
        self.environment.process_exit_code = exit_code
        if self._options.headless:
            gevent.spawn(self.environment.runner.quit)
        else:
            gevent.spawn(self.environment.runner.stop)

    def _on_spawning_complete(self, user_count: int, **_kwargs: Any) -> None:
        if not self._phased and not self.refused:
            self._run_file.held(user_count)
            self.phase_master.open_level(replace(STREAM_PHASE, users=user_count))

    def _on_test_stopping(self, **_kwargs: Any) -> None:
        self.phase_master.drain(self._options.pd_drain)
        self._records.flush()

    def _on_test_stop(self, **_kwargs: Any) -> None:
        self._run_file.end()
        if self._options.csv_prefix:
            # Locust's CSV writer has no last write: give it the second in which it makes one.
            gevent.sleep(locust.stats.CSV_STATS_INTERVAL_SEC + 0.2)

    def _on_quitting(self, **_kwargs: Any) -> None:
        # Now, not in Locust's own quit: the exit code is read before that, and a Ctrl-C has not drained yet.
        self.environment.runner.quit()
        self._flusher.kill()
        self._records.close()
        if self._simulated is not None:
            self._simulated.stop()

    def _on_quit(self, **_kwargs: Any) -> None:
        """Report, after Locust has printed its own tables, so that ours are what the terminal ends with."""
        if self._runs and not self.refused:
            self._report()
        self._scratch.close()

    def _report(self) -> None:
        # A process of its own: pandas has no place in a process that makes load.
        sys.stdout.flush()
        command = [sys.executable, "-m", "pd_locust.cli", "report", self._prefix]
        if not self._options.csv_prefix:
            command.append("--no-files")
        subprocess.run(command, check=False)

    def _on_worker_report(self, client_id: str, data: dict[str, Any]) -> None:
        del client_id
        rows = data.pop("pd_records", ())
        self._records.write(rows)
        for row in rows:
            self._note(RequestRecord.from_row(row))

    def _on_worker_connect(self, client_id: str, **_kwargs: Any) -> None:
        if self._setup is not None and self.environment.runner.state in {"spawning", "running"}:
            self.phase_master.set_up(self._setup, client_id)

    def _take(self, record: RequestRecord) -> None:
        self._records.write([record.to_row()])
        self._note(record)

    def _note(self, record: RequestRecord) -> None:
        if self.live is not None:
            self.live.take(record, time.monotonic())
        if self._on_record is not None:
            self._on_record(record)
        if record.outcome is Outcome.CUT or self.over:
            return
        last_word = self._failures.note(time.monotonic(), record.category, record.failure_group)
        if last_word is not None:
            self._end(last_word, exit_code=_EXIT_FAILED)

    def run_phase(self, task: Task, stop: Callable[[], bool]) -> Sequence[RequestRecord] | None:
        """Run a task's phase and return its records; None if the run ends first."""
        # Nothing is decided by the records of an exact count, which may be millions: all of them are in the file.
        most = _MOST_COUNTED if task.phase.kind is PhaseKind.COUNT else None
        rows: deque[RequestRecord] = deque(maxlen=most)

        def take(record: RequestRecord) -> None:
            rows.append(record)
            task.line.take(record)

        def more() -> int | None:
            wanted = task.more(rows)
            if wanted is not None:
                task.line.extend(wanted)
            return wanted

        def over() -> bool:
            return self.over or stop()

        self._on_record = take
        self._run_file.held(task.phase.users or 0)
        complete = self.phase_master.run_phase(
            self._latencies.with_ramp(task.phase),
            limit_s=task.limit_s,
            drain_s=self._options.pd_drain,
            stop=over,
            more=more,
        )
        self._on_record = None
        task.line.close(complete=complete)
        self._latencies.note(task.phase, rows)
        if self.live is not None:
            self.live.held(task.phase, rows)
        return None if over() else list(rows)

    def resumed_levels(self, tier: str) -> list[tuple[int, Sequence[RequestRecord]]]:
        """Levels of this tier in the records of `--pd-resume`, in the order in which they were held."""
        return [
            (phase.users, rows)
            for phase, rows in self._resumed
            if phase.tier == tier and phase.users is not None
        ]
