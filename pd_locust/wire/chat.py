"""The chat-completions protocol: the request as bytes, and what one event of the answer says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from pd_locust.stream import MESSAGE_LIMIT, Category, Failure

DONE = "[DONE]"
_ACCEPTED_FINISHES = frozenset({"stop", "length", "tool_calls", "function_call"})
_KV_WORDS = re.compile(r"kv[ _-]?(transfer|cache)", re.IGNORECASE)
_LOCAL_PROXY_WORDS = re.compile(r"local proxy failed", re.IGNORECASE)
_MESSAGE_KEYS = ("error", "detail", "message", "msg")
_PLACE = "\x00prefix\x00"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A streaming request as bytes with one hole, for the unique prefix of the prompt.

    Built before the load starts; between streams only `body()` runs, which joins three byte strings.
    """

    before: bytes
    after: bytes

    @classmethod
    def build(
        cls, *, model: str, text: str, max_tokens: int, ignore_eos: bool, extra: dict[str, Any] | None = None
    ) -> ChatRequest:
        """Fix everything but the prefix. `extra` is merged last and may replace any field.

        The output length is fixed by `ignore_eos` and `max_tokens`; `min_tokens` is never sent: routers force
        max_tokens=1 on the prefill leg and the engine then refuses the request.
        """
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": _PLACE + text}],
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if ignore_eos:
            body["ignore_eos"] = True
        body |= extra or {}
        before, after = orjson.dumps(body).split(orjson.dumps(_PLACE)[1:-1])
        return cls(before, after)

    def body(self, prefix: str) -> bytes:
        """Return the body for one request; `prefix` must need no JSON escaping (words and spaces)."""
        return b"".join((self.before, prefix.encode(), self.after))


class Delta(NamedTuple):
    """What one event says. `text`: it carries generated text; `answer`: that text is the visible answer."""

    text: bool = False
    answer: bool = False
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    failure: Failure | None = None


_SILENT = Delta()
_ANSWER = Delta(text=True, answer=True)
_THOUGHT = Delta(text=True)


def read_event(data: str) -> Delta:
    """Decode the data of one event, `[DONE]` excepted.

    A role, an empty delta, usage alone or an unknown object is not text. Raises ValueError for what is not
    JSON.
    """
    event = orjson.loads(data)
    if not isinstance(event, dict):
        return _SILENT
    choices = event.get("choices")
    if not choices or event.get("error"):
        return _read_without_choice(event)
    choice = choices[0]
    delta = choice.get("delta")
    if delta is None:
        answer = bool(choice.get("text"))
        text = answer
    else:
        answer = bool(delta.get("content"))
        text = answer or _has_hidden_text(delta)
    finish = choice.get("finish_reason")
    usage = event.get("usage")
    if not finish:
        return Delta(text, answer, None, usage)
    reason, failure = _read_finish(finish)
    return Delta(text, answer, reason, usage, failure)


class TextEvent(NamedTuple):
    """The bytes around the text of one event. Other events of the stream differ from it in their text alone."""

    before: bytes
    after: bytes

    @classmethod
    def learn(cls, data: str) -> TextEvent | None:
        """Take apart an event that says nothing but text; None if the place of the text is not beyond doubt.

        Without a backslash every string of the JSON stands there as it is; if the text's occurs once, that is
        its place, and any other string there would have been read in its stead.
        """
        if "\\" in data or read_event(data) not in (_ANSWER, _THOUGHT):
            return None
        delta = orjson.loads(data)["choices"][0].get("delta") or {}
        text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
        quoted = f'"{text}"'
        place = data.find(quoted)
        # rfind, not count: of `"content":":"` only the second `":"` is a string, and the two overlap.
        if not isinstance(text, str) or place < 0 or data.rfind(quoted) != place:
            return None
        return cls(f"data: {data[: place + 1]}".encode(), f"{data[place + len(quoted) - 1 :]}\n\n".encode())

    def skim(self, read: bytes) -> tuple[int, bytes]:
        """Count the events at the start of `read` that fit; return their number and what follows them.

        An event fits when its text needs no JSON escapes, for then decoding could not find anything else.
        """
        before, after = self
        begin = len(before)
        fitting = 0
        while read.startswith(before):
            end = read.find(after, begin)
            if end <= begin:
                break  # cut, of another kind, or without text
            try:
                text = read[begin:end].decode()
            except UnicodeDecodeError:
                break
            if not text.isprintable() or '"' in text or "\\" in text:
                break
            fitting += 1
            read = read[end + len(after) :]
        return fitting, read


