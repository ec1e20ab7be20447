"""The check before a load: a real streamed generation, step by step, each step a value that can be shown."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pd_locust.check import network
from pd_locust.check.advice import (
    Circumstance,
    doubts_of_stream,
    flaky,
    ignore_eos_refused,
    likely_causes,
    model_not_listed,
    silent_first_token,
)
from pd_locust.check.control import ControlPlane, ModelList
from pd_locust.check.probe import Probe, probe
from pd_locust.check.step import Status, Step
from pd_locust.endpoint import Endpoint, authorization, conceal, secrets_of, streaming_headers, tls_context
from pd_locust.stream import Category, Failure
from pd_locust.warnings import Doubt
from pd_locust.wire.connection import Connection

STREAM_TOKENS = 32
_LISTED = 8


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each part may take, in seconds; the load's own defaults."""

    connect_s: float = 10.0
    first_token_s: float = 120.0
    idle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Subject:
    """What is checked, and how its requests are made: as the load will make them."""

    endpoint: Endpoint
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    extra_body: dict[str, Any] = field(default_factory=dict)
    ignore_eos: bool = True
    verify_tls: bool = True
    timeouts: Timeouts = field(default_factory=Timeouts)


class Check:
    """The steps in their order, and what one leaves for the next."""

    def __init__(self, subject: Subject) -> None:
        self.model = subject.model
        self.ignore_eos = subject.ignore_eos
        self._subject = subject
        self._endpoint = endpoint = subject.endpoint
        self._sock: socket.socket | None = None
        self._models = ModelList("")
        headers, timeouts, verify = subject.headers, subject.timeouts, subject.verify_tls
        self._control = ControlPlane(endpoint, authorization(subject.api_key) | headers, verify=verify)
        self._connection = Connection(
            endpoint,
            streaming_headers(subject.api_key, headers),
            now=time.perf_counter_ns,
            connect_timeout_s=timeouts.connect_s,
            first_token_timeout_s=timeouts.first_token_s,
            idle_timeout_s=timeouts.idle_s,
            tls=tls_context(verify) if endpoint.scheme == "https" else None,
        )

    def plan(self) -> tuple[tuple[str, Callable[[], Step]], ...]:
        """Names, and how to take each step; a step may rely on those before it."""
        return (
            ("environment", network.environment),
            ("resolve", lambda: network.resolve(self._endpoint)),
            ("connect", self._connect),
            ("tls", self._tls),
            ("models", self._ask_models),
            ("one token", self._one_token),
            ("stream", self._stream),
        )

    def close(self) -> None:
        """Close what is open."""
        self._connection.close()
        if self._sock is not None:
            self._sock.close()

    def _connect(self) -> Step:
        step, self._sock = network.connect(self._endpoint, self._subject.timeouts.connect_s)
        return step

    def _tls(self) -> Step:
        sock, self._sock = self._sock, None
        assert sock is not None  # noqa: S101 - the step before has left it
        with contextlib.closing(sock):
            return network.tls(self._endpoint, sock, verify=self._subject.verify_tls)

    def _ask_models(self) -> Step:
        self._models = models = self._control.models()
        answer = (
            f"{models.status} {models.content_type or 'without a content type'}"
            if models.status
            else "no answer"
        )
        failure = models.failure
        facts = {"status": models.status, "ids": models.ids}
        # 403 may mean a key that is allowed to generate but not to list.
        if failure and (failure.category is Category.LOCAL_PROXY or models.status == 401):
            causes = likely_causes(failure, self._circumstance(Probe.nothing()))
            return Step.failed("models", answer, failure, *causes, facts=facts)
        if models.ids is None:
            seen = f"{answer}: no model list, as behind some routers"
            return self._with_model(Step.ok("models", seen, facts=facts))
        listed = ", ".join(models.ids[:_LISTED]) + (", …" if len(models.ids) > _LISTED else "")
        return self._with_model(Step.ok("models", f"{answer}: {listed or 'an empty list'}", facts=facts))

    def _with_model(self, step: Step) -> Step:
        ids = self._models.ids
        if self.model:
            if ids and self.model not in ids:
                return replace(step, doubts=(model_not_listed(self._endpoint.base_url, self.model, ids),))
            return step
        if ids is not None and len(ids) == 1:
            self.model = ids[0]
            return replace(step, seen=f"{step.seen} (the only one, taken)")
        what = "which of them is to be measured" if ids else "no model ID given and none listed"
        failure = Failure(Category.NOT_FOUND, what)
        return Step.failed(
            "models", step.seen, failure, "choose one with --pd-model (PD_MODEL)", facts=step.facts
        )

    def _one_token(self) -> Step:
        seen, doubts = self._probe(1)
        if seen.failure is not None and seen.failure.category is Category.NO_TEXT:
            # A reasoning parser swallows the mark that opens the thinking: more tokens will tell.
            doubts.append(silent_first_token(self._endpoint.base_url))
            return self._step("one token", replace(seen, failure=None), doubts)
        return self._step("one token", seen, doubts)

    def _stream(self) -> Step:
        seen, doubts = self._probe(STREAM_TOKENS)
        if seen.failure is None:
            doubts += doubts_of_stream(self._endpoint.base_url, seen)
        return self._step("stream", seen, doubts, one_token_worked=True)

    def _probe(self, max_tokens: int) -> tuple[Probe, list[Doubt]]:
        doubts = []
        seen = self._send(max_tokens, ignore_eos=self.ignore_eos)
        if seen.failure and self.ignore_eos and seen.record.status in {400, 422}:
            again = self._send(max_tokens, ignore_eos=False)
            if again.failure is None or again.failure.category is Category.NO_TEXT:
                self.ignore_eos = False
                doubts.append(ignore_eos_refused(self._endpoint.base_url, seen.failure))
                seen = again
        if seen.failure and seen.failure.category in _MAY_PASS:
            again = self._send(max_tokens, ignore_eos=self.ignore_eos)
            if again.failure is None:
                doubts.append(flaky(self._endpoint.base_url, seen.failure))
                seen = again
        return seen, doubts

    def _send(self, max_tokens: int, *, ignore_eos: bool) -> Probe:
        return probe(
            self._connection,
            model=self.model or "",
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            extra_body=self._subject.extra_body,
        )

    def _step(self, name: str, seen: Probe, doubts: list[Doubt], *, one_token_worked: bool = False) -> Step:
        more: dict[str, Any] = {"doubts": tuple(doubts), "body": seen.shown_body(), "facts": seen.facts()}
        if seen.failure is None:
            return Step.ok(name, seen.seen(), **more)
        causes = likely_causes(seen.failure, self._circumstance(seen, one_token_worked=one_token_worked))
        twice = ", tried twice" if seen.failure.category in _MAY_PASS else ""
        return Step.failed(name, f"{seen.seen()}{twice}", seen.failure, *causes, **more)

    def _circumstance(self, seen: Probe, *, one_token_worked: bool = False) -> Circumstance:
        """Collect what is known, and look twice where one more question settles the cause."""
        endpoint, failure = self._endpoint, seen.failure
        speaks_tls = elsewhere = None
        if failure is not None and endpoint.scheme == "http" and failure.category in _NOT_HTTP:
            speaks_tls = network.answers_tls(endpoint)
        if failure is not None and failure.category is Category.NOT_FOUND and self._models.ids is None:
            elsewhere = self._list_elsewhere()
        return Circumstance(
            endpoint=endpoint,
            model=self.model or "",
            has_key=bool(self._subject.api_key),
            models=self._models,
            probe=seen,
            elsewhere=elsewhere,
            speaks_tls=bool(speaks_tls),
            one_token_worked=one_token_worked,
            extra_fields=tuple(self._subject.extra_body),
        )

    def _list_elsewhere(self) -> str | None:
        usual = f"{self._endpoint.origin}/v1"
        if self._endpoint.base_url == usual:
            return None
        return usual if self._control.models(usual).ids else None


