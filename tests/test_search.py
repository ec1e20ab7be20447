from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_locust.search import (
    Bracket,
    CapacitySearch,
    Discarded,
    Found,
    GaveUp,
    Measured,
    NextLevel,
    disagreeing,
    not_monotone,
    settled,
)
from pd_locust.slo import Verdict

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE

# The limited statistic / its limit, at `users` of a service whose largest good level is `truth`.
LOAD_CURVES = {
    "unknown": lambda _users, _truth: None,
    "linear": lambda users, truth: (20 + 10 * users) / (25 + 10 * truth),
    "hockey stick": lambda users, truth: 0.1 + 0.9 * max(0.0, users - 0.97 * truth) / (0.03 * truth + 0.5),
    "step": lambda users, truth: 0.2 if users <= truth else 30.0,
    "concave": lambda users, truth: math.sqrt(users / (truth + 0.5)),
    "convex": lambda users, truth: (users / (truth + 0.5)) ** 4,
}


def run(search, answer, held=()):
    """Hold what the search asks for; `answer(users)` is what the hold says. The end and all holds."""
    held = list(held)
    while isinstance(step := search.next(held), NextLevel):
        held.append(answer(step.users))
        assert len(held) < 200, "the search does not end"
    return step, held


def monotone(truth, curve="linear"):
    load = LOAD_CURVES[curve]
    return lambda users: Measured(users, PASS if users <= truth else FAIL, load(users, truth))


def users_of(held):
    return [level.users for level in held]


def verdicts(*levels):
    """`(8, "P")`: 8 users passed; F failed, ? is inconclusive, v a discarded hold."""
    said = {"P": PASS, "F": FAIL, "?": OPEN, "v": OPEN}
    return [
        Measured(users, said[mark], discarded=Discarded.LATE if mark == "v" else None)
        for users, mark in levels
    ]


searches = st.builds(
    CapacitySearch, start=st.integers(1, 5000), max_users=st.integers(1, 4096), resolution=st.integers(1, 20)
)
curves = st.sampled_from(sorted(LOAD_CURVES))


def test_a_straight_line_to_48_users_takes_seven_levels():
    end, held = run(
        CapacitySearch(start=8), lambda users: Measured(users, PASS if users < 48 else OPEN, (2 + users) / 50)
    )
    assert users_of(held) == [8, 16, 32, 48, 47, 47, 48]
    assert end == Found(Bracket(47, 48), confirmed=True)


def test_a_failure_that_the_latency_does_not_explain_is_halved_not_guessed():
    held = [Measured(8, PASS, 0.2), Measured(16, FAIL, 0.3)]
    assert CapacitySearch(start=8).next(held) == NextLevel(12, "middle of the bracket")


def test_without_any_idea_of_the_curve_it_doubles_then_halves():
    end, held = run(CapacitySearch(start=8), monotone(48, "unknown"))
    assert users_of(held) == [8, 16, 32, 64, 48, 56, 52, 50, 49, 48, 49]
    assert end == Found(Bracket(48, 49), confirmed=True)


def test_a_start_above_the_capacity_halves():
    end, held = run(CapacitySearch(start=64), monotone(5, "unknown"))
    assert users_of(held) == [64, 32, 16, 8, 4, 6, 5, 5, 6]
    assert end.bracket == Bracket(5, 6)


def test_when_not_even_one_user_keeps_the_limit_it_gives_up_and_says_so():
    end, held = run(CapacitySearch(start=8), monotone(0))
    assert users_of(held) == [8, 4, 2, 1, 1]
    assert end == GaveUp(
        Bracket(None, 1), "with 1 in flight the limit is missed, and nothing smaller was found that keeps it"
    )


def test_when_nothing_can_be_judged_it_gives_up_and_says_so():
    end, _ = run(CapacitySearch(start=8), lambda users: Measured(users, OPEN))
    assert isinstance(end, GaveUp)
    assert end.why == "no level could be judged"


def test_a_service_that_carries_the_most_users_allowed_has_no_upper_end():
    end, held = run(CapacitySearch(start=8, max_users=100), monotone(10**6, "unknown"))
    assert users_of(held) == [8, 16, 32, 64, 100, 100]
    assert end == Found(Bracket(100, None), confirmed=True)


