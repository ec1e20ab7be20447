"""Replies that go wrong on purpose, as real deployments have been seen to."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING

from pd_sim.connection import Refusal
from pd_sim.replies import DONE, LAST_CHUNK, ReplyForm, StreamReply, event, framed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pd_sim.connection import Connection
    from pd_sim.truth import Trace


class Fault(StrEnum):
    """Names as they stand in --fault and in the x-sim-fault header.

    A reply that was not to be streamed knows only STALL_HEADERS and the two statuses.
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
    """An SSE comment before every token: no fault of the stream, but one of a client that trips over it."""
    BURST = "burst"
    """All tokens in one write at the end, as behind a buffering proxy."""
    NO_USAGE = "no-usage"
    """No usage though the client asked for it."""
    KV_TRANSFER = "kv-transfer"
    """200, then an abort with KVTransferError as its finish_reason where the first token would be."""


ON_FIRST_TOKEN = frozenset({Fault.ERROR_BEFORE_FIRST_TOKEN, Fault.KV_TRANSFER})
IN_STREAM = ON_FIRST_TOKEN | {
    Fault.ERROR_MID_STREAM,
    Fault.CUT_MID_STREAM,
    Fault.STALL_MID_STREAM,
    Fault.PING,
    Fault.BURST,
}


def refusal(fault: Fault | None) -> Refusal | None:
    """Return what the client is told instead of a reply, if this fault is of that kind."""
    if fault is Fault.STATUS_503:
        return Refusal(503, "no prefill instance is available (injected)")
    if fault is Fault.STATUS_429:
        return Refusal(429, "too many requests (injected)", {"Retry-After": "1"})
    return None


class FaultyStreamReply(StreamReply):
    """A stream that breaks at the first of its tokens, or after half of them; `abandon` withdraws its job."""

    def __init__(
        self,
        form: ReplyForm,
        connection: Connection,
        trace: Trace,
        *,
        fault: Fault,
        output_tokens: int,
        abandon: Callable[[], None],
    ) -> None:
        super().__init__(form, connection, trace)
        self._fault = fault
        self._tokens_before = 0 if fault in ON_FIRST_TOKEN else max(1, output_tokens // 2)
        self._abandon = abandon
        self._held_tokens = 0

    def emit(self, tokens: int, cached_tokens: int | None, *, final: bool) -> None:
        """Do as the fault says."""
        if self._fault is Fault.PING:
            self.write(framed(b": ping\n\n"))
            super().emit(tokens, cached_tokens, final=final)
        elif self._fault is Fault.BURST:
            self._held_tokens += tokens
            if final:
                super().emit(self._held_tokens, cached_tokens, final=True)
        elif self.trace.tokens < self._tokens_before and not final:
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
        self.trace.done_ns = time.perf_counter_ns()
        self.write(framed(last) + framed(DONE) + LAST_CHUNK)
        self.connection.finish()
