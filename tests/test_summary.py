from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_locust.summary import Summary, percentile

values = st.lists(st.floats(0, 1e7), min_size=1, max_size=200)


@given(values, st.floats(0, 100))
def test_percentiles_are_those_of_numpy(numbers, percent):
    assert percentile(sorted(numbers), percent) == pytest.approx(
        np.percentile(numbers, percent), rel=1e-9, abs=1e-9
    )


def test_percentiles_worked_out_by_hand():
    ordered = [10, 20, 30, 40, 50]
    assert [percentile(ordered, percent) for percent in (0, 25, 50, 75, 100)] == [10, 20, 30, 40, 50]
    assert percentile(ordered, 95) == pytest.approx(48.0)  # rank 3.8
    assert percentile(ordered, 99) == pytest.approx(49.6)  # rank 3.96
    assert percentile([7], 99) == 7


def test_no_samples_have_no_percentile():
    assert percentile([], 50) is None


def test_infinite_values_reach_a_percentile_only_from_its_rank_on():
    ordered = [100.0] * 99 + [math.inf]
    assert percentile(ordered, 50) == 100.0
    assert percentile(ordered, 98) == 100.0  # rank 97.02, between two of 100
    assert percentile(ordered, 99) == math.inf  # rank 98.01, a hundredth of the way to infinity


def test_an_exact_rank_does_not_touch_its_infinite_neighbour():
    assert percentile([1.0, 2.0, math.inf], 50) == 2.0


def test_two_infinite_neighbours_are_infinite_and_not_nan():
    assert percentile([1.0, math.inf, math.inf], 75) == math.inf
    assert percentile([math.inf] * 3, 99) == math.inf


def test_a_summary_says_how_many_values_it_has():
    assert Summary.of([3, 1, 2]) == Summary(3, 2.0, 2.0, pytest.approx(2.9), pytest.approx(2.98), 3.0)
    assert Summary.of([]) == Summary(0, None, None, None, None, None)
    assert Summary.of(iter([5])) == Summary(1, 5.0, 5.0, 5.0, 5.0, 5.0)


@given(values)
def test_percentiles_are_in_order_in_every_summary(numbers):
    summary = Summary.of(numbers)
    assert min(numbers) <= summary.p50 <= summary.p95 <= summary.p99 <= summary.max == max(numbers)
    assert min(numbers) - 1e-6 <= summary.mean <= max(numbers) + 1e-6
