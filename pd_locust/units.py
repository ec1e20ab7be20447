"""Units live in names (`_ms`, `_ns`, `_s`, `_tokens`); this is how they are shown and converted."""

from __future__ import annotations

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
NOT_AVAILABLE = "n/a"


def ns_to_ms(nanoseconds: int | None) -> float | None:
    """Milliseconds, exact to the microsecond, or None when there was nothing to measure."""
    return None if nanoseconds is None else round(nanoseconds / NS_PER_MS, 3)


def format_ms(milliseconds: float | None) -> str:
    """One decimal, which is the resolution people compare: `391.4`; absent reads `n/a`."""
    return NOT_AVAILABLE if milliseconds is None else f"{milliseconds:,.1f}"


def format_count(count: float | None) -> str:
    """Whole things with thousands separated; absent reads `n/a`."""
    return NOT_AVAILABLE if count is None else f"{count:,.0f}"


def format_percent(ratio: float | None) -> str:
    """A share of 1 as per cent; `100 %` is printed only when nothing at all is missing."""
    if ratio is None:
        return NOT_AVAILABLE
    text = f"{ratio * 100:.2f}".rstrip("0").rstrip(".")
    if text == "100" and ratio < 1:
        text = "99.99"
    return f"{text} %"