_NOT_HTTP = frozenset({Category.PROTOCOL, Category.RESET})

# Tried once more: one failure in a thousand must not keep a load from starting.
_MAY_PASS = frozenset(
    {
        Category.SERVER_ERROR,
        Category.STREAM_ERROR,
        Category.KV_TRANSFER,
        Category.ABORTED,
        Category.TRUNCATED,
        Category.MALFORMED,
        Category.RATE_LIMITED,
        Category.RESET,
    }
)


@dataclass(frozen=True, slots=True)
class Preflight:
    """All steps, the skipped ones too. `model` and `ignore_eos` are what the load is to send."""

    steps: tuple[Step, ...]
    model: str | None
    ignore_eos: bool

    @property
    def failure(self) -> Failure | None:
        """Why the check failed, if it did."""
        return next((step.failure for step in self.steps if step.failure), None)

    @property
    def ok(self) -> bool:
        """Whether the service can be measured."""
        return self.failure is None

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Reasons not to trust what will be measured, from all steps."""
        return tuple(doubt for step in self.steps for doubt in step.doubts)

    @property
    def verdict(self) -> str:
        """One sentence: where it failed, how, and the likeliest cause."""
        for step in self.steps:
            if step.failure is not None:
                return f"the check failed at {step.name!r}: {step.failure}; {step.advice[0]}"
        return "the service can be measured"

    def to_json(self) -> dict[str, Any]:
        """Stable keys for `--json`."""
        return {
            "ok": self.ok,
            "model": self.model,
            "ignore_eos": self.ignore_eos,
            "category": None if self.failure is None else str(self.failure.category),
            "verdict": self.verdict,
            "steps": [step.to_json() for step in self.steps],
        }


def preflight(
    endpoint: Endpoint,
    *,
    api_key: str | None = None,
    model: str | None = None,
    headers: dict[str, str] | None = None,
    extra_body: dict[str, Any] | None = None,
    ignore_eos: bool = True,
    verify_tls: bool = True,
    timeouts: Timeouts | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Preflight:
    """Take every step until one fails; `on_step` gets each as it ends. The key is in none of them.

    Sends two or three small requests. Raises ConfigError only for a key that cannot be sent at all.
    """
    subject = Subject(
        endpoint,
        api_key,
        model,
        headers or {},
        extra_body or {},
        ignore_eos=ignore_eos,
        verify_tls=verify_tls,
        timeouts=timeouts or Timeouts(),
    )
    check = Check(subject)
    secrets = secrets_of(api_key, subject.headers)
    steps: list[Step] = []
    with contextlib.closing(check):
        for name, take in check.plan():
            if any(step.failure for step in steps):
                step = Step.skipped(name, "not reached")
            else:
                started_ns = time.perf_counter_ns()
                step = take()
                if step.status is not Status.SKIPPED:
                    step = replace(step, duration_ms=round((time.perf_counter_ns() - started_ns) / 1e6, 3))
            step = conceal(step, secrets)
            steps.append(step)
            if on_step is not None:
                on_step(step)
    return Preflight(tuple(steps), check.model, check.ignore_eos)
