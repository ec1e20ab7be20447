"""TTFT and TPOT as Locust events, without spoiling Locust's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
