"""Prompts whose length is known in words, unique from their first word on, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

# Four letters each, so that every prefix has the same number of bytes (Content-Length never changes), and
# common enough to be one token with its leading space in the usual BPE vocabularies, so that every prefix
# has the same number of tokens too.
WORDS = tuple(
    """
    able also area army away baby back ball band bank base bear beat been best bill bird blue boat body
    bone book both burn busy call calm came camp card care case cell city club coal coat code cold come
    cook cool copy core corn cost crew crop dark data date dead deal dear deep desk diet does door down
    draw drop drug dust duty each earn east easy edge else even ever face fact fair fall farm fast fear
    feed feel feet fell file fill film find fine fire firm fish five flat flow food foot form four free
    from fuel full fund gain game gate gave gift girl give glad goal goes gold gone good gray grew grow
    hair half hall hand hang hard hate have head hear heat held help here hero high hill hire hold hole
    home hope host hour huge idea inch into iron item join jump jury just keep kept kick kind king knee
    knew know lack lady laid lake land last late lead left less life lift like line link list live load
    loan lock long look lord lose loss lost love luck made mail main make male many mark mass meal mean
    meat meet mind mine miss mode moon more most move much must name near neck need news next nice nine
    none nose note okay once only open over pace pack page paid pain pair
    """.split()  # noqa: SIM905 - one literal a word would be 234 lines
)

PREFIX_WORDS = 4
PREFIX_SPACE = len(WORDS) ** PREFIX_WORDS
"""How many different prefixes there are: about 3 x 10^9."""

LANES = 1024
"""Most workers that can walk the prefixes side by side without ever sharing one."""

_MULTIPLIER = 0x9E3779B1  # odd and prime to PREFIX_SPACE, so that the walk visits every prefix once


@dataclass(frozen=True, slots=True)
class PromptText:
    """Fixed text after the unique prefix. `words` is how the length is fitted to a tokenizer nobody has here."""

    words: int
    seed: int

    def __str__(self) -> str:
        return "".join(f" {word}" for word in islice(_word_stream(self.seed), self.words))


def _word_stream(seed: int) -> Iterator[str]:
    # One stream for all lengths: a longer prompt continues a shorter one, so its token count grows smoothly.
    rng = random.Random(f"pd_locust text {seed}")  # noqa: S311 - reproducible, not secret
    while True:
        yield from rng.choices(WORDS, k=256)


def interleave(weights: dict[str, int]) -> Iterator[str]:
    """Yield names in the proportion of their weights, each as evenly spread as it can be, for ever.

    Smooth weighted round robin: every turn all credits grow by the weights, and the largest pays for the turn.
    """
    total = sum(weights.values())
    credit = dict.fromkeys(weights, 0)
    while True:
        for name, weight in weights.items():
            credit[name] += weight
        name = max(credit, key=credit.__getitem__)
        credit[name] -= total
        yield name


def prefixes(seed: int, worker: int = 0) -> Iterator[str]:
    """Yield prefixes of PREFIX_WORDS words, no two alike, and none that another worker of the run yields.

    Each worker walks its own lane: up to PREFIX_SPACE / LANES (2.9 million) requests a worker and run.
    """
    # With a fixed multiplier the walk is a rotation that all seeds share: the start decides. Prompts of two
    # seeds also differ in their text, so a prefix that both use is no cache hit beyond itself.
    start = random.Random(f"pd_locust prefix {seed}").randrange(PREFIX_SPACE)  # noqa: S311
    index = worker % LANES
    while True:
        value = (start + index * _MULTIPLIER) % PREFIX_SPACE
        parts = []
        for _ in range(PREFIX_WORDS):
            value, digit = divmod(value, len(WORDS))
            parts.append(WORDS[digit])
        yield " ".join(parts)
        index += LANES


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
