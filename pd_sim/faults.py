"""Replies that go wrong on purpose, as replies of real services did."""

import time
from collections.abc import Callable
from enum import StrEnum

from pd_sim.http_protocol import HttpError, HttpProtocol
from pd_sim.replies import DONE, LAST_CHUNK, ReplyForm, StreamReply, event, framed
from pd_sim.truth import RequestTruth


class Fault(StrEnum):
    """Names as in --fault and in the x-sim-fault header.

    A request without stream=true knows only STALL_HEADERS and the two statuses.
    """

    ERROR_BEFORE_FIRST_TOKEN = "error-before-first-token"
    """200, headers, then an error event and [DONE] where the first token would be."""
    ERROR_MID_STREAM = "error-mid-stream"
    """The same, after half of the tokens."""
    CUT_MID_STREAM = "cut-mid-stream"
    """The connection closes after half of the tokens, inside the chunked body."""
    STALL_HEADERS = "stall-headers"
    """No byte ever comes back."""
    STALL_MID_STREAM = "stall-mid-stream"
    """Silence after half of the tokens, on an open connection."""
    STATUS_503 = "status-503"
    STATUS_429 = "status-429"
    """With Retry-After: 1."""
    NOT_STREAMED = "not-streamed"
    """A plain JSON answer to a streaming request."""
    PING = "ping"
    """An SSE comment before every token; a correct client ignores it."""
    BURST = "burst"
    """All tokens in one write at the end, as behind a buffering proxy."""
    NO_USAGE = "no-usage"
    """No usage, although the client asked for it."""
    KV_TRANSFER = "kv-transfer"
    """200, then an abort with KVTransferError as its finish_reason where the first token would be."""


ON_FIRST_TOKEN = frozenset({Fault.ERROR_BEFORE_FIRST_TOKEN, Fault.KV_TRANSFER})
IN_STREAM = ON_FIRST_TOKEN | {Fault.ERROR_MID_STREAM, Fault.CUT_MID_STREAM, Fault.STALL_MID_STREAM}
IN_STREAM |= {Fault.PING, Fault.BURST}


def error_of(fault: Fault | None) -> HttpError | None:
    """Return the error that this fault answers instead of a reply, if it is such a fault."""
    if fault is Fault.STATUS_503:
        return HttpError(503, "no prefill instance is available (injected)")
    if fault is Fault.STATUS_429:
        return HttpError(429, "too many requests (injected)", {"Retry-After": "1"})
    return None


class FaultyStreamReply(StreamReply):
    """A stream that breaks at its first token, or after half of its tokens; `abandon` withdraws the job."""

    def __init__(
        self,
        form: ReplyForm,
        connection: HttpProtocol,
        truth: RequestTruth,
        *,
        fault: Fault,
        output_tokens: int,
        abandon: Callable[[], None],
    ) -> None:
        super().__init__(form, connection, truth)
        self._fault = fault
        self._tokens_before = 0 if fault in ON_FIRST_TOKEN else max(1, output_tokens // 2)
        self._abandon = abandon
        self._held_tokens = 0

    def emit(self, tokens: int, cached_tokens: int | None, *, final: bool) -> None:
        if self._fault is Fault.PING:
            self.write(framed(b": ping\n\n"))
            super().emit(tokens, cached_tokens, final=final)
        elif self._fault is Fault.BURST:
            self._held_tokens += tokens
            if final:
                super().emit(self._held_tokens, cached_tokens, final=True)
        elif self.truth.tokens < self._tokens_before and not final:
            super().emit(tokens, cached_tokens, final=False)
        else:
            self._abandon()
            self._break()

    def _break(self) -> None:
        if self._fault is Fault.STALL_MID_STREAM:
            return
        if self._fault is Fault.CUT_MID_STREAM:
            self.connection.close()
            return
        if self._fault is Fault.KV_TRANSFER:
            message = "KVTransferError: the KV cache did not arrive from the prefill instance (injected)"
            last = self.choice_event({}, {"type": "abort", "message": message, "status_code": 500})
        else:
            error = {"message": "the engine stopped (injected)", "type": "InternalServerError", "param": None}
            last = event({"error": {**error, "code": 500}})
        self.truth.done_ns = time.perf_counter_ns()
        self.write(framed(last) + framed(DONE) + LAST_CHUNK)
        self.connection.finish()
