"""Fit a prompt's length in words to a tokenizer that only the server has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_COUNTS = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """`tokens` is what the server counted for `words`; None when it counts nothing for us."""

    words: int
    tokens: int | None


def fit_words(nominal_tokens: int, count: Callable[[int], int | None]) -> Fit:
    """Find the number of words whose prompt has `nominal_tokens` tokens; `count` asks the server.

    Tokens grow almost linearly with words, so a secant step from the empty prompt lands within a few tokens
    and the next one on them: at most MOST_COUNTS counts, the closest one wins. When the chat template alone
    is longer than the tier, the answer is no words at all. Without an answer from the server the words are
    the tokens asked for, and `tokens` is None.
    """
    empty = count(0)
    if empty is None:
        return Fit(nominal_tokens, None)
    if empty >= nominal_tokens:
        return Fit(0, empty)
    best = before = Fit(0, empty)
    words = nominal_tokens - empty
    for _ in range(MOST_COUNTS - 1):
        tokens = count(words)
        if tokens is None:
            break
        here = Fit(words, tokens)
        if abs(tokens - nominal_tokens) < abs((best.tokens or 0) - nominal_tokens):
            best = here
        if tokens == nominal_tokens or words == before.words:
            break
        slope = (tokens - (before.tokens or 0)) / (words - before.words)
        step = round((nominal_tokens - tokens) / slope) if slope > 0 else 0
        if step == 0:
            break
        before, words = here, max(0, words + step)
    return best
