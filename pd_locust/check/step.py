"""Step: what one part of the check saw, as a value. Nothing secret survives `conceal`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


_LEAST_SECRET = 6


def secrets_of(api_key: str | None, headers: Mapping[str, str]) -> list[str]:
    """Return what a service may repeat and nobody else should see: the key; a header's value may be one as well."""
    return [text for text in (api_key, *headers.values()) if text and len(text) >= _LEAST_SECRET]


def conceal(value: Any, secrets: Iterable[str]) -> Any:
    """Return the same value with `***` for every secret in any of its texts.

    Services like to repeat a wrong key in their answer, and messages are shortened: a secret that was cut
    off by the shortening is found by its beginning.
    """
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = _without(value, secret)
        return value
    if isinstance(value, dict):
        return {key: conceal(part, secrets) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(conceal(part, secrets) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{part.name: conceal(getattr(value, part.name), secrets) for part in fields(value)}
        )
    return value


_LEAST_PIECE = 6


def _without(text: str, secret: str) -> str:
    text = text.replace(secret, "***")
    for length in range(len(secret) - 1, _LEAST_PIECE - 1, -1):
        if f"{secret[:length]}…" in text:
            return text.replace(f"{secret[:length]}…", "***…")
    return text


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Escape control characters: what a server sends must not steer the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
