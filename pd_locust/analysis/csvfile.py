"""Reading the CSV files of a run, which a crash may have cut, without guessing at anything else."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import pandas as pd

from pd_locust.errors import HistoryError
from pd_locust.warnings import Doubt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from _typeshed import WriteableBuffer

_OPEN_QUOTE = re.compile(r"EOF inside string starting at row (\d+)")
_BLOCK_BYTES = 65_536
_EXCESS = "cells beyond the header"


def read_csv(
    path: Path,
    *,
    needed: Collection[str],
    texts: Collection[str],
    filled: str,
    keep: Callable[[str], bool],
    remedy: str,
) -> tuple[pd.DataFrame, Doubt | None]:
    """Read the `needed` columns and those that `keep` wants; all but `texts` are numbers, empty cells absent.

    `filled` is the last column that no row leaves empty: a line without it was cut. A last line without its
    line end was cut while it was written: it is left out and a Doubt says so. Raises HistoryError with path,
    line and `remedy` for everything else that is not as its header says.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror or error}; {remedy}") from error
    with file:
        return _read(file, path, needed=needed, texts=texts, filled=filled, keep=keep, remedy=remedy)


def _read(
    file: BinaryIO,
    path: Path,
    *,
    needed: Collection[str],
    texts: Collection[str],
    filled: str,
    keep: Callable[[str], bool],
    remedy: str,
) -> tuple[pd.DataFrame, Doubt | None]:
    try:
        first = file.readline()
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror or error}; {remedy}") from error
    whole_end, end = _whole_end(file)
    first = first.rstrip(b"\r\n") if whole_end else b""
    header = next(csv.reader([first.decode(errors="replace")]), [])
    if not header:
        raise HistoryError(f"{path}: the file is empty; {remedy}")
    if missing := [name for name in (*needed, filled) if name not in header]:
        raise HistoryError(f"{path}, line 1: no column {', '.join(missing)}; {remedy}")
    wanted = [name for name in header if name in needed or name == filled or keep(name)]
    try:
        with warnings.catch_warnings():
            # Of a column that is a number here and a text there; its line is named below.
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            frame = pd.read_csv(
                # pandas drops cells beyond the header without a word, unless there is a column for them.
                _Lines(first + f",{_EXCESS}\n".encode(), file, whole_end),
                usecols=[*wanted, _EXCESS],
                # Few distinct values a column, so categories are the quickest and smallest form of text.
                dtype=dict.fromkeys(texts, "category"),
                # A tier may well be called "null" or "None"; only these two mean that nothing is there.
                na_values=["", "N/A"],
                keep_default_na=False,
                encoding_errors="replace",
                skip_blank_lines=False,
            )
    except (pd.errors.ParserError, ValueError) as error:
        raise _broken(path, str(error), remedy) from error
    if frame.empty:
        raise HistoryError(f"{path}: a header and no rows; {remedy}")
    if (line := first_line(frame.pop(_EXCESS).notna())) is not None:
        raise HistoryError(f"{path}, line {line}: more than the {len(header)} cells of the header; {remedy}")
    if (line := first_line(frame[filled].isna())) is not None:
        raise HistoryError(f"{path}, line {line}: the line ends before column {filled}; {remedy}")
    for name in wanted:
        _check_numbers(path, frame, name, texts, remedy)
    return frame, _cut(path, len(frame) + 2) if whole_end < end else None


@contextmanager
def whole_lines(path: Path) -> Iterator[BinaryIO]:
    """Open a file without its last line, if that was cut while it was written."""
    with path.open("rb") as file:
        yield _Lines(b"", file, _whole_end(file)[0])


class _Lines(io.BufferedReader):
    """A header, and what `file` has from where it stands to `end`; however large, it is never held whole."""

    def __init__(self, header: bytes, file: BinaryIO, end: int) -> None:
        super().__init__(_RawLines(header, file, end))


class _RawLines(io.RawIOBase):
    def __init__(self, header: bytes, file: BinaryIO, end: int) -> None:
        self._header, self._file, self._left = header, file, end - file.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer)
        if self._header:
            some, self._header = self._header[: len(view)], self._header[len(view) :]
        else:
            some = self._file.read(min(len(view), self._left))
            self._left -= len(some)
        view[: len(some)] = some
        return len(some)


def _whole_end(file: BinaryIO) -> tuple[int, int]:
    """Return where the last whole line ends, 0 without one, and where the file does; the file stands as before."""
    place = file.tell()
    end = at = file.seek(0, os.SEEK_END)
    found = -1
    while at > 0 and found < 0:
        at = max(0, at - _BLOCK_BYTES)
        file.seek(at)
        found = file.read(_BLOCK_BYTES).rfind(b"\n")
    file.seek(place)
    return (at + found + 1, end) if found >= 0 else (0, end)


def first_line(wrong: pd.Series[bool]) -> int | None:
    """Line in the file of the first row that is `wrong`; the header is line 1."""
    return int(wrong.to_numpy().argmax()) + 2 if wrong.any() else None


def _check_numbers(path: Path, frame: pd.DataFrame, name: str, texts: Collection[str], remedy: str) -> None:
    if name in texts or pd.api.types.is_numeric_dtype(frame[name]):
        return
    wrong = pd.to_numeric(frame[name], errors="coerce").isna() & frame[name].notna()
    line = first_line(wrong) or 2
    raise HistoryError(
        f"{path}, line {line}: {name} is {frame[name].iloc[line - 2]!r}, not a number; {remedy}"
    )


def _broken(path: Path, message: str, remedy: str) -> HistoryError:
    if match := _OPEN_QUOTE.search(message):
        return HistoryError(f"{path}, line {int(match[1]) + 1}: a quote is never closed; {remedy}")
    return HistoryError(f"{path}: not a CSV file ({message.strip()}); {remedy}")


def _cut(path: Path, line: int) -> Doubt:
    return Doubt(
        "cut-line",
        path.name,
        f"the last line ({line}) has no end and was left out",
        "the writing process was killed, or is still writing",
        "report again when the run has ended; every other line counts",
    )
