"""A Chart drawn as inline SVG: no script or library is needed to see it, and a page of them is small.

Plotly would do it in three lines and add 4.5 MB of script to every report; matplotlib pictures could be
neither hovered nor dark. Colours and fonts are left to the page's style sheet.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from pd_locust.slo import Verdict

if TYPE_CHECKING:
    from pd_locust.draw.chart import Axis, Chart, Point, Series

_WIDTH, _WIDE_WIDTH, _HEIGHT = 560, 1140, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 20, 22, 42
_SPAN_LABEL_NEEDS = 8
"""Pixels a character of a span's label takes, with some air."""
_NARROWEST_GAP = 30


@dataclass(frozen=True, slots=True)
class _Canvas:
    x_axis: Axis
    y_axis: Axis
    width: int

    @classmethod
    def of(cls, chart: Chart) -> _Canvas:
        return cls(chart.x_axis, chart.y_axis, _WIDE_WIDTH if chart.wide else _WIDTH)

    def x(self, value: float) -> float:
        return round(_LEFT + self.x_axis.share(value) * (self.width - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        share = min(1.0, max(0.0, self.y_axis.share(value)))
        return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def to_svg(chart: Chart) -> Markup:
    """Draw spans, grid, band, limit, lines and points, from back to front; readable without hovering."""
    canvas = _Canvas.of(chart)
    parts = [
        *_spans(chart, canvas),
        *_grid(chart, canvas),
        *_band(chart, canvas),
        *_limit(chart, canvas),
        *(part for series in chart.series for part in _series(series, canvas)),
        *_labels(chart, canvas),
    ]
    return Markup(  # noqa: S704 - everything that is not ours was escaped
        f'<svg viewBox="0 0 {canvas.width} {_HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
        f"{''.join(parts)}</svg>"
    )


def tips(chart: Chart) -> Markup:
    """Every point's place in the picture and its text, as JSON that is safe within a script element."""
    canvas = _Canvas.of(chart)
    points = [
        [canvas.x(point.x), canvas.y(point.y), point.tip] for one in chart.series for point in one.points
    ]
    text = json.dumps(points, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 - no tag can end or begin in it


def number(value: float) -> str:
    """Write a tick: `10,000`, `0.5`, without more digits than it has."""
    return f"{value:,.6f}".rstrip("0").rstrip(".") if value % 1 else f"{value:,.0f}"


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(text)}</text>'


def _grid(chart: Chart, canvas: _Canvas) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, canvas.width - _RIGHT
    parts = []
    for tick in canvas.y_axis.ticks:
        y = canvas.y(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:g}H{right}"/>')
        parts.append(_text(_LEFT - 6, y + 4, number(tick), "tick end"))
    for tick in canvas.x_axis.ticks:
        x = canvas.x(tick)
        parts.append(f'<path class="axis" d="M{x:g} {bottom}v4"/>')
        parts.append(_text(x, bottom + 17, number(tick), "tick middle"))
    parts.append(f'<path class="axis" d="M{_LEFT} {bottom}H{right}"/>')
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 6, chart.x_label, "label middle"))
    parts.append(_text(4, 12, chart.y_label, "label"))
    return parts


def _spans(chart: Chart, canvas: _Canvas) -> list[str]:
    parts = []
    for place, span in enumerate(chart.spans):
        x, width = canvas.x(span.start), canvas.x(span.stop) - canvas.x(span.start)
        style = f"span {span.style or ('odd' if place % 2 else 'even')}"
        parts.append(
            f'<rect x="{x:g}" y="{_TOP}" width="{max(width, 0.5):g}" height="{_HEIGHT - _TOP - _BOTTOM}" '
            f'class="{style}"><title>{escape(span.label)}</title></rect>'
        )
        if span.label and len(span.label) * _SPAN_LABEL_NEEDS <= width:
            parts.append(_text(x + width / 2, _TOP + 13, span.label, "tick middle"))
    return parts


def _band(chart: Chart, canvas: _Canvas) -> list[str]:
    if not chart.band:
        return []
    there = [f"{canvas.x(x):g} {canvas.y(high):g}" for x, _, high in chart.band]
    back = [f"{canvas.x(x):g} {canvas.y(low):g}" for x, low, _ in reversed(chart.band)]
    return [f'<path class="band" d="M{"L".join([*there, *back])}Z"/>']


def _limit(chart: Chart, canvas: _Canvas) -> list[str]:
    if not chart.limit:
        return []
    value, label = chart.limit
    y = canvas.y(value)
    return [
        f'<path class="limit" d="M{_LEFT} {y:g}H{canvas.width - _RIGHT}"/>',
        _text(_LEFT + 6, y + 14 if y < _TOP + 14 else y - 5, label, "limit-label"),
    ]


def _series(series: Series, canvas: _Canvas) -> list[str]:
    places = [(canvas.x(point.x), canvas.y(point.y)) for point in series.points]
    if not series.line:
        dots = "".join(f"M{x:g} {y:g}h0" for x, y in places)
        return [f'<path class="cloud {series.style}" d="{dots}"/>']
    line = "L".join(f"{x:g} {y:g}" for x, y in places)
    parts = [f'<path class="line {series.style}" d="M{line}"/>'] if len(places) > 1 else []
    if len(places) <= 40:
        parts += [
            _marked(point, x, y, series.style) for point, (x, y) in zip(series.points, places, strict=True)
        ]
    return parts


def _marked(point: Point, x: float, y: float, style: str) -> str:
    match point.mark:
        case Verdict.FAIL:
            return f'<path class="fail" d="M{x - 5:g} {y - 5:g}l10 10m0 -10l-10 10"/>'
        case Verdict.INCONCLUSIVE:
            return f'<path class="inconclusive" d="M{x:g} {y - 6:g}l6 6l-6 6l-6 -6Z"/>'
        case Verdict.PASS:
            return f'<circle class="pass" cx="{x:g}" cy="{y:g}" r="4.5"/>'
        case _:
            return f'<circle class="dot {style}" cx="{x:g}" cy="{y:g}" r="2.5"/>'


def _labels(chart: Chart, canvas: _Canvas) -> list[str]:
    """Write labels beside their points, leaving out those that would lie on one that is written already."""
    parts: list[str] = []
    written: list[tuple[float, float]] = []
    for point in (point for series in chart.series for point in series.points if point.label):
        x, y = canvas.x(point.x), canvas.y(point.y)
        if all(abs(x - other) > _NARROWEST_GAP or abs(y - height) > 13 for other, height in written):
            # Beyond the point, but within the picture.
            at_edge = x + _NARROWEST_GAP > canvas.width
            parts.append(
                _text(x - 6 if at_edge else x + 6, y - 6, point.label, "tick end" if at_edge else "tick")
            )
            written.append((x, y))
    return parts
