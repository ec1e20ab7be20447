"""Phases of a run in several processes: PhaseWorker streams, PhaseMaster says when.

In a single process both are present and Locust delivers their messages at once; the code is the same.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gevent
from locust.runners import LocalRunner, MasterRunner, WorkerRunner

from pd_locust.load.setup import LoadSetup
from pd_locust.phase import Phase, PhaseKind, share_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from pd_locust.load.session import Session

logger = logging.getLogger(__name__)

# Longer than a worker that is alive may be taken for missing.
_CHANGED_FOR_S = 10.0
_POLL_S = 0.02
# Beyond a drain's own limit: cutting, the last report, and a message on its way.
_DRAIN_GRACE_S = 10.0


class PhaseWorker:
    """Opens, extends and drains phases as the master's messages say; one in every process that runs users."""

    def __init__(self, environment: Any, session: Session) -> None:
        self._runner = environment.runner
        self._session = session
        session.on_complete = self._report_complete
        self._runner.register_message("pd_setup", self._on_setup)
        self._runner.register_message("pd_phase", self._on_phase)
        self._runner.register_message("pd_extend", self._on_extend)
        # Concurrent: draining waits for streams, and the receive loop must go on meanwhile.
        self._runner.register_message("pd_drain", self._on_drain, concurrent=True)

    def _on_setup(self, msg: Any, **_kwargs: Any) -> None:
        self._session.configure(LoadSetup.from_message(msg.data))

    def _on_phase(self, msg: Any, **_kwargs: Any) -> None:
        phase = Phase.from_message(msg.data["phase"])
        # The users of an open-ended level are those that Locust has told this process to run: the master's count
        # rests on reports that may be late, and some of the users may still be starting here.
        users = self._runner.target_user_count if phase.kind is PhaseKind.OPEN else msg.data["users"]
        self._session.open_phase(phase, users)

    def _on_extend(self, msg: Any, **_kwargs: Any) -> None:
        self._session.extend(msg.data["phase"], msg.data["requests"])

    def _on_drain(self, msg: Any, **_kwargs: Any) -> None:
        self._session.drain(msg.data["limit_s"])
        self._report_records()
        self._runner.send_message(
            "pd_drained", {"drain": msg.data["drain"], "worker": self._runner.client_id}
        )

    def _report_records(self) -> None:
        """Send what has been recorded now: the master decides by it, or will stop listening."""
        if isinstance(self._runner, WorkerRunner):
            self._runner._send_stats()  # noqa: SLF001

    def _report_complete(self, phase: str) -> None:
        self._report_records()
        self._runner.send_message("pd_complete", {"phase": phase, "worker": self._runner.client_id})


class PhaseMaster:
    """Runs phases on all workers; on the master, or in the only process."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._runner = environment.runner
        self._complete: set[str] = set()
        self._drained: set[str] = set()
        self._phase = ""
        self._drains = 0
        self._runner.register_message("pd_complete", self._on_complete)
        self._runner.register_message("pd_drained", self._on_drained)

    def set_up(self, setup: LoadSetup, worker: str | None = None) -> None:
        """Send the setup to all workers, or to one that came late."""
        self._runner.send_message("pd_setup", setup.to_message(), client_id=worker)

    @property
    def workers(self) -> int:
        """Processes that run users."""
        return len(self._users_by_worker())

    def run_phase(
        self,
        phase: Phase,
        *,
        limit_s: float,
        drain_s: float,
        stop: Callable[[], bool],
        more: Callable[[], int | None],
    ) -> bool:
        """Run one phase until every worker has what it asked for, then drain; False if it ended early.

        Waits first until Locust has brought the phase's users up. When the sample is there, `more` may ask
        for a larger one.
        """
        while sum(self._users_by_worker().values()) != phase.users or self._runner.state != "running":
            if stop():
                return False
            gevent.sleep(_POLL_S)
        users = self._users_by_worker()
        shares = share_out(phase, users)
        self._phase = phase.name
        self._complete = set()
        for worker, share in shares.items():
            data = {"phase": share.to_message(), "users": users[worker]}
            self._runner.send_message("pd_phase", data, client_id=worker)
        deadline = time.monotonic() + limit_s
        complete = False
        watch = _WorkerWatch(set(users))
        while not complete and time.monotonic() < deadline and not stop():
            gevent.sleep(_POLL_S)
            if watch.has_changed(set(self._users_by_worker())):
                # Locust has dealt the users anew, and those of a newcomer know nothing of this phase.
                logger.error("%s ends early: workers came or went while it was held", phase.name)
                self._environment.process_exit_code = 1  # what was asked for was not done
                break
            if self._complete >= set(shares):
                requests = more()
                complete = requests is None
                if requests is not None:
                    self._extend(replace(phase, requests=requests), users)
        self.drain(drain_s)
        return complete

    def _extend(self, phase: Phase, users: dict[str, int]) -> None:
        self._complete = set()
        for worker, share in share_out(phase, users).items():
            data = {"phase": phase.name, "requests": share.requests}
            self._runner.send_message("pd_extend", data, client_id=worker)

    def open_level(self, phase: Phase) -> None:
        """Say that all users of an open-ended phase are there."""
        self._runner.send_message("pd_phase", {"phase": phase.to_message()})

    def drain(self, limit_s: float) -> None:
        """Let every worker finish or cut what is in flight and report it; return when all have."""
        self._drains += 1
        self._drained = set()
        waiting = set(self._users_by_worker())
        self._runner.send_message("pd_drain", {"drain": self._drains, "limit_s": limit_s})
        deadline = time.monotonic() + limit_s + _DRAIN_GRACE_S
        while not self._drained >= waiting and time.monotonic() < deadline:
            gevent.sleep(_POLL_S)
            waiting &= set(self._users_by_worker())  # a worker that dies has nothing more to report
        missing = waiting - self._drained
        if missing:
            logger.error("%d of %d workers did not report their last records", len(missing), len(waiting))

    def _users_by_worker(self) -> dict[str, int]:
        if isinstance(self._runner, MasterRunner):
            return {
                node.id: sum(node.user_classes_count.values())
                for node in self._runner.clients.ready
                + self._runner.clients.spawning
                + self._runner.clients.running
            }
        assert isinstance(self._runner, LocalRunner)  # noqa: S101 - for the type checker
        return {self._runner.client_id: self._runner.user_count}

    def _on_complete(self, msg: Any, **_kwargs: Any) -> None:
        if msg.data["phase"] == self._phase:
            self._complete.add(msg.data["worker"])

    def _on_drained(self, msg: Any, **_kwargs: Any) -> None:
        if msg.data["drain"] == self._drains:
            self._drained.add(msg.data["worker"])


class _WorkerWatch:
    """Whether workers came or left for longer than a busy worker may miss heartbeats."""

    def __init__(self, workers: set[str]) -> None:
        self._workers = workers
        self._since_s: float | None = None

    def has_changed(self, workers: set[str]) -> bool:
        now_s = time.monotonic()
        if workers == self._workers:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        return self._since_s is not None and now_s - self._since_s > _CHANGED_FOR_S
