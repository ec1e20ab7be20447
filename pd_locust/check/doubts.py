"""Doubts that the check can raise: the service works, but some number will not mean what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pd_locust.record import TokensSource
from pd_locust.warnings import Doubt, buffered_streams, chunk_counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.check.probe import Probe
    from pd_locust.stream import Failure

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
