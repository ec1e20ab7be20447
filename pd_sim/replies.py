"""A reply while it is being written: as a stream of events, or as one JSON object at the end."""

import json
import time
import zlib
from enum import StrEnum
from typing import Any, NamedTuple

from pd_sim.http_protocol import HttpProtocol
from pd_sim.tokens import OUTPUT_WORDS
from pd_sim.truth import RequestTruth

DONE = b"data: [DONE]\n\n"
LAST_CHUNK = b"0\r\n\r\n"
_HOLE = "\x00"


class RoleChunk(StrEnum):
    """When the chunk with the role and an empty content is sent; the headers leave with it."""

    EARLY = "early"
    """On arrival."""
    WITH_FIRST_TOKEN = "with-first-token"
    """Headers, role and first token leave together."""
    NONE = "none"
    """Never: the headers leave with the first token."""


class ReplyForm(NamedTuple):
    """What a reply looks like, apart from its tokens."""

    request_id: str
    model: str
    finish_reason: str
    include_usage: bool
    role_chunk: RoleChunk
    finish_carries_token: bool


def event(data: str | dict[str, Any]) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def framed(body: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(body), body)


class StreamReply:
    """Server-sent events, one chunk a token, shaped like vLLM's.

    The JSON around a token is built once per request: all output words are equally long, so even the length
    before the chunk stays the same.
    """

    def __init__(self, form: ReplyForm, connection: HttpProtocol, truth: RequestTruth) -> None:
        self.form = form
        self.connection = connection
        self.truth = truth
        self._identity = {
            "id": f"chatcmpl-{form.request_id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": form.model,
        }
        self._prefix, self._suffix = self._around_token(None)
        # Streams that start at different words are told apart when their bytes get mixed up.
        self._word = zlib.crc32(form.request_id.encode()) % len(OUTPUT_WORDS)
        self._unsent = self._opening()

    def begin(self) -> None:
        """Send the headers, unless they wait for the first token."""
        if self.form.role_chunk is RoleChunk.EARLY:
            self.write(b"")

    def emit(self, tokens: int, cached_tokens: int | None, *, final: bool) -> None:
        """Write the tokens; the last one, the end and the usage leave together."""
        if final:
            self.truth.cached_tokens = cached_tokens
            self.write_tokens(self.token_chunks(tokens - 1) + self._ending(tokens), tokens)
            self.truth.done_ns = self.truth.last_token_ns
            self.connection.finish()
        elif tokens == 1 and self.truth.tokens:
            # The path of nearly every token.
            self.truth.last_token_ns = time.perf_counter_ns()
            self.truth.tokens += 1
            self._word = word = (self._word + 1) % len(OUTPUT_WORDS)
            self.connection.transport.write(self._prefix + OUTPUT_WORDS[word] + self._suffix)
        else:
            self.write_tokens(self.token_chunks(tokens), tokens)

    def write(self, body: bytes) -> None:
        """Send the headers, if they are still to be sent, and `body`."""
        unsent, self._unsent = self._unsent, b""
        if unsent or body:
            self.connection.transport.write(unsent + body)

    def write_tokens(self, body: bytes, tokens: int) -> None:
        """Send chunks that hold this many tokens, and stamp the first and the latest of the reply."""
        now_ns = time.perf_counter_ns()
        if not self.truth.tokens:
            self.truth.first_token_ns = now_ns
        self.truth.last_token_ns = now_ns
        self.truth.tokens += tokens
        self.write(body)

    def token_chunks(self, tokens: int) -> bytes:
        """Build the chunks of the next tokens."""
        chunks = []
        for _ in range(tokens):
            self._word = (self._word + 1) % len(OUTPUT_WORDS)
            chunks.append(self._prefix + OUTPUT_WORDS[self._word] + self._suffix)
        return b"".join(chunks)

    def choice_event(self, delta: dict[str, str], finish_reason: object) -> bytes:
        """Build an event with one choice."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event({**self._identity, "choices": [choice]})

    def _opening(self) -> bytes:
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
            f"x-request-id: {self.form.request_id}\r\nTransfer-Encoding: chunked\r\n"
            f"{self.connection.persistence}\r\n"
        ).encode("latin-1")
        if self.form.role_chunk is RoleChunk.NONE:
            return head
        return head + framed(self.choice_event({"role": "assistant", "content": ""}, None))

    def _around_token(self, finish_reason: str | None) -> tuple[bytes, bytes]:
        token = self.choice_event({"content": _HOLE}, finish_reason)
        before, _, after = token.rpartition(json.dumps(_HOLE)[1:-1].encode())
        body_bytes = len(before) + len(OUTPUT_WORDS[0]) + len(after)
        return b"%x\r\n%b" % (body_bytes, before), after + b"\r\n"

    def _ending(self, tokens: int) -> bytes:
        if self.form.finish_carries_token:
            self._prefix, self._suffix = self._around_token(self.form.finish_reason)
            ending = self.token_chunks(1)
        else:
            ending = self.token_chunks(1) + framed(self.choice_event({}, self.form.finish_reason))
        if self.form.include_usage:
            usage = usage_of(self.truth, self.truth.tokens + tokens)
            ending += framed(event({**self._identity, "choices": [], "usage": usage}))
        return ending + framed(DONE) + LAST_CHUNK


class JsonReply:
    """One JSON object after the last token; the client sees no first token, so the truth has none."""

    def __init__(self, form: ReplyForm, connection: HttpProtocol, truth: RequestTruth) -> None:
        self._form = form
        self._connection = connection
        self._truth = truth
        self._words: list[bytes] = []

    def begin(self) -> None:
        """Send nothing yet: the length is not known."""

    def emit(self, tokens: int, cached_tokens: int | None, *, final: bool) -> None:
        """Collect tokens; the final one sends them all."""
        for _ in range(tokens):
            self._words.append(OUTPUT_WORDS[len(self._words) % len(OUTPUT_WORDS)])
        self._truth.tokens += tokens
        if not final:
            return
        self._truth.cached_tokens = cached_tokens
        message = {"role": "assistant", "content": b"".join(self._words).decode()}
        body = {
            "id": f"chatcmpl-{self._form.request_id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._form.model,
            "choices": [{"index": 0, "message": message, "finish_reason": self._form.finish_reason}],
            "usage": usage_of(self._truth, self._truth.tokens),
        }
        self._truth.done_ns = time.perf_counter_ns()
        self._connection.reply(
            200, json.dumps(body).encode(), "application/json", {"x-request-id": self._form.request_id}
        )


Reply = StreamReply | JsonReply


def usage_of(truth: RequestTruth, completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": truth.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": truth.prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": truth.cached_tokens or 0},
    }
