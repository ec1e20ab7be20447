"""Request bodies of chat completions: what is asked for, and what is refused and why."""

import json
from dataclasses import dataclass
from typing import Any

from pd_sim.http_protocol import HttpError
from pd_sim.tokens import TEMPLATE_TOKENS, count_tokens

DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class ChatBody:
    """A request that can be served; `text` is the whole conversation, a message a line."""

    text: str
    prompt_tokens: int
    max_tokens: int
    stream: bool
    include_usage: bool
    ignore_eos: bool


def parse_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object or refuse."""
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise HttpError(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise HttpError(400, "the body must be a JSON object")
    return fields


def parse_chat(body: bytes, model: str, max_model_len_tokens: int) -> ChatBody:
    """Read and check a chat-completions body; fields that do not matter here are ignored."""
    fields = parse_object(body)
    check_model(fields, model)
    texts = message_texts(fields)
    stream = _boolean(fields, "stream")
    stream_options = fields.get("stream_options")
    if stream_options is not None and not stream:
        raise HttpError(400, "stream_options is only allowed with stream=true")
    if not isinstance(stream_options or {}, dict):
        raise HttpError(400, "stream_options must be an object")
    if fields.get("min_tokens"):
        # PD routers ask prefill for max_tokens=1 and pass min_tokens on; the engine refuses the pair.
        raise HttpError(400, f"min_tokens={fields['min_tokens']} exceeds max_tokens=1 of the prefill leg")
    if fields.get("n") not in (None, 1):
        raise HttpError(400, "n must be 1")
    max_tokens = _max_tokens(fields)
    prompt_tokens = TEMPLATE_TOKENS + sum(map(count_tokens, texts))
    if prompt_tokens + max_tokens > max_model_len_tokens:
        raise HttpError(
            400,
            f"{prompt_tokens} prompt tokens and {max_tokens} output tokens do not fit the context length of "
            f"{max_model_len_tokens} tokens",
        )
    return ChatBody(
        text="\n".join(texts),
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        stream=stream,
        include_usage=_boolean(stream_options or {}, "include_usage"),
        ignore_eos=_boolean(fields, "ignore_eos"),
    )


def check_model(fields: dict[str, Any], model: str) -> None:
    """Refuse any other model; none at all means the one there is."""
    if fields.get("model") not in (None, model):
        raise HttpError(404, f"model {fields['model']!r} does not exist; this server has {model!r}")


def message_texts(fields: dict[str, Any]) -> list[str]:
    """Return the text of each message, of which there must be one at least."""
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise HttpError(400, "messages must be a list with at least one message")
    return [_text(message) for message in messages]


def _text(message: object) -> str:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise HttpError(400, "a message must be an object with a role")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text", "") for part in content]
        if all(isinstance(text, str) for text in texts):
            return " ".join(texts)
    raise HttpError(400, "the content of a message must be text or a list of text parts")


def _boolean(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value not in (None, True, False):
        raise HttpError(400, f"{name} must be true or false")
    return bool(value)


def _max_tokens(fields: dict[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        value = fields.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 1:
            raise HttpError(400, f"{name} must be a whole number of at least 1")
        return value
    return DEFAULT_MAX_TOKENS
