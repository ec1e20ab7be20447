"""What to make of the service's answers: causes of a failure, the likeliest first, and doubts about a success."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pd_locust.check.control import ModelList
from pd_locust.check.probe import Probe
from pd_locust.endpoint import Endpoint
from pd_locust.record import TokensSource
from pd_locust.stream import Category, Failure
from pd_locust.warnings import Doubt, buffered_streams, chunk_counted
from pd_locust.wire.chat import one_line

_HTML = re.compile(rb"<!doctype html|<html", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_WANTS_TLS = re.compile(r"https (port|server)", re.IGNORECASE)
_LISTED = 8


@dataclass(frozen=True, slots=True)
class Circumstance:
    """What is known when a stream has failed. `elsewhere`: another base URL that does list models."""

    endpoint: Endpoint
    model: str
    has_key: bool
    models: ModelList
    probe: Probe
    elsewhere: str | None = None
    speaks_tls: bool = False
    one_token_worked: bool = False
    extra_fields: tuple[str, ...] = ()


def likely_causes(failure: Failure, seen: Circumstance) -> tuple[str, ...]:
    """Name what this service's own answers point to, then the category's hint unless they have settled it."""
    own = tuple(_causes(failure.category, failure.message, seen))
    return own if own and failure.category in _SETTLED else (*own, failure.category.hint)


_SETTLED = frozenset({Category.AUTH, Category.NOT_FOUND})


def _causes(category: Category, message: str, seen: Circumstance) -> Iterator[str]:
    title = html_title(seen.probe.body)
    if title is not None:
        page = f" ({title})" if title else ""
        yield f"a web page{page} answers, not an LLM API: a gateway, a login, or the service's own UI"
    if seen.speaks_tls or _WANTS_TLS.search(message):
        yield f"the port speaks TLS: the base URL should begin with https://{seen.endpoint.netloc}"
    if seen.probe.location:
        yield f"the server redirects to {one_line(seen.probe.location)}: give that address as the base URL"
    if category is Category.NOT_FOUND:
        yield from _not_found(seen)
    elif category is Category.AUTH:
        yield _auth(seen.has_key, seen.endpoint)
    elif category is Category.LOCAL_PROXY:
        yield f"{seen.endpoint.netloc} is itself such a proxy: give the PD service's own address"
    elif category in _MODEL_IN_DISGUISE and not _known(seen):
        yield _unknown_model(seen)
    if category is Category.REJECTED and seen.extra_fields:
        yield f"a field of --extra-body: {', '.join(seen.extra_fields)}"
    if seen.one_token_worked and category in _SECOND_TOKEN:
        yield "one token works, more do not: prefill answers, decode or the KV transfer to it does not"


# transformers answers an unknown model with 400, smg with 503.
_MODEL_IN_DISGUISE = frozenset({Category.REJECTED, Category.SERVER_ERROR, Category.STREAM_ERROR})

_SECOND_TOKEN = frozenset(
    {
        Category.NO_FIRST_TOKEN,
        Category.STALLED,
        Category.TRUNCATED,
        Category.ABORTED,
        Category.STREAM_ERROR,
        Category.KV_TRANSFER,
        Category.SERVER_ERROR,
        Category.RESET,
    }
)


def _auth(has_key: bool, endpoint: Endpoint) -> str:
    if not has_key:
        return "no key was sent: give it with --api-key (PD_API_KEY)"
    return f"the key or the base URL: {endpoint.base_url} does not know this key; is it another service's?"


def _known(seen: Circumstance) -> bool:
    return seen.models.ids is None or seen.model in seen.models.ids


def _not_found(seen: Circumstance) -> Iterator[str]:
    chat_url = f"{seen.endpoint.origin}{seen.endpoint.chat_path}"
    if seen.elsewhere:
        yield f"the path is wrong: {seen.elsewhere}/models lists models, so try --host {seen.elsewhere}"
    elif not _known(seen):
        yield _unknown_model(seen)
    elif seen.models.ids is not None:
        yield f"{seen.models.url} lists {seen.model}, so path and model are right as far as one can see"
        yield "behind a PD router: no worker of a role is registered"
        yield f"the service lists models but has no {seen.endpoint.chat_path}"
    elif seen.models.status == 404:
        yield f"the path is wrong: neither {chat_url} nor {seen.models.url} exists"
        yield "does the base URL end in .../v1, and is it the API's, not the UI's?"
    else:
        yield f"the path {chat_url} or the model {seen.model!r}: there is no model list to tell which"
        yield "behind a PD router: no worker of a role is registered"


def _unknown_model(seen: Circumstance) -> str:
    ids = seen.models.ids or ()
    listed = ", ".join(ids[:_LISTED]) + (", …" if len(ids) > _LISTED else "")
    there = f"there {'is' if len(ids) == 1 else 'are'} {listed}" if ids else "the list is empty"
    return f"the path is right, the model {seen.model!r} is unknown: {there}"


def html_title(body: bytes) -> str | None:
    """Return the title of a web page, empty when it has none; None for what is no page."""
    if not _HTML.search(body[:1024]):
        return None
    title = _TITLE.search(body)
    return one_line(title[1].decode("utf-8", "replace")) if title else ""


_MANY_TOKENS = 16


def model_not_listed(where: str, model: str, ids: Sequence[str]) -> Doubt:
    """Routers report odd IDs ("unknown"), so this alone is no failure."""
    return Doubt(
        "model-not-listed",
        where,
        f"the model {model!r} is not in the list: {', '.join(ids[:8])}",
        "a router that reports an ID of its own, or a model ID with a typing error",
        "if the streams work, go on: some servers answer any model ID with the one they have",
    )


def ignore_eos_refused(where: str, failure: Failure) -> Doubt:
    """Without ignore_eos the output length is the model's choice."""
    return Doubt(
        "no-ignore-eos",
        where,
        f"the service refuses ignore_eos ({failure.message}) and works without it, so output lengths vary",
        "it is not an engine's own API, or not a vLLM, SGLang or llama.cpp one",
        "compare TPOT and TTFT, not throughput, with runs whose output length is fixed",
    )


