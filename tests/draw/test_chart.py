import math

import pytest

from pd_locust.draw.chart import Axis
from pd_locust.draw.svg import number


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([50, 330, 480], [0, 100, 200, 300, 400, 500]),
        ([6.4, 13.6], [0, 2, 4, 6, 8, 10, 12, 14]),
        ([0], [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ([], [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ([500], [0, 100, 200, 300, 400, 500]),
    ],
)
def test_a_linear_axis_begins_at_zero_and_ends_at_a_round_number(values, ticks):
    assert Axis.over(values).ticks == pytest.approx(ticks)


def test_values_that_spread_far_get_a_logarithmic_axis():
    axis = Axis.over([48, 1600])

    assert axis.ticks == pytest.approx([20, 50, 100, 200, 500, 1000, 2000])
    assert axis.share(20) == 0
    assert axis.share(200) == pytest.approx(0.5)
    assert axis.share(2000) == 1


def test_a_logarithmic_axis_over_many_decades_shows_decades_only():
    assert Axis.over([0.01, 100_000]).ticks == pytest.approx([10.0**n for n in range(-2, 6)])


def test_nothing_infinite_moves_an_axis():
    assert Axis.over([100, math.inf]).high == 100


def test_ticks_have_no_more_digits_than_they_need():
    assert [number(tick) for tick in (0, 0.5, 20, 10_000, 0.01)] == ["0", "0.5", "20", "10,000", "0.01"]
