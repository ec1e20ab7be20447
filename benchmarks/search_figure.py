"""Draw one recorded search as SVG: its levels in order, with what was seen and the verdict.

    python benchmarks/search_figure.py PREFIX TIER > docs/search.svg

PREFIX is what --csv was given to a run of pd_capacity.py. Levels are judged here as they were in the run.
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from pd_locust.load.recorder import recorded_levels
from pd_locust.plateau import Plateau
from pd_locust.search import CapacitySearch, Measured
from pd_locust.slo import LatencyLimit, Slo, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COLOURS = {Verdict.PASS: "#1b7f4d", Verdict.FAIL: "#b5302a", Verdict.INCONCLUSIVE: "#8a6d00"}
_LEFT, _RIGHT, _WIDTH = 70, 20, 760
_USERS_TOP, _SEEN_TOP, _HEIGHT, _BOTTOM = 60, 270, 160, 480


def main() -> int:
    prefix, tier = sys.argv[1:3]
    document = json.loads(Path(f"{prefix}_run.json").read_text(encoding="utf-8"))
    slo = Slo.parse(document["slo"])
    levels = [
        Plateau.of(rows, phase=phase.name, tier=tier, users=phase.users, slo=slo)
        for phase, rows in recorded_levels(prefix)
        if phase.tier == tier
    ]
    limit = slo.primary
    if not levels or limit is None:
        print(f"{prefix}: no levels of tier {tier} under a latency limit", file=sys.stderr)
        return 2
    print("\n".join(figure(levels, limit, tier)))
    return 0


def figure(levels: Sequence[Plateau], limit: LatencyLimit, tier: str) -> Iterator[str]:
    """Two panels over the same levels: users held with the bracket left, and what was seen with its interval."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_BOTTOM}" font-family="sans-serif" '
        f'font-size="12" role="img">'
    )
    title = f"One search, level by level: tier {tier}, {limit}"
    yield f"<title>{escape(title)}</title>"
    yield f'<rect width="{_WIDTH}" height="{_BOTTOM}" fill="#ffffff"/>'
    yield f'<text x="{_LEFT}" y="24" font-size="15" fill="#222222">{escape(title)}</text>'
    yield from _users_panel(levels)
    yield from _seen_panel(levels, limit)
    yield from _legend()
    yield "</svg>"


def _x(place: int, count: int) -> float:
    return _LEFT + (place + 0.5) * (_WIDTH - _LEFT - _RIGHT) / count


def _users_panel(levels: Sequence[Plateau]) -> Iterator[str]:
    top = 1.15 * max(level.users or 0 for level in levels)
    count, step = len(levels), (_WIDTH - _LEFT - _RIGHT) / len(levels)

    def y(users: float) -> float:
        return _USERS_TOP + _HEIGHT * (1 - users / top)

    yield _caption(_USERS_TOP, "users held, and the bracket after each level")
    held = [Measured.of(level) for level in levels]
    for place, level in enumerate(levels):
        bracket = CapacitySearch().bracket(held[: place + 1])
        low, high = bracket.low or 0, bracket.high or top
        x = _x(place, count)
        yield (
            f'<rect x="{x - step / 2:.1f}" y="{y(high):.1f}" width="{step:.1f}" '
            f'height="{max(1.0, y(low) - y(high)):.1f}" fill="#dfe7f3"/>'
        )
        colour = _COLOURS[level.verdict]
        yield f'<circle cx="{x:.1f}" cy="{y(level.users or 0):.1f}" r="5" fill="{colour}"/>'
        yield _label(x, y(level.users or 0) - 9, str(level.users), colour)


def _seen_panel(levels: Sequence[Plateau], limit: LatencyLimit) -> Iterator[str]:
    bound_ms = limit.request.limit_ms
    top = 2.2 * bound_ms

    def y(milliseconds: float) -> float:
        return _SEEN_TOP + _HEIGHT * (1 - min(milliseconds, top) / top)

    what = f"{limit.request.metric.upper()} {limit.statistic} in ms, with its interval; requests judged below"
    yield _caption(_SEEN_TOP, what)
    yield (
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(bound_ms):.1f}" y2="{y(bound_ms):.1f}" '
        f'stroke="#444444" stroke-dasharray="5 4"/>'
    )
    yield f'<text x="{_LEFT - 6}" y="{y(bound_ms) + 4:.1f}" text-anchor="end" fill="#444444">{bound_ms:g}</text>'
    for place, level in enumerate(levels):
        finding = level.judgement.primary
        x, colour = _x(place, len(levels)), _COLOURS[level.verdict]
        if finding is None or finding.observed is None:
            continue
        if finding.low is not None and finding.high is not None:
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y(finding.high):.1f}" y2="{y(finding.low):.1f}" '
                f'stroke="{colour}" stroke-width="6" stroke-opacity="0.35"/>'
            )
        yield f'<circle cx="{x:.1f}" cy="{y(finding.observed):.1f}" r="4" fill="{colour}"/>'
        yield _label(x, y(finding.observed) - 9, f"{finding.observed:.1f}", colour)
        yield _label(x, _SEEN_TOP + _HEIGHT + 16, f"n={level.finished}", "#444444")


def _caption(top: float, text: str) -> str:
    axis = f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{top + _HEIGHT}" y2="{top + _HEIGHT}" stroke="#999999"/>'
    return f'{axis}<text x="{_LEFT}" y="{top - 10}" fill="#444444">{escape(text)}</text>'


def _label(x: float, y: float, text: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{colour}">{text}</text>'


def _legend() -> Iterator[str]:
    for place, (verdict, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 130 * place
        yield f'<circle cx="{x + 5}" cy="{_BOTTOM - 14}" r="5" fill="{colour}"/>'
        yield f'<text x="{x + 15}" y="{_BOTTOM - 10}" fill="#222222">{verdict}</text>'
    yield f'<rect x="{_LEFT + 390}" y="{_BOTTOM - 20}" width="14" height="12" fill="#dfe7f3"/>'
    yield f'<text x="{_LEFT + 410}" y="{_BOTTOM - 10}" fill="#222222">bracket: the answer lies here</text>'


if __name__ == "__main__":
    sys.exit(main())