def flaky(where: str, failure: Failure) -> Doubt:
    """One of two requests of the check failed."""
    return Doubt(
        "flaky",
        where,
        f"a request failed ({failure}) and the next one worked",
        failure.category.hint,
        "find the cause before trusting a load's percentiles: they will hold failures",
    )


def silent_first_token(where: str) -> Doubt:
    """Say that a token without text has no arrival, so that its TTFT is unknown."""
    return Doubt(
        "silent-first-token",
        where,
        "a one-token answer carries no text",
        "a reasoning parser swallows the mark that opens the thinking",
        "--pd-thinking off; a tier with max_tokens 1 cannot be measured here otherwise",
    )


def doubts_of_stream(where: str, seen: Probe) -> list[Doubt]:
    """Judge a stream that succeeded."""
    record = seen.record
    tokens = record.output_tokens or 0
    found = []
    if record.buffered:
        found.append(
            _of_the_check(buffered_streams(where, 1), f"the check's {tokens} tokens arrived in bursts")
        )
    elif record.text_chunks == 1 and tokens >= _MANY_TOKENS:
        found.append(
            _of_the_check(buffered_streams(where, 1), f"the check's {tokens} tokens arrived in one chunk")
        )
    if record.tokens_source is TokensSource.CHUNKS:
        found.append(_of_the_check(chunk_counted(where, 1), "the answer carries no usage"))
    if seen.reasoning:
        found.append(_thinking(where, seen.reasoning))
    return found


def _of_the_check(doubt: Doubt, seen: str) -> Doubt:
    return replace(doubt, seen=seen)


def _thinking(where: str, reasoning: str) -> Doubt:
    how = "is all thinking, no answer" if reasoning == "only" else "begins with thinking"
    return Doubt(
        "thinking",
        where,
        f"the check's output {how}",
        "the model reasons by default: TTFT is the first thought, TTFO the first word of the answer",
        "--pd-thinking off to measure answers, or compare TTFT only with runs that think as well",
    )
