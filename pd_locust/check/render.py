"""A Step as lines of a terminal, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from pd_locust.check.step import Status, Step, printable
from pd_locust.language import ENGLISH, Speech

WIDTH = 100
_MARGIN = Text(" " * 32)
_BODY_MARGIN = Text(" " * 8)
_STYLES = {Status.OK: "green", Status.FAILED: "bold red", Status.SKIPPED: "dim"}
_WRAPPING = Console(width=WIDTH)


def render(step: Step, say: Speech = ENGLISH) -> str:
    """Return what the step saw, and on failure the category, the causes in order and what to try.

    What was seen is the service's and the protocol's own; causes and remedies are said in the reader's language.
    """
    return "\n".join(line.plain for line in _lines(step, say))


def print_step(step: Step, console: Console, say: Speech = ENGLISH) -> None:
    """Print at once, in colour where the console is a terminal."""
    for line in _lines(step, say):
        console.print(line)


def _lines(step: Step, say: Speech) -> list[Text]:
    duration = "" if step.duration_ms is None else f"{step.duration_ms:,.1f} ms"
    head = Text(f"{step.status:<8}{step.name:<12}{duration:>10}  ")
    head.stylize(_STYLES[step.status], 0, len(step.status))
    lines = _wrapped(Text(printable(step.seen)), head)
    for line in step.body:
        shown = Text(f"| {printable(line)}", style="dim")
        shown.truncate(WIDTH - len(_BODY_MARGIN), overflow="ellipsis")
        lines.append(_BODY_MARGIN + shown)
    for paragraph in _explanation(step, say):
        lines += _wrapped(paragraph, _MARGIN)
    return lines


def _wrapped(text: Text, head: Text) -> list[Text]:
    parts = text.wrap(_WRAPPING, WIDTH - len(head))
    for part in parts:
        part.rstrip()
    return [(head if number == 0 else Text(" " * len(head))) + part for number, part in enumerate(parts)]


def _explanation(step: Step, say: Speech) -> Iterator[Text]:
    if step.failure is not None:
        yield Text(printable(str(step.failure)), style="bold")
    for number, advice in enumerate(step.advice, 1):
        yield Text(f"{number}. {printable(say(advice))}")
    for doubt in step.doubts:
        yield Text(f"! {printable(say(doubt.seen))}", style="yellow")
        yield Text(f"  {say('likely cause: ')}{printable(say(doubt.cause))}")
        yield Text(f"  {say('try: ')}{printable(say(doubt.remedy))}")
