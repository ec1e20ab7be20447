"""What pd_locust changes in Locust: token events beside the total, exact digits, CSV rows that hold up no stream."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import gevent
import locust.stats

from pd_locust.record import Outcome, RequestRecord

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


# Locust writes every second but may have been late, and takes the second nearest to ten ago, this far off at most.
_WINDOW_SLACK_S = 8


def install_precision() -> None:
    """Replace Locust's histogram buckets and its CSV writer; both are looked up when used."""
    locust.stats.bucket_response_time = bucket_response_time
    locust.stats.StatsCSVFileWriter = PreciseCsvWriter


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

    Locust sorts all response times once for each percentile of each row, and makes all rows in one go, every second:
    with four tiers and 240,000 values (13 rows of up to 1,600 different times) that was 86 ms in which nobody read a
    stream. Here a row sorts once, and the streams have their turn before each: 21 ms, 1.3 at a time.
    """

    def __init__(
        self, environment: Any, percentiles: list[float], prefix: str, full_history: bool = False
    ) -> None:
        super().__init__(environment, percentiles, prefix, full_history=True)
        del full_history

    def _requests_data_rows(self, csv_writer: Any) -> None:
        # Written at once: a run that ends while a row is being made must find the file whole.
        rows = _Rows()
        super()._requests_data_rows(rows)
        csv_writer.writerows(rows)

    def _percentile_fields(self, stats_entry: Any, use_current: bool = False) -> list[Any]:
        gevent.sleep(0)
        if not stats_entry.num_requests:
            return list(self.percentiles_na)
        times, requests = stats_entry.response_times, _timed(stats_entry)
        if use_current and stats_entry.use_response_times_cache:
            before = _ten_seconds_ago(stats_entry.response_times_cache or {})
            if before is None:
                return [0] * len(self.percentiles_to_report)
            times = locust.stats.diff_response_time_dicts(times, before.response_times)
            requests -= _timed(before)
        return percentiles(times, requests, self.percentiles_to_report)


class _Rows(list[list[Any]]):
    def writerow(self, row: Iterable[Any]) -> None:
        self.append(list(row))


def percentiles(times: Mapping[float, int], requests: int, shares: Sequence[float]) -> list[float]:
    """Return what Locust's `calculate_response_time_percentile` returns for each share, by sorting once.

    `times`: a histogram, its keys are response times; `requests`: how many it counts; `shares`: 0 to 1.
    """
    ascending = sorted(times)
    at_or_below = list(accumulate(times[key] for key in ascending))
    if not ascending:
        return [0] * len(shares)
    uncounted = requests - at_or_below[-1]
    return [
        ascending[min(bisect_right(at_or_below, int(requests * share) - uncounted), len(ascending) - 1)]
        for share in shares
    ]


def _timed(counted: Any) -> int:
    """Requests that have a response time: a failed stream has none."""
    return int(counted.num_requests - counted.num_none_requests)


def _ten_seconds_ago(cache: Mapping[int, Any]) -> Any | None:
    """What was counted about ten seconds ago, as Locust chooses it; None when nothing is near enough."""
    wanted_s = int(time.time()) - locust.stats.CURRENT_RESPONSE_TIME_PERCENTILE_WINDOW
    near = [second for second in cache if abs(second - wanted_s) <= _WINDOW_SLACK_S]
    return cache[min(near, key=lambda second: (abs(second - wanted_s), second))] if near else None
