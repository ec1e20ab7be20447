"""A disaggregated deployment as a queueing model; pure, and the clock is an argument.

    arrive -> routing -> FIFO and step of the least loaded prefill instance
           -> room on the least loaded decode instance -> KV transfer -> decode steps, one token each

The first token comes from the first decode step, as behind the routers of vLLM and SGLang, so KV transfer
and the wait for decode are part of TTFT. Not modelled: KV held on prefill until it was fetched; preemption
on decode, since a job reserves its whole output before it is admitted; failures.
"""

from __future__ import annotations

import heapq
import random
from functools import partial
from typing import TYPE_CHECKING

from pd_sim.instances import Decode, Flight, Prefill, PrefixCache, Stage
from pd_sim.job import Emission, Job, Service
from pd_sim.linear import LinearService
from pd_sim.profiles import LinearProfile, PdProfile, Profile

if TYPE_CHECKING:
    from collections.abc import Callable


class Deployment:
    """A Service with prefill and decode instances.

    `jitter_ratio` j stretches every step by a factor drawn evenly from 1 - j to 1 + j. Without `every_token`
    a job has two emissions, its first token and the rest; runs in virtual time are then ten times faster.
    """

    def __init__(
        self,
        profile: PdProfile,
        *,
        prefix_cache: bool = False,
        jitter_ratio: float = 0.0,
        seed: int = 0,
        every_token: bool = True,
    ) -> None:
        self._profile = profile
        self._jitter_ratio = jitter_ratio
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._every_token = every_token
        cache_blocks = profile.cache_capacity_tokens // profile.cache_block_tokens
        self._prefills = [
            Prefill(PrefixCache(cache_blocks) if prefix_cache else None)
            for _ in range(profile.prefill_instances)
        ]
        self._decodes = [Decode(profile) for _ in range(profile.decode_instances)]
        self._flights: dict[int, Flight] = {}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._events_made = 0
        self._emissions: list[Emission] = []

    def arrive(self, now_s: float, job: Job) -> None:
        """Take in a job; ValueError when no decode instance could ever hold it."""
        reserved_tokens = self._profile.reserved_tokens(job.prompt_tokens, job.output_tokens)
        capacity_tokens = self._profile.decode_kv_capacity_tokens
        if reserved_tokens > capacity_tokens:
            raise ValueError(f"the request needs {reserved_tokens} tokens of KV space of {capacity_tokens}")
        flight = self._flights[job.key] = Flight(job, reserved_tokens)
        self._at(now_s + self._profile.routing_ms / 1000, partial(self._reach_prefill, flight))

    def cancel(self, now_s: float, key: int) -> None:
        """Forget a job and free what it holds; a step under way keeps its length."""
        flight = self._flights.pop(key, None)
        if flight is None:
            return
        stage, flight.stage = flight.stage, Stage.GONE
        if stage is Stage.PREFILL and flight in flight.prefill.queue:
            flight.prefill.queue.remove(flight)
            flight.prefill.load_tokens -= flight.prefill_left_tokens
        elif stage is Stage.ADMISSION:
            flight.decode.admission.remove(flight)
            flight.decode.assigned_tokens -= flight.reserved_tokens
        elif stage in (Stage.TRANSFER, Stage.JOINING, Stage.DECODE):
            decode = flight.decode
            if stage is Stage.JOINING:
                decode.joining.remove(flight)
            elif stage is Stage.DECODE:
                decode.leave(flight)
                decode.finishing[flight.first_step + flight.job.output_tokens].remove(flight)
            decode.release(flight)
            self._admit(decode, now_s)

    def next_event_s(self) -> float | None:
        """Return when something is due next, or None when the deployment is idle."""
        return self._events[0][0] if self._events else None

    def advance(self, now_s: float) -> list[Emission]:
        """Do everything due up to `now_s`, each at its own due time, and return the tokens produced."""
        events = self._events
        while events and events[0][0] <= now_s:
            due_s, _, act = heapq.heappop(events)
            act(due_s)
        emissions, self._emissions = self._emissions, []
        return emissions

    @property
    def waiting(self) -> int:
        """Jobs in the prefill queues and waiting for room on decode."""
        return sum(len(prefill.queue) for prefill in self._prefills) + sum(
            len(decode.admission) for decode in self._decodes
        )

    @property
    def running(self) -> int:
        """All other jobs in flight."""
        return len(self._flights) - self.waiting

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the KV space of all decode instances that is reserved."""
        held_tokens = sum(decode.held_tokens for decode in self._decodes)
        return held_tokens / (self._profile.decode_kv_capacity_tokens * len(self._decodes))

    def _at(self, due_s: float, act: Callable[[float], None]) -> None:
        self._events_made += 1
        heapq.heappush(self._events, (due_s, self._events_made, act))

    def _stretched_s(self, step_ms: float) -> float:
        if not self._jitter_ratio:
            return step_ms / 1000
        return step_ms / 1000 * self._random.uniform(1 - self._jitter_ratio, 1 + self._jitter_ratio)

    def _reach_prefill(self, flight: Flight, at_s: float) -> None:
        if flight.stage is Stage.GONE:
            return
        hashes = flight.job.block_hashes
        # Among equally loaded instances the one that knows most of the prompt, then the first.
        prefill = min(
            self._prefills,
            key=lambda one: (
                one.load_tokens,
                -one.cache.leading_blocks(hashes) if one.cache and hashes else 0,
            ),
        )
        if prefill.cache and hashes:
            cached_tokens = prefill.cache.leading_blocks(hashes) * self._profile.cache_block_tokens
            # The last token is always computed: its output is what the first decode step needs.
            flight.cached_tokens = min(cached_tokens, flight.job.prompt_tokens - 1)
        flight.prefill = prefill
        flight.prefill_left_tokens = flight.job.prompt_tokens - flight.cached_tokens
        flight.stage = Stage.PREFILL
        prefill.queue.append(flight)
        prefill.load_tokens += flight.prefill_left_tokens
        if not prefill.stepping:
            self._start_prefill_step(prefill, at_s)

    def _start_prefill_step(self, prefill: Prefill, at_s: float) -> None:
        prefill.stepping = bool(prefill.queue)
        if not prefill.stepping:
            return
        completed, tokens, cached_tokens = prefill.take_batch(self._profile.prefill_budget_tokens)
        step_s = self._stretched_s(self._profile.prefill_step_ms(tokens, cached_tokens))
        self._at(at_s + step_s, partial(self._end_prefill_step, prefill, completed, tokens))

    def _end_prefill_step(self, prefill: Prefill, completed: list[Flight], tokens: int, at_s: float) -> None:
        prefill.load_tokens -= tokens
        for flight in completed:
            if prefill.cache:
                prefill.cache.hold(flight.job.block_hashes)
            if flight.stage is Stage.GONE:
                continue
            decode = flight.decode = min(self._decodes, key=lambda one: one.assigned_tokens)
            decode.assigned_tokens += flight.reserved_tokens
            flight.stage = Stage.ADMISSION
            decode.admission.append(flight)
            self._admit(decode, at_s)
        self._start_prefill_step(prefill, at_s)

    def _admit(self, decode: Decode, at_s: float) -> None:
        while flight := decode.admit_next():
            flight.stage = Stage.TRANSFER
            begin_s = max(at_s, decode.link_free_s, flight.prefill.link_free_s)
            end_s = begin_s + self._profile.transfer_ms(flight.job.prompt_tokens) / 1000
            decode.link_free_s = flight.prefill.link_free_s = end_s
            self._at(end_s, partial(self._reach_decode, flight))

    def _reach_decode(self, flight: Flight, at_s: float) -> None:
        if flight.stage is Stage.GONE:
            return
        flight.stage = Stage.JOINING
        flight.decode.joining.append(flight)
        if not flight.decode.stepping:
            self._start_decode_step(flight.decode, at_s)

    def _start_decode_step(self, decode: Decode, at_s: float) -> None:
        newcomers = decode.join()
        decode.stepping = bool(decode.running)
        if decode.stepping:
            step_ms = self._profile.decode_step_ms(len(decode.running), decode.context_tokens)
            step_s = self._stretched_s(step_ms)
            self._at(at_s + step_s, partial(self._end_decode_step, decode, newcomers))

    def _end_decode_step(self, decode: Decode, newcomers: list[Flight], at_s: float) -> None:
        decode.steps_done += 1
        decode.context_tokens += len(decode.running)
        finished = decode.finishing.pop(decode.steps_done, [])
        for flight in finished:
            decode.leave(flight)
        if self._every_token:
            self._emissions += [Emission(key, 1, False, at_s) for key in decode.running]
        else:
            self._emissions += [
                Emission(flight.job.key, 1, False, at_s)
                for flight in newcomers
                if flight.job.key in decode.running
            ]
        for flight in finished:
            unreported = 1 if self._every_token or flight in newcomers else flight.job.output_tokens - 1
            self._emissions.append(Emission(flight.job.key, unreported, True, at_s, flight.cached_tokens))
            flight.stage = Stage.GONE
            del self._flights[flight.job.key]
            decode.release(flight)
        self._admit(decode, at_s)
        self._start_decode_step(decode, at_s)


def deploy(
    profile: Profile,
    *,
    prefix_cache: bool = False,
    jitter_ratio: float = 0.0,
    seed: int = 0,
    every_token: bool = True,
) -> Service:
    """Start an idle service; the linear one has neither cache nor jitter and emits every token."""
    if isinstance(profile, LinearProfile):
        return LinearService(profile)
    return Deployment(
        profile, prefix_cache=prefix_cache, jitter_ratio=jitter_ratio, seed=seed, every_token=every_token
    )
