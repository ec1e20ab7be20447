"""Columns and tables as values. A column is defined once: for terminal, Markdown, HTML, CSV and JSON alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pd_locust.units import NOT_AVAILABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Cell = str | int | float | None
Row = dict[str, Cell]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Column(Generic[_T]):
    """`name` carries the unit and is the key in CSV and JSON; `heading` and `show` are for people.

    `translated` texts are words of ours, not a server's or a user's.
    """

    name: str
    heading: str
    show: Callable[[Any], str]
    value: Callable[[_T], Cell]
    translated: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows are mappings from column name to value; absent is None."""

    name: str
    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, name: str, columns: Iterable[Column[_T]], things: Iterable[_T]) -> Table:
        """One row for each thing."""
        columns = tuple(columns)
        rows = tuple({column.name: column.value(thing) for column in columns} for thing in things)
        return cls(name, columns, rows)


def text(value: Cell) -> str:
    """Names as they are; absent reads `n/a`."""
    return NOT_AVAILABLE if value is None else str(value)
