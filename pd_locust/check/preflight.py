"""The check before a load: a real streamed generation, step by step, each step a value that can be shown."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pd_locust.check.check import Check, Subject, Timeouts
from pd_locust.check.step import Status, Step, conceal, secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pd_locust.endpoint import Endpoint
    from pd_locust.stream import Failure
    from pd_locust.warnings import Doubt


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
