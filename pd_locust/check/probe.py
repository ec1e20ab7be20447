"""Probe: one real streamed generation over the load's own transport, and what its answer looked like."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import orjson

from pd_locust.check.step import printable
from pd_locust.prompt import PromptText, prefixes
from pd_locust.record import Part, RequestContext, RequestRecord
from pd_locust.stream import Failure, StreamTiming
from pd_locust.units import format_count, format_ms
from pd_locust.wire.chat import ChatRequest, read_event
from pd_locust.wire.chunked import ChunkedResponse
from pd_locust.wire.connection import Connection

_LENGTH_FIELDS = ("max_tokens", "max_completion_tokens")
_HEARD_BYTES = 16_384
_PROMPT_WORDS = 8

LEAST_CHUNKS = 16
"""`record.buffered` says nothing about fewer."""


@dataclass(frozen=True, slots=True)
class Probe:
    """`body` is the beginning of the answer's body as it came. `role`: None when no event names one."""

    record: RequestRecord
    failure: Failure | None
    content_type: str | None = None
    content_encoding: str | None = None
    location: str | None = None
    body: bytes = b""
    role: str | None = None

    @classmethod
    def nothing(cls) -> Probe:
        """Return the probe of a stream that was not asked for."""
        return _probe_of(StreamTiming(0), "", None)

    @property
    def reasoning(self) -> str | None:
        """`only` or `first` when thinking came instead of, or before, the answer; None without any."""
        record = self.record
        if record.ttft_ms is None or record.ttfo_ms == record.ttft_ms:
            return None
        return "only" if record.ttfo_ms is None else "first"

    def facts(self) -> dict[str, Any]:
        """Stable keys for `--json`."""
        record = self.record
        return {
            "content_type": self.content_type,
            "role": self.role,
            "reasoning": self.reasoning,
            **{name: getattr(record, name) for name in _FACTS},
        }

    def seen(self) -> str:
        """Tell the answer in one sentence; what was not measured is left out."""
        record = self.record
        if record.status is None:
            return "no answer"
        parts = [f"{record.status} {self.content_type or 'without a content type'}"]
        if self.content_encoding:
            parts.append(f"compressed ({self.content_encoding}) though identity was asked for")
        if record.ttft_ms is not None:
            parts += [f"TTFT {format_ms(record.ttft_ms)} ms", self._tokens()]
            if record.tpot_ms is not None:
                parts += [f"TPOT {record.tpot_ms:.2f} ms", self._pace()]
            parts.append(f"role {self.role}" if self.role else "no role")
            if self.reasoning:
                thinking = f"answer after {format_ms(record.ttfo_ms)} ms of reasoning"
                parts.append("reasoning only" if self.reasoning == "only" else thinking)
        if record.finish_reason:
            parts.append(f"finish_reason {record.finish_reason}")
        if record.prompt_tokens is not None:
            cached = (
                "cached tokens not told" if record.cached_tokens is None else f"{record.cached_tokens} cached"
            )
            parts.append(f"{format_count(record.prompt_tokens)} prompt tokens, {cached}")
        return ", ".join(parts)

    def _pace(self) -> str:
        if self.record.buffered:
            return "buffered"
        return (
            "not buffered" if self.record.text_chunks >= LEAST_CHUNKS else "too few chunks to see buffering"
        )

    def _tokens(self) -> str:
        record = self.record
        unit = "token" if record.output_tokens == 1 else "tokens"
        chunks = f"{record.text_chunks} chunk{'' if record.text_chunks == 1 else 's'}"
        if record.tokens_source == "chunks":
            return f"{chunks} and no usage"
        return f"{format_count(record.output_tokens)} {unit} by usage in {chunks}"

    def shown_body(self, lines: int = 3) -> tuple[str, ...]:
        """Return the first lines of the body, shortened."""
        if self.content_encoding:
            return ()
        text = (line.decode("utf-8", "replace").strip() for line in self.body.split(b"\n"))
        return tuple(_shortened(printable(line)) for line in [line for line in text if line][:lines])


def _shortened(line: str) -> str:
    # What an event says stands behind its id, time and model.
    start = line.find('"choices"')
    if start > _HEAD:
        line = f"{line[:_HEAD]} … {line[start:]}"
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


_LINE = 160
_HEAD = 12
_FACTS = (
    "status", "ttft_ms", "ttfo_ms", "tpot_ms", "e2e_ms", "prompt_tokens", "cached_tokens", "output_tokens",
    "tokens_source", "text_chunks", "finish_reason", "buffered",
)  # fmt: skip


class _Overheard(ChunkedResponse):
    """An answer that remembers how its body began."""

    heard = b""

    def read1(self, n: int = -1) -> bytes:
        chunk = super().read1(n)
        if len(self.heard) < _HEARD_BYTES:
            self.heard += chunk
        return chunk


def probe(
    connection: Connection,
    *,
    model: str,
    max_tokens: int,
    ignore_eos: bool,
    extra_body: dict[str, Any],
) -> Probe:
    """Send one prompt that no cache knows, and judge the answer as a user would."""
    seed = secrets.randbelow(1 << 31)
    prefix = next(prefixes(seed))
    request = ChatRequest.build(
        model=model,
        text=str(PromptText(_PROMPT_WORDS, seed)),
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        extra=extra_body | {name: max_tokens for name in _LENGTH_FIELDS if name in extra_body},
    )
    request_id = f"check-{seed:08x}"
    answers: list[_Overheard] = []

    def overhear(*args: Any, **options: Any) -> ChunkedResponse:
        answers.append(_Overheard(*args, **options))
        return answers[-1]

    timing = connection.exchange(request_id, request.body(prefix), response=overhear)
    return _probe_of(timing, request_id, answers[-1] if answers else None)


def _probe_of(timing: StreamTiming, request_id: str, answer: _Overheard | None) -> Probe:
    seen = RequestContext(request_id, 0, "check", "check", 1, Part.SAMPLE, 0, 0, 0, 1)
    record = RequestRecord.from_timing(seen, timing)
    if answer is None or timing.status is None:
        return Probe(record, timing.failure)
    encoding = (answer.getheader("Content-Encoding") or "identity").strip().lower()
    content_type = answer.getheader("Content-Type")
    return Probe(
        record,
        timing.failure,
        content_type=content_type and printable(content_type),
        content_encoding=None if encoding == "identity" else printable(encoding),
        location=answer.getheader("Location"),
        body=answer.heard,
        role=_role_in(answer.heard),
    )


def _role_in(body: bytes) -> str | None:
    """Say where the role stands: `in an event of its own`, or `with the first text`."""
    for line in body.splitlines():
        if not line.startswith(b"data:"):
            continue
        try:
            event = orjson.loads(line[len(b"data:") :])
            text = read_event(line[len(b"data:") :].decode()).text
            role = event["choices"][0]["delta"].get("role")
        except (ValueError, LookupError, TypeError, AttributeError):
            continue
        if role:
            return "with the first text" if text else "in an event of its own"
        if text:
            return None
    return None