def _has_hidden_text(delta: dict[str, Any]) -> bool:
    if delta.get("reasoning_content") or delta.get("reasoning"):
        return True
    calls = delta.get("tool_calls")
    if calls:
        return any((call.get("function") or {}).get("arguments") for call in calls)
    return bool((delta.get("function_call") or {}).get("arguments"))


def _read_without_choice(event: dict[str, Any]) -> Delta:
    if event.get("error") or event.get("detail") or event.get("object") == "error":
        return Delta(failure=stream_failure(error_message(event)))
    if "choices" not in event and "code" in event and event.get("message"):
        return Delta(failure=stream_failure(error_message(event)))
    return Delta(usage=event.get("usage"))


def _read_finish(finish: object) -> tuple[str, Failure | None]:
    if isinstance(finish, dict):
        reason, message = str(finish.get("type", "")), str(finish.get("message") or "")
    else:
        reason, message = str(finish), ""
    if reason in _ACCEPTED_FINISHES:
        return reason, None
    reason = one_line(reason)
    category = Category.KV_TRANSFER if _KV_WORDS.search(message) else Category.ABORTED
    return reason, Failure(category, one_line(message or f"finish_reason {reason}"))


def stream_failure(message: str) -> Failure:
    """Name an error that came inside a stream or as the body of a 200."""
    if _KV_WORDS.search(message):
        return Failure(Category.KV_TRANSFER, message)
    if _LOCAL_PROXY_WORDS.search(message):
        return Failure(Category.LOCAL_PROXY, message)
    return Failure(Category.STREAM_ERROR, message)


_BY_STATUS = {
    401: Category.AUTH,
    403: Category.AUTH,
    404: Category.NOT_FOUND,
    405: Category.NOT_FOUND,
    408: Category.SERVER_TIMEOUT,
    429: Category.RATE_LIMITED,
}


def status_failure(status: int, body: bytes) -> Failure:
    """Name an answer whose status is not 2xx, by status and by the server's own words."""
    message = body_message(body)
    if _LOCAL_PROXY_WORDS.search(message):
        return Failure(Category.LOCAL_PROXY, f"HTTP {status}: {message}")
    if status >= 500 and _KV_WORDS.search(message):
        return Failure(Category.KV_TRANSFER, f"HTTP {status}: {message}")
    if status < 400:
        return Failure(Category.NOT_FOUND, f"HTTP {status}: a redirect, which is not followed")
    category = _BY_STATUS.get(status)
    if category is None:
        category = Category.SERVER_ERROR if status >= 500 else Category.REJECTED
    return Failure(category, f"HTTP {status}: {message}" if message else f"HTTP {status}")


def body_message(body: bytes) -> str:
    """Return the server's words in an error body: JSON in any of the usual shapes, or the text itself."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return one_line(body.decode("utf-8", "replace"))
    return error_message(document)


def error_message(document: Any) -> str:
    """Find the message in `{"error": {...}}`, `{"error": "text"}`, `{"detail": ..}` or `{"message": ..}`."""
    found = inner = document
    while inner:
        found = inner
        if isinstance(found, dict):
            inner = next((found[key] for key in _MESSAGE_KEYS if found.get(key)), None)
        else:
            inner = found[0] if isinstance(found, list) else None
    if isinstance(found, str) and found.strip():
        return one_line(found)
    try:
        return one_line(orjson.dumps(found or document).decode())
    except orjson.JSONEncodeError:
        return "an error nested too deeply to be shown"


def one_line(text: str) -> str:
    """Shorten to one line of MESSAGE_LIMIT characters."""
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_LIMIT else f"{line[: MESSAGE_LIMIT - 1]}…"
