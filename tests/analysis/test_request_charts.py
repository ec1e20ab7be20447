import numpy as np

from pd_locust.analysis.request_charts import cumulative_share, thinned_places


def test_a_cumulative_share_reaches_one_at_the_largest_value():
    assert cumulative_share([1.0, 2.0, 3.0, 4.0]) == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1)]


def test_a_long_distribution_is_thinned_with_both_ends_kept():
    points = cumulative_share([float(n) for n in range(10_000)], at_most=5)

    assert [value for value, _ in points] == [0, 2500, 5000, 7499, 9999]


def test_thinning_keeps_the_extremes_of_every_stretch():
    x = np.arange(10_000.0)
    y = x % 100
    y[4321] = 9999.0

    kept = thinned_places(x, y, columns=10)

    assert len(kept) <= 11 * 8
    assert 4321 in kept
    assert {0.0, 99.0} <= set(y[kept])


def test_a_few_points_are_all_kept_in_the_order_of_x():
    kept = thinned_places(np.array([3.0, 1.0, 2.0]), np.ones(3), columns=10)

    assert kept.tolist() == [1, 2, 0]
