"""Step: what one part of the check saw, as a value. Nothing secret survives `conceal`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from pd_locust.stream import Failure
from pd_locust.warnings import Doubt


class Status(StrEnum):
    """A step that was skipped says why: there was nothing to do, or an earlier one had failed."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """`body` is the beginning of an answer, line by line; `advice` holds causes, the likeliest first."""

    name: str
    status: Status
    seen: str
    duration_ms: float | None = None
    failure: Failure | None = None
    advice: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    body: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def ok(cls, name: str, seen: str, **more: Any) -> Step:
        """Return a step that found what it looked for."""
        return cls(name, Status.OK, seen, **more)

    @classmethod
    def failed(cls, name: str, seen: str, failure: Failure, *advice: str, **more: Any) -> Step:
        """Return a step after which nothing more can be tried."""
        return cls(name, Status.FAILED, seen, failure=failure, advice=advice, **more)

    @classmethod
    def skipped(cls, name: str, seen: str) -> Step:
        """Return a step that was not taken."""
        return cls(name, Status.SKIPPED, seen)

    def to_json(self) -> dict[str, Any]:
        """Stable keys for `--json`."""
        return asdict(self)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Escape control characters: what a server sends must not steer the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
