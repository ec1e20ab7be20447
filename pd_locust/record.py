"""RequestRecord: one finished request; the one place where TTFT, TPOT, ITL and E2E latency are defined."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter, sub
from typing import TYPE_CHECKING, Any

from pd_locust.stream import Category, Failure
from pd_locust.summary import percentile
from pd_locust.units import NS_PER_MS, ns_to_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pd_locust.stream import StreamTiming

# Version of the columns of PREFIX_requests.csv, written as the first column of every row.
#   1  first version
RECORD_VERSION = 1


class Outcome(StrEnum):
    """`cut` is neither success nor the server's failure: we ended the request, at the end of the run."""

    SUCCESS = "success"
    FAILURE = "failure"
    CUT = "cut"


class Part(StrEnum):
    """Where in its level a request started.

    wave: a user's first request, so many of them start close together; ramp: users were still being
    added; settling: some user had not yet finished a request started at this level; sample: what
    percentiles and means are taken from; tail: the sample was full, the load was only held.
    """

    WAVE = "wave"
    RAMP = "ramp"
    SETTLING = "settling"
    SAMPLE = "sample"
    TAIL = "tail"


class TokensSource(StrEnum):
    """Who counted the output tokens: the server (`usage`), or we, by text chunks."""

    USAGE = "usage"
    CHUNKS = "chunks"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What the load knows about a request before its response comes; the first columns of its record.

    `sent_unix_us` is wall-clock time, a label only: every duration comes from a monotonic clock. `in_flight`
    counts this process's requests at sending, this one included.
    """

    request_id: str
    run: int
    phase: str
    tier: str
    users: int | None
    part: Part
    worker: int
    user: int
    sent_unix_us: int
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord(RequestContext):
    """One request, as it is written to PREFIX_requests.csv. Absent is None, never 0.

    Latencies are milliseconds, exact to the microsecond. `connect_ms` and `reconnected`: see StreamTiming.
    `loop_lag_ms` is the delay of our own event loop when the first text came: TTFT may be late by as much
    where the kernel does not say when the bytes arrived. `client_cpu_share` is our process's share of a core.
    """

    connect_ms: float | None
    reconnected: bool
    status: int | None
    outcome: Outcome
    category: Category | None
    message: str
    ttft_ms: float | None
    ttfo_ms: float | None
    ttst_ms: float | None
    tpot_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    itl_max_ms: float | None
    e2e_ms: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    tokens_source: TokensSource | None
    text_chunks: int
    finish_reason: str | None
    buffered: bool
    reads: int
    body_bytes: int
    loop_lag_ms: float | None
    client_cpu_share: float | None

    @classmethod
    def from_timing(
        cls,
        context: RequestContext,
        timing: StreamTiming,
        *,
        cut: bool = False,
        loop_lag_ms: float | None = None,
        client_cpu_share: float | None = None,
    ) -> RequestRecord:
        """Turn arrivals into the field's numbers. Definitions: docs/measurement.md.

        TTFT = first text - sent. TPOT = (last text - first text) / (N - 1), absent when N < 2, where N is
        `usage.completion_tokens` or, without usage, the number of text chunks. E2E = proper end - sent.
        A failed or cut request keeps the times it reached; nobody may take them for a sample of success.
        """
        text_ns, sent_ns = timing.text_ns, timing.sent_ns
        chunks = len(text_ns)
        tokens, source = _output_tokens(timing.completion_tokens, chunks)
        # All streams wait while this runs; whole lists at a time take a fifth less (87 us at 512 tokens).
        gaps_ns = list(map(sub, text_ns[1:], text_ns))
        itl_ms = [gap_ns / NS_PER_MS for gap_ns in sorted(gaps_ns)]
        failed = timing.failure is not None
        return cls(
            *_values_of(context),
            connect_ms=timing.connect_ms,
            reconnected=timing.reconnected,
            status=timing.status,
            outcome=Outcome.CUT if cut else Outcome.FAILURE if failed else Outcome.SUCCESS,
            category=None if cut or timing.failure is None else timing.failure.category,
            message="" if cut or timing.failure is None else timing.failure.message,
            ttft_ms=ns_to_ms(text_ns[0] - sent_ns) if text_ns else None,
            ttfo_ms=None if timing.first_answer_ns is None else ns_to_ms(timing.first_answer_ns - sent_ns),
            ttst_ms=ns_to_ms(text_ns[1] - sent_ns) if chunks > 1 else None,
            tpot_ms=_tpot_ms(text_ns, tokens),
            itl_p50_ms=_rounded(percentile(itl_ms, 50)),
            itl_p99_ms=_rounded(percentile(itl_ms, 99)),
            itl_max_ms=_rounded(itl_ms[-1]) if itl_ms else None,
            e2e_ms=None if timing.end_ns is None else ns_to_ms(timing.end_ns - sent_ns),
            prompt_tokens=timing.prompt_tokens,
            cached_tokens=timing.cached_tokens,
            output_tokens=tokens,
            tokens_source=source,
            text_chunks=chunks,
            finish_reason=timing.finish_reason,
            buffered=came_in_bursts(gaps_ns),
            reads=timing.reads,
            body_bytes=timing.body_bytes,
            loop_lag_ms=loop_lag_ms,
            client_cpu_share=client_cpu_share,
        )

    @property
    def failure_group(self) -> str:
        """Category and message without what differs between failures of one cause."""
        return Failure(self.category, self.message).group if self.category else ""

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> RequestRecord:
        """Read back what `to_row` gave, also when it has been text in a CSV file meanwhile.

        Raises ValueError for a row of another version or with a value that is none of its column's.
        """
        if len(row) != len(COLUMNS) or int(row[0]) != RECORD_VERSION:
            raise ValueError(f"not a record of version {RECORD_VERSION}")
        return cls(**{name: read(value) for (name, read), value in zip(_READERS, row[1:], strict=True)})

    def to_row(self) -> list[Any]:
        """Values in the order of COLUMNS; enums as their text, None as the empty cell."""
        return [RECORD_VERSION, *(_cell(getattr(self, name)) for name in COLUMNS[1:])]


_values_of = attrgetter(*(field.name for field in fields(RequestContext)))
COLUMNS: tuple[str, ...] = ("v", *(field.name for field in fields(RequestRecord)))
"""Header of PREFIX_requests.csv."""


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None or value == "" else read(value)


_READ_BY_TYPE: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda value: bool(int(value)),
    "Part": Part,
    "Outcome": Outcome,
    "Category": Category,
    "TokensSource": TokensSource,
}
_READERS = tuple(
    (field.name, _optional(_READ_BY_TYPE[kind]) if absent else _READ_BY_TYPE[kind])
    for field in fields(RequestRecord)
    for kind, absent, _ in (str(field.type).partition(" | None"),)
)


def _cell(value: Any) -> Any:
    if value is True or value is False:
        return int(value)
    return str(value) if isinstance(value, StrEnum) else value


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)


def _output_tokens(completion_tokens: int | None, chunks: int) -> tuple[int | None, TokensSource | None]:
    # A usage of 0 beside text that came is no count: the server has not counted.
    if completion_tokens or (completion_tokens is not None and not chunks):
        return completion_tokens, TokensSource.USAGE
    return (chunks, TokensSource.CHUNKS) if chunks else (None, None)


def _tpot_ms(text_ns: list[int], tokens: int | None) -> float | None:
    # One chunk has no span even when usage counts several tokens in it: a pace of 0 would be a lie.
    if tokens is None or tokens < 2 or len(text_ns) < 2:
        return None
    return round((text_ns[-1] - text_ns[0]) / (tokens - 1) / NS_PER_MS, 6)


_BURST_CHUNKS = 8
_IMPLAUSIBLE_GAP_NS = 200_000


def came_in_bursts(gaps_ns: list[int]) -> bool:
    """Whether something between engine and client held chunks back and let them go together.

    True for 16 chunks or more when they arrive, on average, eight or more to a burst (a gap below a tenth
    of the mean gap does not end a burst), or all of them within 0.2 ms a chunk. Speculative decoding,
    which sends a handful of tokens at a time, stays below eight.
    """
    chunks = len(gaps_ns) + 1
    if chunks < 2 * _BURST_CHUNKS:
        return False
    mean_ns = sum(gaps_ns) / len(gaps_ns)
    bursts = 1 + sum(map((mean_ns / 10).__le__, gaps_ns))
    return mean_ns < _IMPLAUSIBLE_GAP_NS or chunks / bursts >= _BURST_CHUNKS
