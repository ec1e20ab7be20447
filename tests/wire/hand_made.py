"""Answers that no captured server gave, each with what it must be read as, written down by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass

DONE = b"data: [DONE]\n\n"


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def chunk(delta: dict[str, object], finish: object = None, **more: object) -> bytes:
    return event({"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


def role() -> bytes:
    return chunk({"role": "assistant", "content": ""})


def text(content: str, finish: object = None) -> bytes:
    return chunk({"content": content}, finish)


def usage(output: object, prompt: object = 16) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}})


@dataclass(frozen=True)
class HandMade:
    """A body and its verdict. `first` and `chunks`: index of the first event with text, number of them."""

    name: str
    body: bytes
    category: str | None = None
    first: int | None = None
    chunks: int = 0
    tokens: int | None = None
    source: str | None = None
    finish: str | None = None
    says: str = ""
    """What the message of a failure holds."""

    @property
    def outcome(self) -> str:
        return "failure" if self.category else "success"


def _case(name: str, *parts: bytes, **verdict: object) -> HandMade:
    return HandMade(name, b"".join(parts), **verdict)


HI = (role(), text("Hi"), text(" you", "stop"))
HI_READ = {"first": 1, "chunks": 2, "tokens": 2, "source": "usage", "finish": "stop"}
HI_UNCOUNTED = HI_READ | {"source": "chunks"}
ERROR = {"message": "CUDA out of memory", "code": 500}
_HI_BYTES = b"".join((*HI, usage(2), DONE))

HAND_MADE = (
    _case("the tidy form", _HI_BYTES, **HI_READ),
    # Ends.
    _case("no [DONE], finish_reason and a clean end", *HI, **HI_UNCOUNTED),
    _case(
        "[DONE] without finish_reason, with usage",
        role(),
        text("Hi"),
        usage(1),
        DONE,
        first=1,
        chunks=1,
        tokens=1,
        source="usage",
    ),
    _case(
        "[DONE] without finish_reason, without usage",
        role(),
        text("Hi"),
        DONE,
        category="truncated",
        first=1,
        chunks=1,
        tokens=1,
        source="chunks",
    ),
    _case(
        "the body ends after a token",
        role(),
        text("Hi"),
        category="truncated",
        first=1,
        chunks=1,
        tokens=1,
        source="chunks",
    ),
    _case("the body ends after the role", role(), category="truncated"),
    _case("the body is empty", category="truncated", says="the body is empty"),
    _case("only [DONE]", DONE, category="truncated", says="no event came"),
    _case("only pings", b": ping\n\n: ping\n\n", category="truncated"),
    _case(
        "the body ends inside an event",
        role(),
        text("Hi"),
        text(" you", "stop")[:40],
        category="truncated",
        first=1,
        chunks=1,
        tokens=1,
        source="chunks",
        says="inside an event",
    ),
    _case(
        "the body ends inside a character",
        role(),
        text("Hi"),
        "data: é".encode()[:-1],
        category="truncated",
        first=1,
        chunks=1,
        tokens=1,
        source="chunks",
        says="inside an event",
    ),
    _case("[DONE] at the very end, without a line end", *HI, usage(2), b"data: [DONE]", **HI_READ),
    _case("[DONE] padded with spaces", *HI, usage(2), b"data:  [DONE] \n\n", **HI_READ),
    _case(
        "an event and another [DONE] after [DONE]",
        *HI,
        usage(2),
        DONE,
        text("late"),
        usage(9),
        DONE,
        **HI_READ,
    ),
    _case("bytes that are not UTF-8 after [DONE]", *HI, usage(2), DONE, b"data: \xff\xfe\n\n", **HI_READ),
    # Errors.
    _case(
        "error object after tokens, then [DONE]",
        role(),
        text("Hi"),
        event({"error": ERROR}),
        DONE,
        category="stream_error",
        first=1,
        chunks=1,
        tokens=1,
        source="chunks",
        says="CUDA out of memory",
    ),
    _case(
        "error object before the first token",
        event({"error": ERROR}),
        DONE,
        category="stream_error",
        says="CUDA out of memory",
    ),
    _case(
        "error as a string",
        role(),
        event({"error": "worker died"}),
        category="stream_error",
        says="worker died",
    ),
    _case(
        "error beside choices",
        role(),
        event({"choices": [{"delta": {"content": "x"}}], "error": "worker died"}),
        category="stream_error",
        says="worker died",
    ),
    _case(
        "error as detail",
        event({"detail": [{"msg": "field required"}]}),
        category="stream_error",
        says="field required",
    ),
    _case(
        "error as message and code",
        event({"message": "no worker", "code": 503}),
        DONE,
        category="stream_error",
        says="no worker",
    ),
    _case(
        "error with the event name error",
        b"event: error\n",
        event({"error": ERROR}),
        DONE,
        category="stream_error",
        says="CUDA out of memory",
    ),
    _case(
        "error that names the KV transfer",
        role(),
        event({"error": {"message": "KVTransferError: timed out"}}),
        category="kv_transfer",
        says="KVTransferError",
    ),
    _case(
        "local proxy failed",
        event({"error": "local proxy failed: connect ECONNREFUSED"}),
        category="local_proxy",
        says="local proxy failed",
    ),
    _case(
        "a bare JSON error without data:",
        b'{"error": {"message": "model is loading", "code": 400}}',
        category="stream_error",
        says="model is loading",
    ),
    _case(
        "a bare JSON error, then [DONE]",
        b'{"error": {"message": "model is loading"}}\n\n',
        DONE,
        category="stream_error",
        says="model is loading",
    ),
    _case(
        "pings, then a bare JSON error",
        b": ping\n\n:\n\n",
        b'{"error": "no decode worker"}\n',
        category="stream_error",
        says="no decode worker",
    ),
    _case(
        "a bare JSON error over several lines",
        b'{\n  "object": "error",\n\n  "message": "too long"\n}\n',
        category="stream_error",
        says="too long",
    ),
    _case("plain text", b"upstream connect error", category="truncated", says="upstream connect error"),
    _case(
        "an HTML page",
        b"<html>\n<body>\n\n<h1>It works!</h1></body></html>",
        category="truncated",
        says="<h1>It works!",
    ),
    _case(
        "a whole answer in one JSON document",
        json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).encode(),
        category="not_streamed",
    ),
    _case(
        "a whole answer of 100,000 characters in one JSON document",
        json.dumps({"choices": [{"message": {"content": "x" * 100_000}, "finish_reason": "stop"}]}).encode(),
        category="not_streamed",
    ),
    _case(
        "an event that is not JSON",
        role(),
        b"data: {'content': 'Hi'}\n\n",
        *HI[1:],
        usage(2),
        DONE,
        **HI_READ | {"category": "malformed", "first": 2, "says": "{'content'"},
    ),
    _case(
        "an event that is not UTF-8",
        role(),
        b'data: {"choices": "\xff"}\n\n',
        text("Hi"),
        category="malformed",
        says="UTF-8",
    ),
    # finish_reason.
    _case(
        "finish_reason abort",
        role(),
        text("Hi", "abort"),
        DONE,
        category="aborted",
        first=1,
        chunks=1,
        tokens=1,
        source="chunks",
        finish="abort",
    ),
    _case(
        "finish_reason as an abort object",
        role(),
        text("Hi", {"type": "abort", "message": "preempted"}),
        DONE,
        category="aborted",
        first=1,
        chunks=1,
        tokens=1,
        source="chunks",
        finish="abort",
        says="preempted",
    ),
    _case(
        "finish_reason as an abort object that names the KV transfer",
        role(),
        chunk({}, {"type": "abort", "message": "KVTransferError: decode lost"}),
        DONE,
        category="kv_transfer",
        finish="abort",
        says="KVTransferError",
    ),
    _case(
        "finish_reason as an object that stops",
        role(),
        text("Hi", {"type": "length", "length": 1}),
        usage(1),
        DONE,
        first=1,
        chunks=1,
        tokens=1,
        source="usage",
        finish="length",
    ),
    _case(
        "finish_reason content_filter",
        role(),
        text("Hi", "content_filter"),
        usage(1),
        DONE,
        category="aborted",
        first=1,
        chunks=1,
        tokens=1,
        source="usage",
        finish="content_filter",
    ),
    _case(
        "an empty finish_reason in every chunk",
        chunk({"role": "assistant"}, ""),
        text("Hi", ""),
        text(" you", "length"),
        DONE,
        **HI_UNCOUNTED | {"finish": "length"},
    ),
    _case(
        "an empty finish_reason only",
        text("Hi", ""),
        DONE,
        category="truncated",
        first=0,
        chunks=1,
        tokens=1,
        source="chunks",
    ),
    # Choices and usage.
    _case("empty choices first", event({"choices": []}), *HI, usage(2), DONE, **HI_READ | {"first": 2}),
    _case(
        "empty choices last", *HI, event({"choices": []}), usage(2), event({"choices": []}), DONE, **HI_READ
    ),
    _case(
        "usage in the finish chunk",
        role(),
        text("Hi"),
        chunk({"content": " you"}, "stop", usage={"prompt_tokens": 16, "completion_tokens": 2}),
        DONE,
        **HI_READ,
    ),
    _case(
        "usage in every chunk",
        *(
            chunk({"content": word}, usage={"completion_tokens": n + 1, "prompt_tokens": 16})
            for n, word in enumerate("abc")
        ),
        chunk({}, "stop"),
        DONE,
        first=0,
        chunks=3,
        tokens=3,
        source="usage",
        finish="stop",
    ),
    _case(
        "usage null in every chunk",
        chunk({"content": "a"}, usage=None),
        chunk({}, "stop", usage=None),
        usage(1),
        DONE,
        first=0,
        chunks=1,
        tokens=1,
        source="usage",
        finish="stop",
    ),
    _case("usage of no tokens beside text", *HI, usage(0), DONE, **HI_UNCOUNTED),
    _case(
        "many tokens in a chunk",
        role(),
        text("one two three four"),
        text(" five six", "stop"),
        usage(6),
        DONE,
        first=1,
        chunks=2,
        tokens=6,
        source="usage",
        finish="stop",
    ),
    _case(
        "one output token",
        text("Hi", "length"),
        usage(1),
        DONE,
        first=0,
        chunks=1,
        tokens=1,
        source="usage",
        finish="length",
    ),
    # Text in other places.
    _case(
        "every content is empty though usage counts 10",
        role(),
        *[text("")] * 10,
        chunk({}, "length"),
        usage(10),
        DONE,
        category="no_text",
        tokens=10,
        source="usage",
        finish="length",
        says="10 tokens",
    ),
    _case(
        "reasoning_content only",
        role(),
        chunk({"reasoning_content": "Hm"}),
        chunk({}, "length"),
        usage(1),
        DONE,
        first=1,
        chunks=1,
        tokens=1,
        source="usage",
        finish="length",
    ),
    _case(
        "reasoning only",
        role(),
        chunk({"reasoning": "Hm"}),
        chunk({}, "length"),
        usage(1),
        DONE,
        first=1,
        chunks=1,
        tokens=1,
        source="usage",
        finish="length",
    ),
    _case(
        "tool-call arguments",
        role(),
        chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
        chunk({}, "tool_calls"),
        usage(9),
        DONE,
        first=2,
        chunks=2,
        tokens=9,
        source="usage",
        finish="tool_calls",
    ),
    _case(
        "function_call arguments",
        role(),
        chunk({"function_call": {"name": "f"}}),
        chunk({"function_call": {"arguments": "{}"}}, "function_call"),
        usage(3),
        DONE,
        first=2,
        chunks=1,
        tokens=3,
        source="usage",
        finish="function_call",
    ),
    _case(
        "completion text",
        event({"choices": [{"text": "Hi", "finish_reason": None}]}),
        event({"choices": [{"text": "", "finish_reason": "length"}]}),
        usage(1),
        DONE,
        first=0,
        chunks=1,
        tokens=1,
        source="usage",
        finish="length",
    ),
    # Framing.
    _case(
        "pings between and inside events",
        b": ping\n\n:\n\n",
        role(),
        b": ping\n",
        text("Hi"),
        b"\n\n: ping\n\n",
        text(" you", "stop"),
        b":\n",
        usage(2),
        DONE,
        **HI_READ,
    ),
    _case(
        "event, id and retry lines",
        b"event: message\nid: 1\nretry: 100\n",
        role(),
        b"event: message\nid: 2\n",
        text("Hi"),
        b"id\n",
        text(" you", "stop"),
        usage(2),
        DONE,
        **HI_READ,
    ),
    _case("data: without a space", _HI_BYTES.replace(b"data: ", b"data:"), **HI_READ),
    _case("CRLF", _HI_BYTES.replace(b"\n", b"\r\n"), **HI_READ),
    _case("CR", _HI_BYTES.replace(b"\n", b"\r"), **HI_READ),
    _case("LF, then CRLF", _HI_BYTES.replace(b"\n\n", b"\n\r\n"), **HI_READ),
    _case("CRLF, then LF", _HI_BYTES.replace(b"\n\n", b"\r\n\n"), **HI_READ),
    _case("CR, then CRLF", _HI_BYTES.replace(b"\n\n", b"\r\r\n"), **HI_READ),
    _case("CR, then LF after a comment", _HI_BYTES.replace(b"data", b": ping\r: ping\ndata"), **HI_READ),
    _case(
        "a byte order mark",
        b"\xef\xbb\xbf",
        text("Hi", "stop"),
        usage(1),
        DONE,
        first=0,
        chunks=1,
        tokens=1,
        source="usage",
        finish="stop",
    ),
    _case(
        "an event over several data lines",
        b'data: {"choices": [{"delta":\ndata: {"content": "Hi"},\n',
        b'data:  "finish_reason": "stop"}]}\n\n',
        usage(1),
        DONE,
        first=0,
        chunks=1,
        tokens=1,
        source="usage",
        finish="stop",
    ),
    _case(
        "empty data as a heartbeat",
        b"data:\n\ndata: \n\n",
        role(),
        b"data\n\n",
        *HI[1:],
        usage(2),
        DONE,
        **HI_READ,
    ),
    _case(
        "text in two-, three- and four-byte characters",
        role(),
        text("Grüße"),
        text("、東京🚄", "stop"),
        usage(9),
        DONE,
        **HI_READ | {"tokens": 9},
    ),
    _case(
        "a line separator inside JSON",
        role(),
        text("a\u2028b\u0085c\u000bd"),
        text("e", "stop"),
        usage(2),
        DONE,
        **HI_READ,
    ),
    _case(
        "objects of no known kind",
        event({"status": "queued"}),
        event([1, 2]),
        event("hello"),
        event(3),
        event(None),
        *HI,
        usage(2),
        DONE,
        **HI_READ | {"first": 6},
    ),
    # Shapes that are not the protocol's.
    _case("choices as an object", event({"choices": {"a": 1}}), DONE, category="malformed"),
    _case("choices as a string", event({"choices": "abc"}), DONE, category="malformed"),
    _case("choices as a number", event({"choices": 7}), DONE, category="malformed"),
    _case("a choice that is null", event({"choices": [None]}), DONE, category="malformed"),
    _case("delta as a list", event({"choices": [{"delta": ["Hi"]}]}), DONE, category="malformed"),
    _case("usage as a list", *HI, event({"choices": [], "usage": [2]}), DONE, **HI_UNCOUNTED),
    _case(
        "usage that is negative, a fraction or a word",
        *HI,
        usage(-2),
        usage(2.5),
        usage("2"),
        DONE,
        **HI_UNCOUNTED,
    ),
    _case(
        "finish_reason as a list",
        text("Hi", ["stop"]),
        DONE,
        category="aborted",
        first=0,
        chunks=1,
        tokens=1,
        source="chunks",
        finish="['stop']",
    ),
    _case(
        "an error nested a thousand deep",
        b'data: {"error": ' + b"[" * 900 + b"]" * 900 + b"}\n\n",
        category="stream_error",
    ),
    _case(
        "an error under unknown keys, nested a thousand deep",
        b'data: {"error": {"x": ' + b"[" * 900 + b"]" * 900 + b"}}\n\n",
        category="stream_error",
        says="too deeply",
    ),
)
