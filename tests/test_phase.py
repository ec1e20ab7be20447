from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_locust.phase import Phase, PhaseKind, PhaseProgress, benchmark_phases, share_out
from pd_locust.record import Part

COUNT = Phase("count", PhaseKind.COUNT, users=2, requests=5)
LEVEL = Phase("level", PhaseKind.LEVEL, users=2, tier="short", requests=3)


def shares(requests, **users_by_worker):
    phase = Phase("count", PhaseKind.COUNT, requests=requests)
    return {worker: part.requests for worker, part in share_out(phase, users_by_worker).items()}


# Sharing out.


def test_requests_are_shared_out_in_proportion_to_users():
    assert shares(1000, a=32, b=32) == {"a": 500, "b": 500}
    assert shares(1000, a=48, b=16) == {"a": 750, "b": 250}


def test_what_does_not_divide_goes_to_the_largest_remainders():
    assert sorted(shares(10, a=1, b=1, c=1).values()) == [3, 3, 4]
    assert shares(10, a=5, b=3, c=1) == {"a": 6, "b": 3, "c": 1}  # 5.56, 3.33, 1.11
    assert shares(1000, a=22, b=21, c=21) == {"a": 344, "b": 328, "c": 328}  # 343.75, 328.125, 328.125


def test_a_worker_without_users_gets_nothing_to_do():
    assert shares(10, a=2, b=0) == {"a": 10}
    assert shares(10, a=0, b=0) == {}
    assert shares(10) == {}


def test_fewer_requests_than_workers_leave_some_with_none():
    assert sorted(shares(2, a=1, b=1, c=1).values()) == [0, 1, 1]


@given(st.integers(0, 100_000), st.dictionaries(st.text(max_size=4), st.integers(0, 500), max_size=12))
def test_the_shares_add_up_to_the_whole_and_none_is_off_by_more_than_one(requests, users_by_worker):
    parts = share_out(Phase("p", PhaseKind.COUNT, requests=requests), users_by_worker)
    total = sum(users_by_worker.values())
    assert sum(part.requests for part in parts.values()) == (requests if total else 0)
    assert set(parts) == {worker for worker, users in users_by_worker.items() if users}
    for worker, part in parts.items():
        assert abs(part.requests - requests * users_by_worker[worker] / total) < 1


def test_a_phase_survives_a_message():
    for phase in (COUNT, LEVEL, Phase("open", PhaseKind.OPEN, ramp_s=2.5)):
        assert Phase.from_message(json.loads(json.dumps(phase.to_message()))) == phase


# An exact count.


def test_a_count_admits_exactly_so_many_requests():
    progress = PhaseProgress(COUNT, users=2)
    admitted = [progress.admit(user) for user in "ababababab"]
    assert admitted == [
        Part.WAVE,
        Part.WAVE,
        Part.SAMPLE,
        Part.SAMPLE,
        Part.SAMPLE,
        None,
        None,
        None,
        None,
        None,
    ]
    assert progress.started == 5


def test_a_count_is_complete_when_all_have_finished_and_not_when_all_have_started():
    progress = PhaseProgress(COUNT, users=2)
    parts = [progress.admit("a") for _ in range(5)]
    for part in parts:
        assert not progress.complete
        progress.end("a", part)
    assert progress.complete


def test_a_count_of_nothing_is_complete_and_admits_nobody():
    progress = PhaseProgress(Phase("none", PhaseKind.COUNT), users=2)
    assert (progress.complete, progress.admit("a")) == (True, None)


def test_users_known_from_an_earlier_phase_are_no_first_wave():
    first = PhaseProgress(COUNT, users=2)
    first.admit("a")
    second = PhaseProgress(COUNT, users=2, known_users=first.known_users)
    assert [second.admit("a"), second.admit("b")] == [Part.SAMPLE, Part.WAVE]
    assert second.known_users == {"a", "b"}


# A level.


def test_a_level_settles_when_every_user_has_finished_a_request_started_at_it():
    progress = PhaseProgress(LEVEL, users=2, known_users=frozenset("ab"))
    assert progress.admit("a") is Part.SETTLING
    progress.end("a", Part.SETTLING)
    assert progress.admit("a") is Part.SETTLING  # b has not been heard of
    assert progress.admit("b") is Part.SETTLING
    progress.end("a", Part.SETTLING)
    assert not progress.settled
    progress.end("b", Part.SETTLING)
    assert progress.settled
    assert progress.admit("a") is Part.SAMPLE


