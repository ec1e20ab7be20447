"""A service whose capacity can be worked out by hand."""

import heapq

from pd_sim.profiles import LinearProfile
from pd_sim.service import Emission, Job

_GOLDEN_RATIO = 0.6180339887498949


class LinearService:
    """TTFT depends only on the jobs in flight at arrival: N closed-loop users get base + N x step each."""

    waiting = 0
    kv_usage_ratio = 0.0

    def __init__(self, profile: LinearProfile) -> None:
        self._profile = profile
        self._tpot_s = profile.tpot_ms / 1000
        self._left_tokens: dict[int, int] = {}
        self._due: list[tuple[float, int]] = []

    def arrive(self, now_s: float, job: Job) -> None:
        """Fix the time of the first token by the number of jobs in flight, this one included."""
        self._left_tokens[job.key] = job.output_tokens
        ttft_ms = self._profile.base_ms + self._profile.per_request_ms * len(self._left_tokens)
        # Multiples of the golden ratio fill the unit interval evenly over any range of keys.
        place = job.key * _GOLDEN_RATIO % 1
        ttft_ms *= 1 + self._profile.spread_ratio * (2 * place - 1)
        heapq.heappush(self._due, (now_s + ttft_ms / 1000, job.key))

    def cancel(self, now_s: float, key: int) -> None:  # noqa: ARG002 - the Service protocol's signature
        """Forget a job; its pending token is dropped when it falls due."""
        self._left_tokens.pop(key, None)

    def next_event_s(self) -> float | None:
        return self._due[0][0] if self._due else None

    def advance(self, now_s: float) -> list[Emission]:
        emissions: list[Emission] = []
        due = self._due
        while due and due[0][0] <= now_s:
            due_s, key = due[0]
            left_tokens = self._left_tokens.get(key, 0) - 1
            if left_tokens > 0:
                self._left_tokens[key] = left_tokens
                heapq.heapreplace(due, (due_s + self._tpot_s, key))
            else:
                heapq.heappop(due)
                if self._left_tokens.pop(key, None) is None:
                    continue
            final = left_tokens == 0
            emissions.append(Emission(key, 1, final, due_s, 0 if final else None))
        return emissions

    @property
    def running(self) -> int:
        return len(self._left_tokens)
