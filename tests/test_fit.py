from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_locust.prompt import MOST_COUNTS, PREFIX_WORDS, Fit, PromptText, fit_words

TIERS = (16, 850, 6_330, 20_890)


class Tokenizer:
    """Counts as a server would, and notes what it was asked for."""

    def __init__(self, tokens_of):
        self.tokens_of = tokens_of
        self.asked = []

    def __call__(self, words):
        assert words >= 0
        self.asked.append(words)
        return self.tokens_of(words)


def near(tokens, nominal):
    return abs(tokens - nominal) <= max(3, 0.02 * nominal)


@pytest.mark.parametrize("nominal", TIERS)
@pytest.mark.parametrize("template", [0, 9, 14])
@pytest.mark.parametrize("tokens_a_word", [0.5, 1.0, 1.3, 2.0, 4.0])
def test_a_tokenizer_that_is_linear_is_met_within_five_counts(nominal, template, tokens_a_word):
    tokenizer = Tokenizer(lambda words: template + PREFIX_WORDS + round(tokens_a_word * words))
    fit = fit_words(nominal, tokenizer)
    assert len(tokenizer.asked) <= MOST_COUNTS == 5
    assert fit.tokens == tokenizer.tokens_of(fit.words)
    if template + PREFIX_WORDS < nominal:
        assert near(fit.tokens, nominal)


@pytest.mark.parametrize("nominal", TIERS)
def test_a_sub_word_tokenizer_on_the_real_text_is_met_within_five_counts(nominal):
    pieces = {}
    rng = random.Random("sub-words")

    def tokens_of(words):
        text = str(PromptText(words, 3)).split()
        return 9 + PREFIX_WORDS + sum(pieces.setdefault(word, rng.choice((1, 1, 1, 2, 3))) for word in text)

    tokenizer = Tokenizer(tokens_of)
    fit = fit_words(nominal, tokenizer)
    assert len(tokenizer.asked) <= 5
    assert near(fit.tokens, nominal)


def test_one_token_a_word_takes_two_counts():
    tokenizer = Tokenizer(lambda words: 12 + words)
    assert fit_words(850, tokenizer) == Fit(838, 850)
    assert tokenizer.asked == [0, 838]


def test_a_template_longer_than_the_tier_leaves_no_words():
    assert fit_words(16, Tokenizer(lambda words: 40 + words)) == Fit(0, 40)
    assert fit_words(16, Tokenizer(lambda words: 16 + words)) == Fit(0, 16)


def test_without_an_answer_the_words_are_the_tokens_asked_for():
    assert fit_words(850, Tokenizer(lambda _: None)) == Fit(850, None)


def test_a_server_that_stops_answering_leaves_what_was_found_so_far():
    answers = iter([10, 1_500, None])
    assert fit_words(850, Tokenizer(lambda _: next(answers))) == Fit(840, 1_500)


def test_a_server_that_always_counts_the_same_ends_at_once():
    tokenizer = Tokenizer(lambda _: 10)
    assert fit_words(850, tokenizer).tokens == 10
    assert len(tokenizer.asked) <= 5


@given(st.integers(1, 30_000), st.integers(0, 200), st.floats(0.2, 5), st.integers(0, 2))
def test_the_closest_count_wins(nominal, template, tokens_a_word, noise):
    tokenizer = Tokenizer(lambda words: template + int(tokens_a_word * words) + words % (noise + 1))
    fit = fit_words(nominal, tokenizer)
    counted = [tokenizer.tokens_of(words) for words in tokenizer.asked]
    assert len(counted) <= 5
    assert abs(fit.tokens - nominal) == min(abs(tokens - nominal) for tokens in counted)
