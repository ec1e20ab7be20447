"""What a gate refuses, as it is written: `ttft_p95>+10%`, `capacity.short<170`, `failures>1%`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pd_locust.analysis.rounds import MEASURES, Measure
from pd_locust.errors import ConfigError

CAPACITY, FAILURES = "capacity", "failures"
_BY_NAME = {measure.name: measure for measure in MEASURES}
_FORM = re.compile(
    r"(?P<name>\w+)(?:\.(?P<tier>[\w.-]+?))?\s*(?P<side>[<>])\s*"
    r"(?P<sign>[+-])?(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|ms|s)?"
)
_ACCEPTED = (
    "expected NAME[.TIER] > or < a change from the baseline (+10%, -5%) or a value (800ms, 3000, 1%), with NAME one of "
    f"{', '.join((*_BY_NAME, CAPACITY, FAILURES))}; a change of failures, or a value in another unit, is not accepted"
)


@dataclass(frozen=True, slots=True)
class Expression:
    """`bound` is a ratio to the baseline if `relative`, else ms, a rate, users or a share of 1."""

    text: str
    name: str
    tier: str | None
    above: bool
    bound: float
    relative: bool

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Read one expression. Raises ConfigError that says what is accepted."""
        match = _FORM.fullmatch(text.strip())
        if match is None or not (match["name"] in _BY_NAME or match["name"] in (CAPACITY, FAILURES)):
            raise ConfigError(f"--fail-if {text!r}: {_ACCEPTED}")
        name, number, unit = match["name"], float(match["number"]), match["unit"]
        above = match["side"] == ">"
        if name == FAILURES and not above:
            raise ConfigError(f"--fail-if {text!r}: fewer failures are no fault; write failures>1%")
        if match["sign"]:
            if unit != "%" or name == FAILURES:
                raise ConfigError(f"--fail-if {text!r}: {_ACCEPTED}")
            change = number / 100 * (1 if match["sign"] == "+" else -1)
            return cls(text, name, match["tier"], above, 1 + change, relative=True)
        return cls(text, name, match["tier"], above, number * _factor(text, name, unit), relative=False)

    @property
    def measure(self) -> Measure | None:
        """What is measured at a level; None for capacity and failures."""
        return _BY_NAME.get(self.name)

    def is_beyond(self, value: float) -> bool:
        """Whether a value is on the refused side."""
        return value > self.bound if self.above else value < self.bound


def _factor(text: str, name: str, unit: str | None) -> float:
    measure = _BY_NAME.get(name)
    accepted: dict[str | None, float] = {None: 1.0}
    if name == FAILURES:
        accepted = {"%": 0.01}
    elif measure and measure.column:
        accepted = {"ms": 1.0, "s": 1000.0}
    if unit not in accepted:
        raise ConfigError(f"--fail-if {text!r}: {_ACCEPTED}")
    return accepted[unit]
