"""Session: what one process has been told to do, and what it is doing. Users ask it before every request."""

from __future__ import annotations

import gc
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import gevent
from gevent.event import Event

from pd_locust.endpoint import secrets_of
from pd_locust.load.health import ClientHealth
from pd_locust.phase import Phase, PhaseKind, PhaseProgress
from pd_locust.prompt import interleave, prefixes
from pd_locust.record import Part, RequestContext, RequestRecord
from pd_locust.tier import MIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pd_locust.load.setup import LoadSetup
    from pd_locust.load.users import StreamUser
    from pd_locust.wire.chat import ChatRequest

STREAM_PHASE = Phase("stream", PhaseKind.OPEN)


class Ticket(NamedTuple):
    """Leave to start one request. It belongs to the phase that admitted it, whatever has begun since."""

    progress: PhaseProgress
    phase: Phase
    part: Part


_GOLDEN_RATIO = 0.6180339887498949


class Session:
    """One a process. The gate is open while requests may start; `close` and `drain` end a phase."""

    def __init__(self, environment: Any, on_record: Callable[[RequestRecord], None]) -> None:
        self.environment = environment
        self.setup: LoadSetup | None = None
        self.in_flight = 0
        self.health = ClientHealth()
        self.on_complete: Callable[[str], None] = lambda _phase: None
        self._on_record = on_record
        self._gate = Event()
        self._progress = PhaseProgress(STREAM_PHASE, 0)
        self._announced = True
        self._streaming: set[StreamUser] = set()
        self._starts: dict[StreamUser, float] = {}
        self._cutting = False
        self._requests: dict[str, ChatRequest] = {}
        self._prefixes: Iterator[str] = iter(())
        self._mix: Iterator[str] = iter(())
        self._tls: Any = None
        self.secrets: list[str] = []
        self._serial = 0
        # One reading of both clocks: wall-clock labels then move with the monotonic clock and never step.
        self._epoch_ns = time.time_ns() - time.perf_counter_ns()

    @property
    def worker(self) -> int:
        """Index of this process among the workers, 0 when it is the only one."""
        return max(0, int(getattr(self.environment.runner, "worker_index", 0)))

    def configure(self, setup: LoadSetup) -> None:
        """Take over a new setup: build all request bytes now, so that nothing is built under load."""
        self.setup = setup
        self._requests = setup.chat_requests()
        self._prefixes = prefixes(setup.seed, self.worker)
        self._mix = interleave(setup.mix)
        self._tls = setup.tls()
        self.secrets = secrets_of(setup.api_key, setup.headers)
        self._cutting = False
        self._serial = 0
        self._progress = PhaseProgress(STREAM_PHASE, 0)
        _spare_the_collector()

    @property
    def tls(self) -> Any:
        """TLS context shared by this process's connections, None for plain HTTP."""
        return self._tls

    def open_phase(self, phase: Phase, users: int) -> None:
        """Let requests of `phase` start; `users` of its users run in this process."""
        carried = self._progress.known_users if phase.kind is PhaseKind.OPEN else frozenset()
        self._progress = PhaseProgress(phase, users, carried)
        self._announced = False
        self._cutting = False
        self._starts.clear()
        self._gate.set()
        self._announce()

    def close(self) -> None:
        """Let no further request start; those in flight go on."""
        self._gate.clear()

    def drain(self, limit_s: float) -> None:
        """Close, wait until nothing is in flight, and cut what is left after `limit_s`."""
        self.close()
        deadline = time.monotonic() + limit_s
        while self.in_flight and time.monotonic() < deadline:
            gevent.sleep(0.01)
        self._cutting = True
        for user in list(self._streaming):
            user.connection.close()
        while self.in_flight:
            gevent.sleep(0.01)

    def is_cutting(self) -> bool:
        """Whether streams that end now were ended by us."""
        return self._cutting

    def stagger(self, number: int) -> None:
        """Keep the users of one spawn batch from coming as a herd; in a phase `ramp_s` does it instead.

        Locust spawns a second's users in one instant; the golden ratio places them evenly over the second.
        """
        if self._progress.phase.kind is PhaseKind.OPEN:
            gevent.sleep(number * _GOLDEN_RATIO % 1)

    def wait_for_turn(self, user: StreamUser) -> Ticket:
        """Block until this user may start a request.

        Users that the phase finds waiting start spread over its `ramp_s`, evenly, each at its own place.
        """
        while True:
            self._gate.wait()
            progress = self._progress
            if progress.phase.ramp_s and user not in self._starts:
                place = (len(self._starts) + self.worker * _GOLDEN_RATIO % 1) / max(1, progress.users)
                self._starts[user] = place
                gevent.sleep(place * progress.phase.ramp_s)
                continue
            part = progress.admit(user)
            if part is not None:
                return self._ticket(progress, part)
            # The phase has all its requests: wait for the next one.
            while self._progress is progress:
                gevent.sleep(0.05)

    def _ticket(self, progress: PhaseProgress, part: Part) -> Ticket:
        # While Locust adds or removes users there is no level that a request could belong to.
        open_ended = progress.phase.kind is PhaseKind.OPEN
        if (
            open_ended
            and part is not Part.WAVE
            and len(self.environment.runner.user_greenlets) != progress.users
        ):
            return Ticket(progress, STREAM_PHASE, Part.RAMP)
        return Ticket(progress, progress.phase, part)

    def request_for(self, tier: str) -> bytes:
        """Return the body of the next request of this tier, or of the mix; no two of a run are alike."""
        return self._requests[next(self._mix) if tier == MIX else tier].body(next(self._prefixes))

    def begin(self, user: StreamUser, tier: str, ticket: Ticket) -> RequestContext:
        """Note that a request starts now, and say in which context."""
        self.in_flight += 1
        self._streaming.add(user)
        self._serial += 1
        run = self.setup.run if self.setup else 0
        return RequestContext(
            request_id=f"pd{self._epoch_ns & 0xFFFFFFFF:08x}-{run}-{self.worker}-{self._serial}",
            run=run,
            phase=ticket.phase.name,
            tier=tier,
            users=ticket.phase.users,
            part=ticket.part,
            worker=self.worker,
            user=user.number,
            sent_unix_us=self.unix_us(time.perf_counter_ns()),
            in_flight=self.in_flight,
        )

    def unix_us(self, at_ns: int) -> int:
        """Wall-clock microseconds of a reading of the monotonic clock."""
        return (self._epoch_ns + at_ns) // 1000

    def in_flight_by_tier(self) -> dict[str, int]:
        """Requests in flight in this process; users without a tier of their own send their phase's."""
        return dict(Counter(user.tier or self._progress.phase.tier or "" for user in self._streaming))

    def extend(self, phase: str, requests: int) -> None:
        """Ask for a larger sample of the phase that is running."""
        if self._progress.phase.name == phase:
            self._progress.extend(requests)
            self._announced = False
            self._announce()

    def end(self, user: StreamUser, ticket: Ticket, record: RequestRecord) -> None:
        """Note that a request is over and hand its record on."""
        self.in_flight -= 1
        self._streaming.discard(user)
        ticket.progress.end(user, ticket.part)
        self._on_record(record)
        self._announce()

    def _announce(self) -> None:
        if not self._announced and self._progress.complete:
            self._announced = True
            self.on_complete(self._progress.phase.name)


def _spare_the_collector() -> None:
    """Keep what is there now out of every later garbage collection, and make those rare.

    All streams stand still meanwhile: 9 ms for a full one over Locust and its libraries, and 6,000 requests had 24
    young ones of up to 2.5 ms. Afterwards there were none; a request leaves next to nothing that needs collecting.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
