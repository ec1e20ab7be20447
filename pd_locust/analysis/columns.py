"""Requests of a level as columns of a file: what a judge asks of millions, without an object for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pd_locust.record import Outcome
from pd_locust.sample import Sample

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from pd_locust.record import Part
    from pd_locust.slo import RequestLimit


class Columns(Sample):
    """Rows of a frame of records that are in the order of sending; nothing is copied before it is asked for."""

    def __init__(self, frame: pd.DataFrame, places: NDArray[np.intp] | None = None) -> None:
        self._frame = frame
        self._places = np.arange(len(frame)) if places is None else places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, span: slice, /) -> Columns:
        return Columns(self._frame, self._places[span])

    def in_parts(self, parts: frozenset[Part]) -> Columns:
        return self._where(self._is("part", parts))

    def ended(self, *outcomes: Outcome) -> Columns:
        return self._where(self._is("outcome", outcomes))

    def column(self, name: str) -> list[Any]:
        series = self._frame[name]
        if hasattr(series, "cat"):
            # The code of an absent one is -1: the last.
            texts = np.array([*series.cat.categories, None], dtype=object)
            return list(texts[series.cat.codes.to_numpy()[self._places]])
        values = series.to_numpy()[self._places]
        found: list[Any] = values.tolist()
        for place in np.isnan(values).nonzero()[0].tolist():
            found[place] = None
        return found

    def values(self, name: str) -> list[Any]:
        return list(self._present(name).tolist())

    def ordered(self, name: str) -> list[Any]:
        return list(np.sort(self._present(name)).tolist())

    def met(self, limits: Sequence[RequestLimit]) -> list[bool]:
        good = self._is("outcome", (Outcome.SUCCESS,))
        for limit in limits:
            values = self._numbers(limit.column)
            good &= (values <= limit.limit_ms) | (np.isnan(values) & limit.absent_is_met)
        return list(good.tolist())

    def latencies_ms(self, name: str) -> list[float]:
        good = self._is("outcome", (Outcome.SUCCESS,))
        values = np.where(good, self._numbers(name), np.inf)
        return list(values[~np.isnan(values)].tolist())

    def _where(self, chosen: NDArray[np.bool]) -> Columns:
        return Columns(self._frame, self._places[chosen])

    def _is(self, name: str, wanted: Collection[str]) -> NDArray[np.bool]:
        text = self._frame[name].cat
        codes = [code for code, category in enumerate(text.categories) if category in wanted]
        return np.isin(text.codes.to_numpy()[self._places], codes)

    def _numbers(self, name: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._frame[name].to_numpy(float)
        return values[self._places]

    def _present(self, name: str) -> NDArray[Any]:
        values: NDArray[Any] = self._frame[name].to_numpy()[self._places]
        present: NDArray[Any] = values[~np.isnan(values)]
        return present
