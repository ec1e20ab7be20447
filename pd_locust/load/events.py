"""TTFT and TPOT as Locust events, without spoiling Locust's own numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import locust.stats

from pd_locust.record import Outcome

if TYPE_CHECKING:
    from pd_locust.record import RequestRecord

TOKEN_EVENTS = ("TTFT", "TPOT")


def fire(environment: Any, record: RequestRecord) -> None:
    """Fire an ordinary request event for the stream (POST, E2E latency) and custom ones for TTFT and TPOT.

    A failed stream fires POST alone, with None for its time: Locust counts it and its failure, and keeps it out
    of averages and percentiles, where a refusal of 1 ms would be the best answer of all. A stream that we cut
    fires nothing.
    Any request listener sees all three; `context` carries the request id and the phase.
    """
    if record.outcome is Outcome.CUT:
        return
    context = {"pd_request_id": record.request_id, "pd_phase": record.phase, "pd_part": str(record.part)}
    failed = record.outcome is Outcome.FAILURE
    environment.events.request.fire(
        request_type="POST",
        name=record.tier,
        response_time=None if failed else record.e2e_ms,
        response_length=record.body_bytes,
        exception=StreamFailed(record) if failed else None,
        context=context,
    )
    if failed:
        return
    for request_type, value_ms in zip(TOKEN_EVENTS, (record.ttft_ms, record.tpot_ms), strict=True):
        if value_ms is not None:
            environment.events.request.fire(
                request_type=request_type,
                name=record.tier,
                response_time=value_ms,
                response_length=0,
                exception=None,
                context=context,
            )


class StreamFailed(Exception):  # noqa: N818 - it is what happened, and Locust shows the class name
    """Why a stream failed. Its text is the same for the same cause, since Locust groups failures by it."""

    def __init__(self, record: RequestRecord) -> None:
        super().__init__(record.failure_group)


def keep_out_of_total(stats: Any) -> None:
    """Log TTFT and TPOT in their own rows only, so that Aggregated counts each stream once.

    Replaces the bound method of this one stats object: the runner looks it up at every request, and a
    worker ships its total apart from its rows, so patching each process is enough.
    """
    original = stats.log_request

    def log_request(method: str, name: str, response_time: float | None, content_length: int) -> None:
        if method in TOKEN_EVENTS:
            stats.entries[name, method].log(response_time, content_length)
        else:
            original(method, name, response_time, content_length)

    stats.log_request = log_request


def bucket_response_time(response_time: float) -> float:
    """Round to three significant digits, at most to 1 us: 504 ms stays 504, a TPOT of 6.42 stays 6.42.

    Locust's own buckets are two digits wide (504 reads 500) and whole milliseconds below 100.
    """
    if response_time <= 0:
        return 0.0
    digits = 2 - math.floor(math.log10(response_time))
    return round(response_time, min(digits, 3))


class PreciseCsvWriter(locust.stats.StatsCSVFileWriter):  # type: ignore[misc]
    """Locust's CSV writer with a row for every name, and with percentiles not cut down to whole milliseconds.

    Per-name rows are what the post-processor needs when only the history was kept; `--csv-full-history`
    need not be remembered.
    """

    def __init__(
        self, environment: Any, percentiles: list[float], prefix: str, full_history: bool = False
    ) -> None:
        super().__init__(environment, percentiles, prefix, full_history=True)
        del full_history

    def _percentile_fields(self, stats_entry: Any, use_current: bool = False) -> list[Any]:
        if not stats_entry.num_requests:
            return list(self.percentiles_na)
        windowed = use_current and stats_entry.use_response_times_cache
        read = (
            stats_entry.get_current_response_time_percentile
            if windowed
            else stats_entry.get_response_time_percentile
        )
        return [read(percent) or 0 for percent in self.percentiles_to_report]


def install_precision() -> None:
    """Replace Locust's histogram buckets and its CSV writer; both are looked up when used."""
    locust.stats.bucket_response_time = bucket_response_time
    locust.stats.StatsCSVFileWriter = PreciseCsvWriter
