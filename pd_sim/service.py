"""What enters and leaves a model of a service."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """One request as the model sees it; `key` is unique among the jobs in flight.

    `block_hashes` has one hash per full prompt block, each of the prompt from its start to the end of that
    block. Empty means that no part of the prompt can be found in a prefix cache.
    """

    key: int
    prompt_tokens: int
    output_tokens: int
    block_hashes: tuple[int, ...] = ()


class Emission(NamedTuple):
    """`tokens` output tokens of one job, produced at the model time `due_s`; `final` ends the job.

    `cached_tokens`, the prompt tokens found in a prefix cache, is known with the final emission.
    """

    key: int
    tokens: int
    final: bool
    due_s: float
    cached_tokens: int | None = None


class Service(Protocol):
    """A state machine without a clock of its own: every call is told the time, in seconds of model time.

    Work due before `now_s` happens at its own due time, not at `now_s`: a late caller sees its tokens late,
    and later tokens are not delayed by that.
    """

    def arrive(self, now_s: float, job: Job) -> None:
        """Take in a job; a ValueError says why it could never be served."""

    def cancel(self, now_s: float, key: int) -> None:
        """Forget a job and free what it holds; unknown keys are ignored."""

    def next_event_s(self) -> float | None:
        """Return when the next event is due, or None when the service is idle."""

    def advance(self, now_s: float) -> list[Emission]:
        """Do everything due up to `now_s`; tokens come back in the order they were produced."""

    @property
    def running(self) -> int:
        """Jobs being computed or transferred."""

    @property
    def waiting(self) -> int:
        """Jobs held in a queue."""

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the decode KV space that is reserved, 0 to 1."""
