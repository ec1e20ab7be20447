"""When a run has stopped to measure anything: too large a share of its requests fails."""

from __future__ import annotations

from collections import Counter, deque

from pd_locust.stream import Category

WINDOW_S = 30.0
_LEAST_FINISHED = 50


class FailureWindow:
    """Finished requests of the last WINDOW_S seconds; the clock is the caller's."""

    def __init__(self, max_ratio: float) -> None:
        self._max_ratio = max_ratio
        self._finished: deque[tuple[float, Category | None, str]] = deque()
        self._failed = 0

    def clear(self) -> None:
        """Forget everything: a new run begins."""
        self._finished.clear()
        self._failed = 0

    def note(self, at_s: float, category: Category | None, message: str) -> str | None:
        """Note a finished request; return the last word if the run should end now.

        Not before 50 have finished in the window: a handful proves nothing.
        """
        self._finished.append((at_s, category, message))
        self._failed += category is not None
        while self._finished[0][0] < at_s - WINDOW_S:
            self._failed -= self._finished.popleft()[1] is not None
        finished = len(self._finished)
        if finished < _LEAST_FINISHED or self._failed / finished <= self._max_ratio:
            return None
        return self._last_word(finished)

    def _last_word(self, finished: int) -> str:
        reasons = Counter((category, message) for _, category, message in self._finished if category)
        (category, message), count = reasons.most_common(1)[0]
        return (
            f"run aborted: {self._failed} of {finished} requests in the last {WINDOW_S:.0f} s failed "
            f"(--pd-max-failure-ratio {self._max_ratio:g}), {count} of them as {message}; {category.hint}"
        )
