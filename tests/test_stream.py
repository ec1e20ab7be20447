from __future__ import annotations

import pytest

from pd_locust.stream import Category, Failure


@pytest.mark.parametrize("category", Category)
def test_every_category_has_a_hint_that_is_one_sentence(category):
    assert len(category.hint) > 30
    assert "\n" not in category.hint
    assert not category.hint.endswith(".")


def test_no_two_categories_share_a_hint():
    assert len({category.hint for category in Category}) == len(Category) == 22


def test_a_category_is_written_as_its_value():
    assert (str(Category.KV_TRANSFER), f"{Category.NO_FIRST_TOKEN}") == ("kv_transfer", "no_first_token")


def test_a_failure_reads_as_category_and_words():
    assert str(Failure(Category.AUTH, "HTTP 401: no key")) == "auth: HTTP 401: no key"
    assert str(Failure(Category.AUTH, "")) == "auth"


@pytest.mark.parametrize(
    ("message", "group"),
    [
        ("request 7f9c24e8-3b1d-4c55-9a0e-2f8d6b1c7e11 lost", "reset: request … lost"),
        ("id cmpl-8a7b6c5d4e3f2a1b failed", "reset: id … failed"),
        ("port 30001 at 0xdeadbeef", "reset: port … at …"),
        ("HTTP 503: 12 of 64 workers", "reset: HTTP 503: 12 of 64 workers"),
        ("no healthy prefill worker", "reset: no healthy prefill worker"),
        ("unrecognizedconfigurationoption", "reset: unrecognizedconfigurationoption"),
    ],
)
def test_a_group_keeps_the_cause_and_drops_the_ids(message, group):
    assert Failure(Category.RESET, message).group == group