def test_new_users_of_a_level_come_in_a_wave():
    progress = PhaseProgress(LEVEL, users=2, known_users=frozenset("a"))
    assert [progress.admit("a"), progress.admit("b")] == [Part.SETTLING, Part.WAVE]


def settled_level():
    progress = PhaseProgress(LEVEL, users=2, known_users=frozenset("ab"))
    for user in "ab":
        progress.end(user, progress.admit(user))
    return progress


def test_a_full_sample_is_followed_by_a_tail_that_keeps_the_load_up():
    progress = settled_level()
    assert [progress.admit(user) for user in "abab"] == [Part.SAMPLE, Part.SAMPLE, Part.SAMPLE, Part.TAIL]


def test_a_level_is_complete_when_every_sampled_request_has_ended():
    progress = settled_level()
    for user in "aba":
        progress.admit(user)
    progress.end("a", Part.SAMPLE)
    progress.end("b", Part.SAMPLE)
    assert not progress.complete
    progress.end("b", progress.admit("b"))  # the end of a request in the tail does not count for the sample
    assert not progress.complete
    progress.end("a", Part.SAMPLE)
    assert progress.complete


def test_a_level_is_not_complete_before_its_sample_is_full():
    progress = settled_level()
    progress.end("a", progress.admit("a"))
    assert not progress.complete


def test_a_sample_that_settled_nothing_can_be_extended():
    progress = settled_level()
    for user in "aba":
        progress.end(user, progress.admit(user))
    assert progress.complete
    progress.extend(4)
    assert not progress.complete
    assert [progress.admit("a"), progress.admit("b")] == [Part.SAMPLE, Part.TAIL]
    progress.end("a", Part.SAMPLE)
    assert progress.complete


# Open.


def test_an_open_phase_without_a_number_of_users_is_a_ramp_and_never_complete():
    progress = PhaseProgress(Phase("stream", PhaseKind.OPEN), users=2)
    assert [progress.admit("a"), progress.admit("a")] == [Part.WAVE, Part.RAMP]
    progress.end("a", Part.WAVE)
    progress.end("b", Part.RAMP)
    assert (progress.admit("a"), progress.complete) == (Part.RAMP, False)


def test_an_open_phase_samples_without_end_once_it_has_settled():
    progress = PhaseProgress(Phase("stream", PhaseKind.OPEN, users=1), users=1)
    assert progress.admit("a") is Part.WAVE
    progress.end("a", Part.WAVE)
    assert [progress.admit("a") for _ in range(50)] == [Part.SAMPLE] * 50
    assert not progress.complete


# The benchmark.


def benchmark(**changes):
    given_options = {
        "tiers": ["short", "medium"],
        "single_requests": 5,
        "concurrency": 64,
        "concurrency_tier": "medium",
        "concurrency_requests": 1000,
        "sweep_tiers": ["short"],
        "levels": [179, 64, 64],
        "level_requests": 200,
    }
    return benchmark_phases(**given_options | changes)


def test_the_benchmark_is_single_streams_then_a_fixed_concurrency_then_a_sweep_upwards():
    assert [(phase.name, phase.kind, phase.users, phase.tier, phase.requests) for phase in benchmark()] == [
        ("single/short", "count", 1, "short", 5),
        ("single/medium", "count", 1, "medium", 5),
        ("concurrency/medium/64", "count", 64, "medium", 1000),
        ("sweep/short/64", "level", 64, "short", 256),
        ("sweep/short/179", "level", 179, "short", 716),
    ]


@pytest.mark.parametrize(
    ("left_out", "names"),
    [
        ({"single_requests": 0, "levels": []}, ["concurrency/medium/64"]),
        ({"concurrency_requests": 0, "sweep_tiers": []}, ["single/short", "single/medium"]),
    ],
)
def test_a_part_of_the_benchmark_can_be_left_out(left_out, names):
    assert [phase.name for phase in benchmark(**left_out)] == names
