"""What one stream did, as facts: arrivals on a monotonic clock and what the server said of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pd_locust.failure import Category

MESSAGE_LIMIT = 200
_IDENTIFIERS = re.compile(
    r"\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?"  # timestamps
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # UUIDs
    r"|(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}"  # request ids, traces, hashes
    r"|0x[0-9a-fA-F]+"
    r"|\d{4,}"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One reason for one failed request; `message` is the server's own words, shortened to one line."""

    category: Category
    message: str

    def __str__(self) -> str:
        return f"{self.category}: {self.message}" if self.message else str(self.category)

    @property
    def group(self) -> str:
        """Text that is the same for the same cause: without request ids, timestamps and long numbers.

        Locust keys its failures table by this text; an id in it would make every failure a row of its own.
        """
        return _IDENTIFIERS.sub("…", str(self))


@dataclass(slots=True)
class StreamTiming:
    """Everything the reader of one answer saw. Times are nanoseconds of one monotonic clock.

    `text_ns` holds one arrival for each event that carried generated text: content, reasoning,
    completion text or tool-call arguments. Role-only events, empty deltas, usage and comments are not in it.
    """

    sent_ns: int
    text_ns: list[int] = field(default_factory=list)
    first_answer_ns: int | None = None
    end_ns: int | None = None
    events: int = 0
    first_text_event: int | None = None
    reads: int = 0
    body_bytes: int = 0
    status: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    failure: Failure | None = None
    keep_alive: bool = False
    retry_after_s: float | None = None