def test_a_start_beyond_the_most_users_allowed_is_cut_to_them():
    assert CapacitySearch(start=500, max_users=100).next([]) == NextLevel(100, "first level")


def test_from_a_hundred_users_on_one_per_cent_is_close_enough():
    end, _ = run(CapacitySearch(start=8), monotone(733, "unknown"))
    assert end.bracket == Bracket(732, 736)


@given(searches, st.integers(0, 5000), curves)
def test_the_answer_to_a_monotone_truth_is_within_the_resolution(search, truth, curve):
    end, _ = run(search, monotone(truth, curve))
    if truth == 0:
        assert isinstance(end, GaveUp)
        return
    assert isinstance(end, Found)
    assert end.confirmed
    low, high = end.bracket.low, end.bracket.high
    if truth >= search.max_users:
        assert (low, high) == (search.max_users, None)
    else:
        assert low <= truth < high
        assert high - low <= max(search.resolution, low // 100)


@given(searches, st.integers(0, 5000), curves)
def test_a_monotone_truth_takes_at_most_twice_the_binary_logarithm_and_four_levels(search, truth, curve):
    _, held = run(search, monotone(truth, curve))
    assert len(held) <= 2 * math.log2(max(2, search.max_users)) + 4
    assert max(users_of(held)) <= search.max_users
    assert min(users_of(held)) >= 1


def arbitrary(seed):
    """A service without any order: every hold says anything, as may its load."""
    noise = random.Random(seed)

    def answer(users):
        verdict = noise.choice([PASS, FAIL, OPEN])
        load = noise.choice([None, math.inf, noise.uniform(0, 3)])
        discarded = noise.choice([None, *Discarded]) if verdict is OPEN else None
        return Measured(users, verdict, load, discarded)

    return answer


@given(searches, st.integers())
def test_whatever_the_holds_say_it_ends_within_the_bound_and_the_answer_passed_whenever_it_was_judged(
    search, seed
):
    end, held = run(search, arbitrary(seed))
    assert len(held) <= 2 * math.log2(max(2, search.max_users)) + 4
    low, high = end.bracket.low, end.bracket.high
    if isinstance(end, Found):
        assert {level.verdict for level in held if level.users == low and level.discarded is None} == {PASS}
        assert high is None or low < high
    else:
        assert low is None
    if high is not None:
        assert {level.verdict for level in held if level.users == high and level.discarded is None} != {PASS}


@given(searches, st.integers())
def test_a_search_that_is_resumed_goes_on_as_if_it_had_not_stopped(search, seed):
    end, held = run(search, arbitrary(seed))
    for count, level in enumerate(held):
        assert search.next(held[:count]).users == level.users
    assert search.next(held) == end


@given(searches, st.integers(0, 5000), curves, st.data())
def test_an_inconclusive_level_never_raises_the_answer(search, truth, curve, data):
    _, held = run(search, monotone(truth, curve))
    fogged = data.draw(st.sets(st.sampled_from(sorted(set(users_of(held))))))
    clear = monotone(truth, curve)
    foggy_end, _ = run(search, lambda users: Measured(users, OPEN, 1.0) if users in fogged else clear(users))
    assert (foggy_end.bracket.low or 0) <= truth
    assert foggy_end.bracket.low not in fogged


def test_an_inconclusive_level_counts_as_not_passed():
    search = CapacitySearch(start=8)
    assert search.bracket(verdicts((8, "P"), (16, "?"))) == Bracket(8, 16)
    assert search.next(verdicts((8, "P"), (16, "?"))).users == 12


def test_holds_that_disagree_count_as_not_passed():
    search = CapacitySearch(start=8)
    for other in "F?":
        held = verdicts((8, "P"), (9, "P"), (10, "F"), (9, other))
        assert settled(held)[9] is OPEN
        assert search.bracket(held) == Bracket(8, 9)
    twice = verdicts((8, "P"), (9, "P"), (10, "F"), (9, "F"), (8, "P"), (9, "P"))
    assert search.next(twice) == Found(Bracket(8, 9), confirmed=True)


def test_a_level_that_passed_once_and_failed_once_is_named():
    assert disagreeing(verdicts((8, "P"), (9, "P"), (10, "F"), (9, "F"), (10, "?"))) == [9]
    assert disagreeing(verdicts((8, "P"), (9, "?"), (9, "P"), (8, "P"))) == []


def test_a_void_hold_decides_nothing_beside_one_that_is_not():
    assert settled(verdicts((8, "v"), (8, "P"), (9, "F"), (9, "v"), (10, "v"))) == {
        8: PASS,
        9: FAIL,
        10: OPEN,
    }


def test_a_hold_with_a_late_generator_that_looked_like_a_pass_is_repeated_at_once():
    search = CapacitySearch(start=8)
    passed, late = Measured(8, PASS, 0.2), Measured(16, OPEN, 0.4, Discarded.LATE)
    for times in range(1, 5):
        assert search.next([passed] + [late] * times).users == 16
    assert search.next([passed, late, Measured(16, PASS, 0.4)]).users == 32


def test_a_generator_that_is_always_late_ends_the_search_and_decides_nothing():
    end, held = run(
        CapacitySearch(start=8),
        lambda users: (
            Measured(users, PASS, 0.1) if users < 32 else Measured(users, OPEN, 0.4, Discarded.LATE)
        ),
    )
    assert users_of(held) == [8, 16] + [32] * 5
    why = "32 users could not be judged, the load generator was overloaded"
    assert end == Found(Bracket(16, 32), confirmed=False, why=why)


def test_a_level_that_time_is_too_short_for_ends_the_search_instead_of_halving():
    end, held = run(CapacitySearch(start=8), lambda users: Measured(users, OPEN, 0.1, Discarded.CUT_SHORT))
    assert users_of(held) == [8]
    why = "no level could be judged: 8 users could not be judged, the level ended before its sample was complete"
    assert end == GaveUp(Bracket(None, 8), why)


@pytest.mark.parametrize("load", [None, math.inf, 1.2])
def test_a_void_hold_that_did_not_look_like_a_pass_is_not_repeated_at_once(load):
    held = [Measured(8, PASS, 0.2), Measured(16, OPEN, load, Discarded.LATE)]
    assert 8 < CapacitySearch(start=8).next(held).users < 16


def test_a_void_hold_confirms_nothing():
    search = CapacitySearch(start=8)
    held = verdicts((8, "P"), (9, "F"), (8, "v"))
    assert search.next(held).users == 8
    held = verdicts((8, "P"), (9, "F"), (8, "v"), (8, "v"), (8, "v"), (8, "v"), (9, "F"))
    assert search.next(held) == Found(Bracket(8, 9), confirmed=False, why="8 users could not be judged twice")


def test_a_generator_that_is_late_now_and_then_does_not_change_the_answer():
    noise = random.Random("late")
    clear = monotone(48)

    def sometimes_late(users):
        late = noise.random() < 0.3
        return Measured(users, OPEN, clear(users).load, Discarded.LATE) if late else clear(users)

    answers = [run(CapacitySearch(start=8), sometimes_late)[0].bracket.low for _ in range(200)]
    assert answers.count(48) >= 195


@given(searches, st.integers())
def test_a_dip_that_was_held_is_reported(search, seed):
    _, held = run(search, arbitrary(seed))
    levels = settled(held)
    failed = [users for users, verdict in levels.items() if verdict is FAIL]
    passed = [users for users, verdict in levels.items() if verdict is PASS]
    dips = {(low, high) for low in failed for high in passed if low < high}
    assert bool(dips) == (not_monotone(held) is not None)
    assert not dips or not_monotone(held) in dips


def test_a_dip_among_resumed_levels_is_reported_and_the_answer_stays_below_it():
    swept = verdicts((16, "P"), (32, "F"), (64, "P"), (128, "F"))
    assert not_monotone(swept) == (32, 64)
    end, held = run(CapacitySearch(start=8), monotone(20, "unknown"), swept)
    assert end == Found(Bracket(20, 21), confirmed=True)
    assert users_of(held)[4:] == [24, 20, 22, 21, 20, 21]
    assert not_monotone(held) == (21, 64)


def test_levels_above_the_most_users_allowed_are_not_thought_of():
    held = verdicts((8, "P"), (512, "F"))
    assert CapacitySearch(start=8, max_users=100).next(held).users == 16


@given(searches, st.integers(0, 5000), curves)
def test_levels_left_at_most_is_never_too_small(search, truth, curve):
    _, held = run(search, monotone(truth, curve))
    for count in range(1, len(held)):
        assert search.most_left(held[:count]) >= len(held) - count
