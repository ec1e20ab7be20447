from __future__ import annotations

from itertools import islice, pairwise
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_locust.prompt import _MULTIPLIER, LANES, PREFIX_SPACE, PREFIX_WORDS, WORDS, PromptText, prefixes


def take(count, seed, worker=0):
    return list(islice(prefixes(seed, worker), count))


def test_no_two_of_a_workers_prefixes_are_alike():
    assert len(set(take(20_000, seed=1))) == 20_000


def test_no_two_workers_share_a_prefix():
    taken = [prefix for worker in range(8) for prefix in take(2_000, seed=1, worker=worker)]
    assert len(set(taken)) == 16_000


def test_even_the_last_lane_is_apart_from_the_first():
    assert set(take(2_000, seed=1, worker=LANES - 1)).isdisjoint(take(2_000, seed=1, worker=0))


def test_the_walk_visits_every_prefix_once():
    assert gcd(_MULTIPLIER, PREFIX_SPACE) == 1
    assert PREFIX_SPACE == len(WORDS) ** 4 > 2_000_000_000


def test_the_same_seed_gives_the_same_prompts_and_another_seed_others():
    assert take(50, seed=7, worker=3) == take(50, seed=7, worker=3)
    assert take(50, seed=7) != take(50, seed=8)
    assert str(PromptText(100, 7)) == str(PromptText(100, 7))
    assert str(PromptText(100, 7)) != str(PromptText(100, 8))


def test_every_prefix_has_the_same_number_of_bytes_and_words():
    taken = take(5_000, seed=3, worker=5)
    assert {len(prefix.encode()) for prefix in taken} == {4 * PREFIX_WORDS + 3}
    assert {len(prefix.split(" ")) for prefix in taken} == {PREFIX_WORDS}


def test_prefixes_differ_in_their_first_word_already_so_that_no_cache_block_is_shared():
    firsts = [prefix.split()[0] for prefix in take(1_000, seed=1)]
    assert all(one != other for one, other in pairwise(firsts))
    assert len(set(firsts)) > 100


def test_the_words_are_two_hundred_and_more_plain_ones_of_four_letters():
    assert len(WORDS) == len(set(WORDS)) > 200
    assert all(len(word) == 4 and word.isascii() and word.islower() and word.isalpha() for word in WORDS)


@pytest.mark.parametrize("words", [0, 1, 7, 20_000])
def test_a_text_has_as_many_words_as_it_says_each_with_its_space(words):
    text = str(PromptText(words, 1))
    assert len(text) == 5 * words
    assert text == "".join(f" {word}" for word in text.split())


@given(st.integers(0, 600), st.integers(0, 600))
def test_a_longer_text_continues_a_shorter_one(some, more):
    assert str(PromptText(some + more, 5)).startswith(str(PromptText(some, 5)))
