"""The checks of a gate for people (terminal, Markdown) and for CI services (JUnit XML)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from pd_locust.analysis.gate import CHANGE, Check, Outcome
from pd_locust.analysis.render import markdown_view
from pd_locust.analysis.tables import Column, Table, View, text
from pd_locust.language import ENGLISH
from pd_locust.units import NOT_AVAILABLE, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pd_locust.language import Speech


def checks_view(checks: Sequence[Check], say: Speech) -> View:
    """One row a check."""
    columns: list[Column[Check]] = [
        Column("expression", "check", text, lambda check: check.expression),
        Column("tier", "tier", text, lambda check: check.tier),
        Column("users", "users", format_count, lambda check: check.users),
        Column("outcome", "outcome", text, lambda check: str(check.outcome), translated=True),
        Column("old", "baseline", _number, lambda check: check.old),
        Column("new", "now", _number, lambda check: check.new),
        Column("seen", "seen", _number, lambda check: check.seen),
        Column("low", "from", _number, lambda check: check.low),
        Column("high", "to", _number, lambda check: check.high),
        Column("unit", "unit", text, lambda check: check.unit, translated=True),
    ]
    table = Table.of("checks", columns, checks)
    return View.of(say("Gate"), table, [column.name for column in columns], say)


def verdict_of(checks: Sequence[Check], say: Speech) -> str:
    """Say in one sentence whether the gate is passed, and which check was missed by how much, or not decided."""
    missed = [check for check in checks if check.outcome is Outcome.MISSED]
    undecided = Counter(check.outcome for check in checks if not check.outcome.decides)
    open_ones = "".join(
        say("; ") + say(f"{count} not decided: {outcome}") for outcome, count in undecided.items()
    )
    if undecided.total() == len(checks):
        return say("nothing could be decided") + open_ones
    if not missed:
        return say(f"passed: {len(checks) - undecided.total()} of {len(checks)} checks") + open_ones
    told = say("; ").join(_miss(check, say) for check in missed)
    return say(f"failed: {len(missed)} of {len(checks)} checks") + say(": ") + told + open_ones


def to_markdown(checks: Sequence[Check], say: Speech) -> str:
    """Summary for a pull request."""
    return f"**{verdict_of(checks, say)}**\n\n{markdown_view(checks_view(checks, say))}\n"


def to_junit(checks: Sequence[Check]) -> str:
    """One test case a check; noise is no failure, but is told; an undecided check is skipped."""
    missed = sum(check.outcome is Outcome.MISSED for check in checks)
    undecided = sum(not check.outcome.decides for check in checks)
    counts = {"tests": str(len(checks)), "failures": str(missed), "skipped": str(undecided)}
    suite = ET.Element("testsuite", {"name": "pd-locust gate", **counts})
    for check in checks:
        at = "" if check.users is None else f" at {check.users} users"
        case = ET.SubElement(
            suite, "testcase", classname=f"pd_locust.gate.{check.tier}", name=check.expression + at
        )
        told = f"{check.tier}{at}: {_range(check, ENGLISH)}"
        if check.outcome is Outcome.MISSED:
            ET.SubElement(case, "failure", message=told)
        elif not check.outcome.decides:
            ET.SubElement(case, "skipped", message=f"{check.outcome}: {told}")
        else:
            ET.SubElement(case, "system-out").text = f"{check.outcome}: {told}"
    ET.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suite, encoding="unicode")}\n'


def to_json(checks: Sequence[Check]) -> dict[str, Any]:
    """Plain data with stable keys."""
    rows = [{name: getattr(check, name) for name in Check.__slots__} for check in checks]
    outcomes = {check.outcome for check in checks}
    passed = Outcome.MISSED not in outcomes and any(outcome.decides for outcome in outcomes)
    return {"format": 1, "passed": passed, "checks": rows}


def _miss(check: Check, say: Speech) -> str:
    at = "" if check.users is None else say(f" at {check.users} users")
    return f"{check.tier}{at} {check.expression} ({_range(check, say)})"


def _range(check: Check, say: Speech) -> str:
    if check.seen is None:
        return say("nothing could be measured")
    show = _signed if check.unit == CHANGE else _number
    interval = "" if None in (check.low, check.high) else f", {show(check.low)} … {show(check.high)}"
    return f"{show(check.seen)}{interval} {say(check.unit)}"


def _number(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")


def _signed(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"{value:+,.2f}"
