"""A level: one plateau with its place in the run, however it was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from pd_locust.plateau import Plateau


class Kind(StrEnum):
    """What a phase is for; its name starts with it. A phase of unknown name is a stream."""

    SINGLE = "single"
    CONCURRENCY = "concurrency"
    SWEEP = "sweep"
    STREAM = "stream"

    @classmethod
    def of(cls, phase: str) -> Kind:
        """`sweep/short/64` -> SWEEP."""
        word = phase.split("/", 1)[0]
        return cls(word) if word in set(cls) else cls.STREAM


class Selection(StrEnum):
    """Which requests of a level the plateau describes."""

    ALL = "all"
    STEADY = "steady"
    FIRST_WAVE = "first wave"


@dataclass(frozen=True, slots=True)
class Level:
    """`handoff_p50_ms` is the median PD handoff of the requests, None where gaps were not recorded.

    `alone` is False when other tiers were under load at the same time; `plateau.users` then counts the
    users of all of them. `requests` are all records of the level in the order of sending, whatever the
    selection; None from Locust's history, which has none.
    """

    run: int
    kind: Kind
    selection: Selection
    plateau: Plateau
    handoff_p50_ms: float | None = None
    alone: bool = True
    requests: pd.DataFrame | None = field(default=None, repr=False, compare=False)
