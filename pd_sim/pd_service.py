"""A queueing model of a disaggregated service, without I/O; the clock is an argument.

    arrive -> routing -> FIFO and step of the least loaded prefill instance
           -> KV space on the least loaded decode instance -> KV transfer -> decode steps, one token each

The first token comes from the first decode step, as behind the routers of vLLM and SGLang, so KV transfer
and the wait for decode are part of TTFT. Not modelled: KV held on prefill until it is fetched; preemption
on decode, because a job reserves its whole output before it is admitted; failures.
"""

import heapq
import random
from collections.abc import Callable
from functools import partial

from pd_sim.instances import Decode, JobState, Prefill, PrefixCache, Stage
from pd_sim.linear_service import LinearService
from pd_sim.profiles import LinearProfile, PdProfile, Profile
from pd_sim.service import Emission, Job, Service


class PdService:
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
        cache_blocks = profile.cache_capacity_tokens // profile.cache_block_tokens if prefix_cache else 0
        self._prefills = [Prefill(PrefixCache(cache_blocks)) for _ in range(profile.prefill_instances)]
        self._decodes = [Decode(profile) for _ in range(profile.decode_instances)]
        self._states: dict[int, JobState] = {}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._events_made = 0
        self._emissions: list[Emission] = []

    def arrive(self, now_s: float, job: Job) -> None:
        """Take in a job; a ValueError when no decode instance could ever hold it."""
        reserved_tokens = self._profile.reserved_tokens(job.prompt_tokens, job.output_tokens)
        capacity_tokens = self._profile.decode_kv_capacity_tokens
        if reserved_tokens > capacity_tokens:
            raise ValueError(f"the request needs {reserved_tokens} tokens of KV space of {capacity_tokens}")
        state = self._states[job.key] = JobState(job, reserved_tokens)
        self._at(now_s + self._profile.routing_ms / 1000, partial(self._reach_prefill, state))

    def cancel(self, now_s: float, key: int) -> None:
        """Forget a job and free what it holds; a step under way keeps its length."""
        state = self._states.pop(key, None)
        if state is None:
            return
        stage, state.stage = state.stage, Stage.GONE
        if stage is Stage.PREFILL and state in state.prefill.queue:
            state.prefill.queue.remove(state)
            state.prefill.load_tokens -= state.prefill_left_tokens
        elif stage is Stage.ADMISSION:
            state.decode.admission.remove(state)
            state.decode.assigned_tokens -= state.reserved_tokens
        elif stage in (Stage.TRANSFER, Stage.JOINING, Stage.DECODE):
            decode = state.decode
            if stage is Stage.JOINING:
                decode.joining.remove(state)
            elif stage is Stage.DECODE:
                decode.leave(state)
                decode.finishing[state.first_step + state.job.output_tokens].remove(state)
            decode.release(state)
            self._admit(decode, now_s)

    def next_event_s(self) -> float | None:
        return self._events[0][0] if self._events else None

    def advance(self, now_s: float) -> list[Emission]:
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
        return len(self._states) - self.waiting

    @property
    def kv_usage_ratio(self) -> float:
        """Reserved share of the KV space of all decode instances."""
        held_tokens = sum(decode.held_tokens for decode in self._decodes)
        return held_tokens / (self._profile.decode_kv_capacity_tokens * len(self._decodes))

    def _at(self, due_s: float, act: Callable[[float], None]) -> None:
        self._events_made += 1
        heapq.heappush(self._events, (due_s, self._events_made, act))

    def _stretched_s(self, step_ms: float) -> float:
        jitter = self._jitter_ratio
        return step_ms / 1000 * (self._random.uniform(1 - jitter, 1 + jitter) if jitter else 1)

    def _reach_prefill(self, state: JobState, at_s: float) -> None:
        if state.stage is Stage.GONE:
            return
        hashes = state.job.block_hashes
        # Among equally loaded instances the one that knows most of the prompt, then the first.
        prefill = state.prefill = min(
            self._prefills, key=lambda one: (one.load_tokens, -one.cache.leading_blocks(hashes))
        )
        cached_tokens = prefill.cache.leading_blocks(hashes) * self._profile.cache_block_tokens
        # The last token is always computed: the first decode step needs its output.
        state.cached_tokens = min(cached_tokens, state.job.prompt_tokens - 1)
        state.prefill_left_tokens = state.job.prompt_tokens - state.cached_tokens
        state.stage = Stage.PREFILL
        prefill.queue.append(state)
        prefill.load_tokens += state.prefill_left_tokens
        if not prefill.stepping:
            self._start_prefill_step(prefill, at_s)

    def _start_prefill_step(self, prefill: Prefill, at_s: float) -> None:
        prefill.stepping = bool(prefill.queue)
        if not prefill.stepping:
            return
        completed, tokens, cached_tokens = prefill.take_batch(self._profile.prefill_budget_tokens)
        step_s = self._stretched_s(self._profile.prefill_step_ms(tokens, cached_tokens))
        self._at(at_s + step_s, partial(self._end_prefill_step, prefill, completed, tokens))

    def _end_prefill_step(
        self, prefill: Prefill, completed: list[JobState], tokens: int, at_s: float
    ) -> None:
        prefill.load_tokens -= tokens
        for state in completed:
            prefill.cache.hold(state.job.block_hashes)
            if state.stage is Stage.GONE:
                continue
            decode = state.decode = min(self._decodes, key=lambda instance: instance.assigned_tokens)
            decode.assigned_tokens += state.reserved_tokens
            state.stage = Stage.ADMISSION
            decode.admission.append(state)
            self._admit(decode, at_s)
        self._start_prefill_step(prefill, at_s)

    def _admit(self, decode: Decode, at_s: float) -> None:
        while state := decode.admit_next():
            state.stage = Stage.TRANSFER
            begin_s = max(at_s, decode.link_free_s, state.prefill.link_free_s)
            end_s = begin_s + self._profile.transfer_ms(state.job.prompt_tokens) / 1000
            decode.link_free_s = state.prefill.link_free_s = end_s
            self._at(end_s, partial(self._reach_decode, state))

    def _reach_decode(self, state: JobState, at_s: float) -> None:
        if state.stage is Stage.GONE:
            return
        state.stage = Stage.JOINING
        state.decode.joining.append(state)
        if not state.decode.stepping:
            self._start_decode_step(state.decode, at_s)

    def _start_decode_step(self, decode: Decode, at_s: float) -> None:
        newcomers = decode.join()
        decode.stepping = bool(decode.running)
        if decode.stepping:
            step_ms = self._profile.decode_step_ms(len(decode.running), decode.context_tokens)
            self._at(at_s + self._stretched_s(step_ms), partial(self._end_decode_step, decode, newcomers))

    def _end_decode_step(self, decode: Decode, newcomers: list[JobState], at_s: float) -> None:
        decode.steps_done += 1
        decode.context_tokens += len(decode.running)
        finished = decode.finishing.pop(decode.steps_done, [])
        for state in finished:
            decode.leave(state)
        keys = list(decode.running)
        if not self._every_token:
            keys = [state.job.key for state in newcomers if state.job.key in decode.running]
        self._emissions += [Emission(key, 1, False, at_s) for key in keys]
        for state in finished:
            unreported = 1 if self._every_token or state in newcomers else state.job.output_tokens - 1
            self._emissions.append(Emission(state.job.key, unreported, True, at_s, state.cached_tokens))
            state.stage = Stage.GONE
            del self._states[state.job.key]
            decode.release(state)
        self._admit(decode, at_s)
        self._start_decode_step(decode, at_s)


def new_service(
    profile: Profile,
    *,
    prefix_cache: bool = False,
    jitter_ratio: float = 0.0,
    seed: int = 0,
    every_token: bool = True,
) -> Service:
    """Return an idle service; the linear one has neither cache nor jitter and emits every token."""
    if isinstance(profile, LinearProfile):
        return LinearService(profile)
    return PdService(
        profile, prefix_cache=prefix_cache, jitter_ratio=jitter_ratio, seed=seed, every_token=every_token
    )
