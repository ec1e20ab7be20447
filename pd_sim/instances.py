"""State of the prefill and decode instances: queues, prefix caches, KV space and batches."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from pd_sim.profiles import PdProfile
from pd_sim.service import Job

Stage = Enum("Stage", ["ROUTING", "PREFILL", "ADMISSION", "TRANSFER", "JOINING", "DECODE", "GONE"])
"""Stages of a job, in this order."""


@dataclass(slots=True, eq=False)
class JobState:
    """One job in flight; `prefill` and `decode` are the instances it was sent to."""

    job: Job
    reserved_tokens: int
    stage: Stage = Stage.ROUTING
    prefill: Prefill = field(init=False)
    decode: Decode = field(init=False)
    cached_tokens: int = 0
    prefill_left_tokens: int = 0
    prefill_started: bool = False
    first_step: int = 0


class PrefixCache:
    """Prompt blocks held by one prefill instance; the least recently used are dropped first."""

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity_blocks = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def leading_blocks(self, block_hashes: Sequence[int]) -> int:
        """Count the blocks held from the start of the prompt to the first gap."""
        for count, block in enumerate(block_hashes):
            if block not in self._blocks:
                return count
        return len(block_hashes)

    def hold(self, block_hashes: Sequence[int]) -> None:
        """Keep these blocks as the most recently used; the end of the prompt is dropped before its start."""
        for block in reversed(block_hashes):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity_blocks:
            self._blocks.popitem(last=False)


class Prefill:
    """A FIFO of prompts, computed one step at a time; `load_tokens` is the uncached work left."""

    def __init__(self, cache: PrefixCache) -> None:
        self.cache = cache
        self.queue: deque[JobState] = deque()
        self.load_tokens = 0
        self.stepping = False
        self.link_free_s = 0.0

    def take_batch(self, budget_tokens: int) -> tuple[list[JobState], int, int]:
        """Take the work of one step off the queue: prompts it completes, its uncached and its cached tokens.

        A prompt that does not fit in whole stays at the head with the rest of its tokens.
        """
        completed: list[JobState] = []
        uncached_tokens = cached_tokens = 0
        while self.queue and uncached_tokens < budget_tokens:
            state = self.queue[0]
            if not state.prefill_started:
                state.prefill_started = True
                cached_tokens += state.cached_tokens
            chunk_tokens = min(state.prefill_left_tokens, budget_tokens - uncached_tokens)
            uncached_tokens += chunk_tokens
            state.prefill_left_tokens -= chunk_tokens
            if state.prefill_left_tokens:
                break
            completed.append(self.queue.popleft())
        return completed, uncached_tokens, cached_tokens


class Decode:
    """Continuous batching: a step gives each running job one token; newcomers join between steps.

    `assigned_tokens` is the KV space of every job sent here, `held_tokens` that of the admitted jobs.
    """

    def __init__(self, profile: PdProfile) -> None:
        self._profile = profile
        self.admission: deque[JobState] = deque()
        self.joining: list[JobState] = []
        self.running: dict[int, JobState] = {}
        self.finishing: dict[int, list[JobState]] = {}
        self.assigned_tokens = 0
        self.held_tokens = 0
        self.held_slots = 0
        self.context_tokens = 0
        self.steps_done = 0
        self.stepping = False
        self.link_free_s = 0.0

    def admit_next(self) -> JobState | None:
        """Reserve KV space for the head of the admission queue; None when the queue is empty or space lacks."""
        if not self.admission or self.held_slots == self._profile.decode_max_batch:
            return None
        state = self.admission[0]
        if self.held_tokens + state.reserved_tokens > self._profile.decode_kv_capacity_tokens:
            return None
        self.held_tokens += state.reserved_tokens
        self.held_slots += 1
        return self.admission.popleft()

    def join(self) -> list[JobState]:
        """Put the newcomers into the batch and return them."""
        newcomers, self.joining = self.joining, []
        for state in newcomers:
            state.stage = Stage.DECODE
            state.first_step = self.steps_done
            self.running[state.job.key] = state
            self.finishing.setdefault(self.steps_done + state.job.output_tokens, []).append(state)
            self.context_tokens += state.job.prompt_tokens
        return newcomers

    def leave(self, state: JobState) -> None:
        """Take a running job out of the batch, finished or not."""
        del self.running[state.job.key]
        self.context_tokens -= state.job.prompt_tokens + self.steps_done - state.first_step

    def release(self, state: JobState) -> None:
        """Free the KV space and the slot of an admitted job."""
        self.held_tokens -= state.reserved_tokens
        self.held_slots -= 1
        self.assigned_tokens -= state.reserved_tokens
