"""Requests as plateaus and judges ask about them: rows of the live run, or columns of a file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pd_locust.record import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pd_locust.record import Part
    from pd_locust.slo import RequestLimit

_SENT = attrgetter("sent_unix_us")


class Sample(ABC):
    """Requests in some order. Columns are named as in RequestRecord; absent is None."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, span: slice, /) -> Sample: ...

    @abstractmethod
    def in_parts(self, parts: frozenset[Part]) -> Sample:
        """Those that started in `parts`, in the order of sending."""

    @abstractmethod
    def ended(self, *outcomes: Outcome) -> Sample:
        """Those with one of these outcomes, in the same order."""

    @abstractmethod
    def column(self, name: str) -> Sequence[Any]:
        """Value of each, None where it is absent."""

    @abstractmethod
    def values(self, name: str) -> Sequence[Any]:
        """Values that are there, in the same order."""

    @abstractmethod
    def ordered(self, name: str) -> Sequence[Any]:
        """Values that are there, ascending."""

    @abstractmethod
    def met(self, limits: Sequence[RequestLimit]) -> Sequence[bool]:
        """Whether each succeeded and kept all limits."""

    @abstractmethod
    def latencies_ms(self, name: str) -> Sequence[float]:
        """Value of each success that has one; infinity for each that did not succeed."""


class Rows(Sample):
    """Objects with the attributes of a RequestRecord."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = list(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, span: slice, /) -> Rows:
        return Rows(self._rows[span])

    def in_parts(self, parts: frozenset[Part]) -> Rows:
        return Rows(sorted((row for row in self._rows if row.part in parts), key=_SENT))

    def ended(self, *outcomes: Outcome) -> Rows:
        return Rows(row for row in self._rows if row.outcome in outcomes)

    def column(self, name: str) -> list[Any]:
        return list(map(attrgetter(name), self._rows))

    def values(self, name: str) -> list[Any]:
        return [value for value in self.column(name) if value is not None]

    def ordered(self, name: str) -> list[Any]:
        return sorted(self.values(name))

    def met(self, limits: Sequence[RequestLimit]) -> list[bool]:
        return [
            row.outcome == Outcome.SUCCESS and all(limit.is_met(row) for limit in limits)
            for row in self._rows
        ]

    def latencies_ms(self, name: str) -> list[float]:
        values = zip(self.column("outcome"), self.column(name), strict=True)
        return [
            value if outcome == Outcome.SUCCESS else math.inf
            for outcome, value in values
            if outcome != Outcome.SUCCESS or value is not None
        ]
