"""Judge a captured answer (the bytes that `curl -i --raw` saves) exactly as a live one would be."""

from __future__ import annotations

import io
from itertools import count
from typing import TYPE_CHECKING, Any

from pd_locust.errors import StreamError
from pd_locust.record import Outcome, Part, RequestContext, RequestRecord
from pd_locust.wire.chunked import ChunkedResponse
from pd_locust.wire.connection import judge_response

if TYPE_CHECKING:
    import socket

    from pd_locust.stream import StreamTiming


class _Saved:
    """As much of a socket as http.client asks for."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self._raw))


def replay(raw: bytes) -> dict[str, Any]:
    """Return outcome, category, first_token_event, text_chunks, tokens and finish_reason of a saved answer.

    Raises StreamError when the bytes do not begin with an HTTP status line.
    """
    if not raw.startswith(b"HTTP/"):
        raise StreamError("no HTTP status line at the start; save the answer with curl -sSN -i --raw")
    saved: socket.socket = _Saved(raw)  # type: ignore[assignment]
    response = ChunkedResponse(saved)
    clock = count(1, 1_000_000)
    timing = judge_response(response, lambda: next(clock), sent_ns=0)
    return verdict(timing)


def verdict(timing: StreamTiming) -> dict[str, Any]:
    """Say what a user would record of this answer, without its times."""
    seen = RequestContext("replay", 1, "replay", "replay", 1, Part.SAMPLE, 0, 0, 0, 1)
    record = RequestRecord.from_timing(seen, timing)
    return {
        "status": record.status,
        "outcome": str(record.outcome),
        "category": None if record.category is None else str(record.category),
        "message": record.message if record.outcome is Outcome.FAILURE else None,
        "first_token_event": timing.first_text_event,
        "text_chunks": record.text_chunks,
        "output_tokens": record.output_tokens,
        "tokens_source": None if record.tokens_source is None else str(record.tokens_source),
        "finish_reason": record.finish_reason,
        "prompt_tokens": record.prompt_tokens,
    }
