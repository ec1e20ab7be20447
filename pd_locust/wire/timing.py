"""StreamTimer: events and their arrival times in, one judged StreamTiming out. Knows no clock and no socket."""

from __future__ import annotations

from typing import Any

import orjson

from pd_locust.failure import Category
from pd_locust.stream import Failure, StreamTiming
from pd_locust.wire.chat import DONE, body_message, one_line, read_event, stream_failure

_BODY_KEPT_BYTES = 65_536


class StreamTimer:
    """Collects one answer. An event without text (role, usage, ping) never stops the TTFT clock."""

    __slots__ = ("_body", "done", "timing")

    def __init__(self, sent_ns: int, status: int | None = None) -> None:
        self.timing = StreamTiming(sent_ns=sent_ns, status=status)
        self.done = False
        self._body = b""

    def read(self, chunk: bytes) -> None:
        """Count one read of the body; its beginning is kept until an event shows that it is a stream."""
        timing = self.timing
        timing.reads += 1
        timing.body_bytes += len(chunk)
        if not timing.events and len(self._body) < _BODY_KEPT_BYTES:
            self._body += chunk

    def event(self, data: str, at_ns: int) -> bool:
        """Take the data of one event that arrived at `at_ns`; True when it is the first with text."""
        timing = self.timing
        if self.done:
            return False
        if data == DONE:
            self.done = True
            timing.end_ns = at_ns
            return False
        index = timing.events
        timing.events += 1
        try:
            text, answer, finish_reason, usage, failure = read_event(data)
        except (ValueError, AttributeError, TypeError):
            failure = Failure(Category.MALFORMED, one_line(f"event is not a chat-completion chunk: {data[:80]}"))
            text = answer = False
            finish_reason = usage = None
        if usage:
            self._usage(usage)
        if finish_reason:
            timing.finish_reason = finish_reason
        if failure and timing.failure is None:
            timing.failure = failure
        if not text:
            return False
        timing.text_ns.append(at_ns)
        if answer and timing.first_answer_ns is None:
            timing.first_answer_ns = at_ns
        if timing.first_text_event is None:
            timing.first_text_event = index
            return True
        return False

    def _usage(self, usage: dict[str, Any]) -> None:
        # Some engines repeat usage in every chunk: the last one is the total, never the sum.
        if not isinstance(usage, dict):
            return
        timing = self.timing
        timing.completion_tokens = _count(usage.get("completion_tokens"), timing.completion_tokens)
        timing.prompt_tokens = _count(usage.get("prompt_tokens"), timing.prompt_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            timing.cached_tokens = _count(details.get("cached_tokens"), timing.cached_tokens)

    def conclude(self, at_ns: int, broken: Failure | None = None) -> StreamTiming:
        """Judge the finished answer; `broken` says why reading stopped early, if it did.

        What breaks after `[DONE]` no longer matters: the stream was whole.
        """
        timing = self.timing
        if timing.end_ns is None:
            timing.end_ns = at_ns
        if timing.failure is None:
            timing.failure = self._fault(None if self.done else broken)
        return timing

    def _fault(self, broken: Failure | None) -> Failure | None:
        timing = self.timing
        if broken is not None:
            return broken
        if not timing.events and not self.done:
            return self._unstreamed()
        ended = timing.finish_reason is not None or (self.done and timing.completion_tokens is not None)
        if not timing.text_ns:
            if ended or timing.completion_tokens:
                return Failure(Category.NO_TEXT, f"{timing.completion_tokens or 0} tokens counted, no text in any event")
            return Failure(Category.TRUNCATED, "the stream ended without any text")
        if ended:
            return None
        end = "[DONE] came" if self.done else "the body ended"
        return Failure(Category.TRUNCATED, f"{end} without finish_reason")

    def _unstreamed(self) -> Failure:
        body = self._body.strip()
        if not body:
            return Failure(Category.TRUNCATED, "the body is empty")
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return Failure(Category.TRUNCATED, one_line(f"the body holds no event: {body[:80].decode('utf-8', 'replace')}"))
        if isinstance(document, dict) and "choices" in document and not document.get("error"):
            return Failure(Category.NOT_STREAMED, "a whole answer in one JSON document")
        return stream_failure(body_message(body))


def _count(value: object, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise
