"""The instances of a disaggregated deployment: what is queued, cached, held and running where."""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_sim.job import Job
    from pd_sim.profiles import PdProfile


class Stage(Enum):
    """Where a job is on its way through the deployment, in this order."""

    ROUTING = auto()
    PREFILL = auto()
    ADMISSION = auto()
    TRANSFER = auto()
    JOINING = auto()
    DECODE = auto()
    GONE = auto()


class Flight:
    """One job on its way; `prefill` and `decode` are the instances it was sent to."""

    __slots__ = (
        "cached_tokens",
        "decode",
        "first_step",
        "job",
        "prefill",
        "prefill_left_tokens",
        "prefill_started",
        "reserved_tokens",
        "stage",
    )

    def __init__(self, job: Job, reserved_tokens: int) -> None:
        self.job = job
        self.reserved_tokens = reserved_tokens
        self.stage = Stage.ROUTING
        self.prefill: Prefill
        self.decode: Decode
        self.cached_tokens = 0
        self.prefill_left_tokens = 0
        self.prefill_started = False
        self.first_step = 0


class PrefixCache:
    """Which prompt blocks one prefill instance still holds; the least recently used leave first."""

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity_blocks = capacity_blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def leading_blocks(self, block_hashes: Sequence[int]) -> int:
        """Count the blocks held without a gap from the start of the prompt."""
        for count, block in enumerate(block_hashes):
            if block not in self._blocks:
                return count
        return len(block_hashes)

    def hold(self, block_hashes: Sequence[int]) -> None:
        """Keep these blocks as the most recently used, the start of the prompt longest."""
        for block in reversed(block_hashes):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity_blocks:
            self._blocks.popitem(last=False)


class Prefill:
    """A FIFO of prompts and one step at a time; `load_tokens` is the uncached work not done yet."""

    def __init__(self, cache: PrefixCache | None) -> None:
        self.cache = cache
        self.queue: deque[Flight] = deque()
        self.load_tokens = 0
        self.stepping = False
        self.link_free_s = 0.0

    def take_batch(self, budget_tokens: int) -> tuple[list[Flight], int, int]:
        """Take one step's work off the queue: the prompts it completes, its uncached and its cached tokens.

        A prompt that does not fit in whole stays at the head with the rest of its tokens.
        """
        completed: list[Flight] = []
        uncached_tokens = cached_tokens = 0
        while self.queue and uncached_tokens < budget_tokens:
            flight = self.queue[0]
            if not flight.prefill_started:
                flight.prefill_started = True
                cached_tokens += flight.cached_tokens
            chunk_tokens = min(flight.prefill_left_tokens, budget_tokens - uncached_tokens)
            uncached_tokens += chunk_tokens
            flight.prefill_left_tokens -= chunk_tokens
            if flight.prefill_left_tokens:
                break
            completed.append(self.queue.popleft())
        return completed, uncached_tokens, cached_tokens


class Decode:
    """Continuous batching: every step gives each running job one token; newcomers join between steps.

    `assigned_tokens` is the KV space of every job sent here, `held_tokens` that of the admitted ones.
    """

    def __init__(self, profile: PdProfile) -> None:
        self._profile = profile
        self.admission: deque[Flight] = deque()
        self.joining: list[Flight] = []
        self.running: dict[int, Flight] = {}
        self.finishing: dict[int, list[Flight]] = {}
        self.assigned_tokens = 0
        self.held_tokens = 0
        self.held_slots = 0
        self.context_tokens = 0
        self.steps_done = 0
        self.stepping = False
        self.link_free_s = 0.0

    def admit_next(self) -> Flight | None:
        """Reserve room for the head of the admission queue, or return None when there is none or no room."""
        if not self.admission or self.held_slots == self._profile.decode_max_batch:
            return None
        flight = self.admission[0]
        if self.held_tokens + flight.reserved_tokens > self._profile.decode_kv_capacity_tokens:
            return None
        self.held_tokens += flight.reserved_tokens
        self.held_slots += 1
        return self.admission.popleft()

    def join(self) -> list[Flight]:
        """Put the newcomers into the batch and return them."""
        newcomers, self.joining = self.joining, []
        for flight in newcomers:
            flight.stage = Stage.DECODE
            flight.first_step = self.steps_done
            self.running[flight.job.key] = flight
            self.finishing.setdefault(self.steps_done + flight.job.output_tokens, []).append(flight)
            self.context_tokens += flight.job.prompt_tokens
        return newcomers

    def leave(self, flight: Flight) -> None:
        """Take a running job out of the batch, finished or not."""
        del self.running[flight.job.key]
        self.context_tokens -= flight.job.prompt_tokens + self.steps_done - flight.first_step

    def release(self, flight: Flight) -> None:
        """Give back what an admitted job holds."""
        self.held_tokens -= flight.reserved_tokens
        self.held_slots -= 1
        self.assigned_tokens -= flight.reserved_tokens
