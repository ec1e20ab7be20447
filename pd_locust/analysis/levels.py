"""Levels from PREFIX_requests.csv, where every request is a row: all numbers are exact."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from pd_locust.analysis.columns import Columns
from pd_locust.analysis.csvfile import first_line, read_csv
from pd_locust.errors import HistoryError
from pd_locust.plateau import EVERYTHING, FIRST_WAVE, STEADY, Plateau
from pd_locust.record import RECORD_VERSION, Outcome, Part, TokensSource
from pd_locust.stream import Category

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pandas as pd

    from pd_locust.slo import Slo
    from pd_locust.warnings import Doubt


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


_REMEDY = "it must be a PREFIX_requests.csv as pd_locust wrote it; --history-only reports without it"
_LEVEL = ["run", "phase", "tier", "users"]
_TEXTS = ("phase", "tier", "part", "outcome", "category", "message", "tokens_source")
_ENUMS: dict[str, type[StrEnum]] = {
    "part": Part,
    "outcome": Outcome,
    "category": Category,
    "tokens_source": TokensSource,
}
_ALWAYS = ("v", "run", "phase", "tier", "part", "sent_unix_us", "outcome", "buffered", "text_chunks")
# Among fewer gaps the first one, where the handoff is, would move the median it is compared with.
_HANDOFF_NEEDS_CHUNKS = 8
_PARTS = {Selection.ALL: EVERYTHING, Selection.STEADY: STEADY, Selection.FIRST_WAVE: FIRST_WAVE}
_SELECTIONS = {
    Kind.SINGLE: (Selection.ALL,),
    Kind.CONCURRENCY: (Selection.ALL, Selection.STEADY, Selection.FIRST_WAVE),
    Kind.SWEEP: (Selection.STEADY,),
    Kind.STREAM: (Selection.STEADY,),
}


# What a plateau reads beside them, and the handoff.
_NUMBERS = (
    *("ttft_ms", "ttfo_ms", "ttst_ms", "tpot_ms", "itl_p50_ms", "itl_p99_ms", "e2e_ms"),
    *(
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "loop_lag_ms",
        "client_cpu_share",
        "worker",
        "reads",
        "reconnected",
    ),
)
_NEEDED = dict.fromkeys((*_ALWAYS, *_LEVEL, *_TEXTS, *_NUMBERS))


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Failed requests of one category; `share` is of all finished requests."""

    category: Category
    count: int
    share: float
    example: str


def load_requests(path: Path) -> tuple[pd.DataFrame, list[Doubt]]:
    """Read the records, in the order of sending. Raises HistoryError when a line is not a record."""
    frame, cut = read_csv(
        path, needed=_NEEDED, texts=_TEXTS, filled="body_bytes", keep=lambda _: False, remedy=_REMEDY
    )
    if (line := first_line(frame["v"] != RECORD_VERSION)) is not None:
        seen = frame["v"].iloc[line - 2]
        raise HistoryError(
            f"{path}, line {line}: record version {seen:g}, this pd-locust reads {RECORD_VERSION}; "
            "report with the version that recorded it"
        )
    for name in _ALWAYS:
        if (line := first_line(frame[name].isna())) is not None:
            raise HistoryError(f"{path}, line {line}: {name} is empty; {_REMEDY}")
    for name, enum in _ENUMS.items():
        if unknown := [value for value in frame[name].cat.categories if value not in set(enum)]:
            line = first_line(frame[name] == unknown[0])
            raise HistoryError(
                f"{path}, line {line}: {name} {unknown[0]!r} is none of {', '.join(enum)}; {_REMEDY}"
            )
    return frame.sort_values(["run", "sent_unix_us"], kind="stable", ignore_index=True), [cut] if cut else []


def levels_of(
    frame: pd.DataFrame, slo: Slo, nominal_tokens: Mapping[str, int], confidence: float
) -> Iterator[Level]:
    """Judge every level in the order in which they were held.

    A single stream has no herd and so no start-up wave: every request of it counts. A concurrency run is
    given whole, as its steady part and as its first wave; a level of a sweep or stream as its steady part.
    Requests sent while users were being added belong to no level.
    """
    frame = frame.assign(stay=_stays(frame))
    tiers = frame.groupby(["run", "phase", "users"], observed=True)["tier"].nunique().to_dict()
    for key, rows in frame.groupby([*_LEVEL, "stay"], sort=False, observed=True):
        run, phase, tier, users, _ = cast("tuple[int, str, str, float, float]", key)
        kind = Kind.of(phase)
        alone = tiers[run, phase, users] == 1
        requests = Columns(rows)
        parts_seen = set(rows["part"].unique())
        for selection in _SELECTIONS[kind]:
            if selection is Selection.FIRST_WAVE and not parts_seen & FIRST_WAVE:
                continue
            plateau = Plateau.of(
                requests,
                phase=phase,
                tier=tier,
                users=int(users),
                slo=slo,
                parts=_PARTS[selection],
                confidence=confidence,
                nominal_tokens=nominal_tokens.get(tier),
            )
            if not alone:
                # The users of one tier are a part of all users: fewer requests in flight are no surprise.
                doubts = tuple(doubt for doubt in plateau.doubts if doubt.code != "under-concurrency")
                plateau = replace(plateau, doubts=doubts)
            yield Level(int(run), kind, selection, plateau, _handoff_p50_ms(rows), alone, rows)


def failures_of(frame: pd.DataFrame) -> list[FailureCount]:
    """Count failures by category, the most frequent first. Requests that we cut ourselves are none."""
    finished = int((frame["outcome"] != Outcome.CUT).sum())
    failed = frame[frame["outcome"] == Outcome.FAILURE]
    counts = [
        FailureCount(Category(str(name)), len(messages), len(messages) / finished, _first(messages))
        for name, messages in failed.groupby("category", observed=True)["message"]
    ]
    return sorted(counts, key=lambda failure: -failure.count)


def cut_requests(frame: pd.DataFrame) -> int:
    """Count the requests that the end of the run ended; neither successes nor failures."""
    return int((frame["outcome"] == Outcome.CUT).sum())


def _stays(frame: pd.DataFrame) -> pd.Series[float]:
    """Tell apart two stays at the same level, say up and down a staircase: one window over both is a lie.

    A level is left when another one is sampled; requests around a sample belong to the stay that follows.
    """
    sampled = frame["part"] == Part.SAMPLE
    place = frame.groupby(["run", "phase", "users"], observed=True).ngroup()[sampled]
    stay = (place != place.shift()).cumsum().reindex(frame.index).astype(float)
    keys = [frame[name] for name in _LEVEL]
    following = stay.groupby(keys, observed=True).bfill()
    return following.groupby(keys, observed=True).ffill().fillna(0)


def _handoff_p50_ms(rows: pd.DataFrame) -> float | None:
    good = rows[(rows["outcome"] == Outcome.SUCCESS) & (rows["text_chunks"] >= _HANDOFF_NEEDS_CHUNKS)]
    handoff_ms = (good["ttst_ms"] - good["ttft_ms"] - good["itl_p50_ms"]).clip(lower=0).dropna()
    return float(handoff_ms.median()) if len(handoff_ms) else None


def _first(messages: pd.Series[str]) -> str:
    said = messages.dropna()
    return str(said.iloc[0]) if len(said) else ""
