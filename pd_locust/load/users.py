"""StreamUser: a Locust user that sends one streaming request after another and measures each."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import gevent
from locust import User, constant, task

from pd_locust.endpoint import conceal
from pd_locust.load.locust_patches import fire
from pd_locust.load.sockets import GeventReadiness
from pd_locust.record import Outcome, RequestContext, RequestRecord
from pd_locust.stream import StreamTiming
from pd_locust.tier import EVERYDAY_TIERS
from pd_locust.wire.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.load.session import Session
    from pd_locust.tier import Tier

_numbers = count(1)


class StreamUser(User):  # type: ignore[misc]
    """Closed loop: the next request starts when the last one has ended. Subclasses name their tier.

    `tier` None means that the phase says which tier to send (the benchmark's users).
    """

    abstract = True
    tier: ClassVar[str | None] = None
    wait_time = constant(0)

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.number = next(_numbers)
        self.session: Session = environment.pd_session
        self._backoff = Backoff(random.Random(self.number))  # noqa: S311 - jitter, not secrecy

    def on_start(self) -> None:
        """Open the connection before the first request, so that connecting is no part of its TTFT."""
        options = self.environment.parsed_options
        setup = self.session.setup
        if setup is None:
            return  # preparing has failed and said why; the gate stays closed until Locust has stopped
        self.connection = Connection(
            setup.endpoint,
            setup.request_headers(),
            now=time.perf_counter_ns,
            first_token_timeout_s=options.pd_first_token_timeout,
            idle_timeout_s=options.pd_idle_timeout,
            tls=self.session.tls,
            readiness=GeventReadiness,
        )
        self.session.stagger(self.number)
        self.connection.open()

    def on_stop(self) -> None:
        """Close the connection, if preparing got as far as opening one."""
        if self.session.setup is not None:
            self.connection.close()

    @task  # type: ignore[untyped-decorator]
    def stream(self) -> None:
        """Send one request when it is this user's turn, and record it whatever becomes of it."""
        ticket = self.session.wait_for_turn(self)
        tier = ticket.phase.tier or self.tier or ""
        body = self.session.request_for(tier)
        context = self.session.begin(self, tier, ticket)
        timing: StreamTiming | None = None
        try:
            timing = self.connection.exchange(context.request_id, body, stop=self.session.is_cutting)
            if timing.connect_ms is not None:
                context = replace(context, sent_unix_us=self.session.unix_us(timing.sent_ns))
            # Bookkeeping takes as long as reading twenty tokens: those of others that have come go first.
            # With 179 streams that end together TPOT was off by 1.4 %, and is by 0.9.
            gevent.sleep(0)
        finally:
            # Also when Locust kills this greenlet: a request that was sent is recorded, as cut.
            cut = timing is None or (self.session.is_cutting() and timing.failure is not None)
            record = self._record(context, timing, cut=cut)
            self.session.end(self, ticket, record)
        fire(self.environment, record)
        if record.outcome is Outcome.SUCCESS:
            self._backoff.reset()
        elif record.outcome is Outcome.FAILURE:
            gevent.sleep(self._backoff.next_s(timing.retry_after_s))

    def _record(self, context: RequestContext, timing: StreamTiming | None, *, cut: bool) -> RequestRecord:
        health = self.session.health
        lag_ms = None
        if timing is not None and timing.failure is not None:
            # Services like to repeat a wrong key.
            timing.failure = conceal(timing.failure, self.session.secrets)
        if timing is not None and timing.text_ns:
            lag_ms = health.loop_lag_ms(timing.text_ns[0])
        return RequestRecord.from_timing(
            context, timing or StreamTiming(0), cut=cut, loop_lag_ms=lag_ms, client_cpu_share=health.cpu_share
        )


def user_class(tier: str) -> type[StreamUser]:
    """Make the User class of an own tier: `chat` is `ChatUser`."""
    return type(f"{tier[:1].upper()}{tier[1:]}User", (StreamUser,), {"tier": tier})


def choose_users(environment: Any, tiers: Sequence[Tier]) -> None:
    """Offer one User class a tier: those of the locustfile, and new ones for own tiers."""
    given = environment.parsed_options
    by_tier = {user.tier: user for user in environment.user_classes if getattr(user, "tier", None)}
    others = [user for user in environment.user_classes if not getattr(user, "tier", None)]
    if given.user_classes or (given.class_picker and not given.pd_tiers):
        names = [tier.name for tier in tiers if tier.name in by_tier]
    elif given.pd_tiers or given.pd_tier_file:
        names = [tier.name for tier in tiers]
    else:
        names = [tier.name for tier in EVERYDAY_TIERS if tier.name in by_tier]
    chosen = [by_tier.get(name) or user_class(name) for name in names]
    environment.user_classes = [*chosen, *others]
    if environment.available_user_classes is not None:
        environment.available_user_classes |= {user.__name__: user for user in chosen}


class Backoff:
    """Pauses after failures: 1, 4, then 15 s, +-25 %, so that a dead service is not hammered by its test.

    Retry-After is honoured up to a minute. A success starts over.
    """

    _STEPS_S = (1.0, 4.0, 15.0)
    _LONGEST_RETRY_AFTER_S = 60.0

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._failures = 0

    def reset(self) -> None:
        """Forget the failures."""
        self._failures = 0

    def next_s(self, retry_after_s: float | None = None) -> float:
        """Seconds to wait before the next attempt."""
        step_s = self._STEPS_S[min(self._failures, len(self._STEPS_S) - 1)]
        self._failures += 1
        jittered_s = step_s * self._rng.uniform(0.75, 1.25)
        if retry_after_s is None:
            return jittered_s
        return max(jittered_s, min(retry_after_s, self._LONGEST_RETRY_AFTER_S))
