import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pd_sim.linear_service import LinearService
from pd_sim.pd_service import PdService
from pd_sim.profiles import LINEAR, QWEN, PdProfile
from pd_sim.service import Job

# Round numbers, so that every time below can be worked out in the head: prefill 10 ms + 10 us a token,
# transfer 1 ms + 10 us a token (1,250 bytes at 1 Gb/s), a decode step 2 ms + 1 ms a request.
PLAIN = PdProfile(
    name="plain",
    prefill_instances=1,
    decode_instances=1,
    routing_ms=5.0,
    prefill_curve_ms=((0, 10.0), (1000, 20.0)),
    prefill_budget_tokens=1000,
    cached_token_us=1.0,
    cache_block_tokens=100,
    cache_capacity_tokens=1000,
    kv_bytes_per_token=1250,
    kv_state_bytes=125_000,
    kv_link_gbit_s=1.0,
    step_base_ms=2.0,
    step_per_request_ms=1.0,
    step_per_kilotoken_ms=0.0,
    decode_max_batch=2,
    decode_kv_capacity_tokens=10_000,
    kv_block_tokens=100,
    kv_state_tokens=50,
    max_model_len_tokens=8000,
)


def varied(**changes):
    fields = {name: getattr(PLAIN, name) for name in PdProfile.__slots__}
    return PdProfile(**{**fields, **changes})


def run(service, arrivals=()):
    """Feed (second, job) in order, run dry, and return {key: [due time in ms of each token]}."""
    due_ms = {}
    pending = sorted(arrivals, key=lambda arrival: arrival[0])
    while pending or service.next_event_s() is not None:
        next_s = service.next_event_s()
        if pending and (next_s is None or pending[0][0] <= next_s):
            service.arrive(*pending.pop(0))
            continue
        for emission in service.advance(next_s):
            due_ms.setdefault(emission.key, []).extend([emission.due_s * 1000] * emission.tokens)
    return due_ms


def first_ms(due_ms):
    return {key: pytest.approx(times[0]) for key, times in due_ms.items()}


def test_one_prompt_waits_for_routing_prefill_transfer_and_one_decode_step():
    tokens = run(PdService(PLAIN), [(0.0, Job(1, 200, 3))])
    # 5 + (10 + 2) + (1 + 2) + 3, then a step of 3 ms a token.
    assert tokens[1] == pytest.approx([23, 26, 29])


def test_transfer_time_is_bytes_over_bandwidth():
    assert PLAIN.transfer_ms(200) == pytest.approx(3.0)
    # 20,890 tokens x 32 KiB + 50 MB = 734.5 MB; at 400 Gb/s 14.7 ms.
    assert QWEN.transfer_ms(20_890) == pytest.approx(14.69, abs=0.01)


def test_a_prompt_that_comes_during_a_step_waits_for_its_end():
    tokens = run(PdService(PLAIN), [(0.0, Job(1, 200, 1)), (0.001, Job(2, 200, 1))])
    # The first step ends at 5 + 12 = 17, the second at 29; then 3 ms of transfer and 3 of decode.
    assert first_ms(tokens) == {1: 23, 2: 35}


def test_prompts_that_wait_together_share_one_step():
    tokens = run(PdService(PLAIN), [(0.0, Job(1, 200, 1)), (0.001, Job(2, 200, 1)), (0.002, Job(3, 300, 1))])
    # Step of 200 to 17, step of 500 to 32; transfers one after the other to 35 and 39.
    assert first_ms(tokens) == {1: 23, 2: 38, 3: 42}


def test_a_prompt_longer_than_the_budget_runs_in_chunks():
    tokens = run(PdService(PLAIN), [(0.0, Job(1, 1500, 1))])
    # 5 + 20 + 15 of prefill, 1 + 15 of transfer, 3 of decode.
    assert first_ms(tokens) == {1: 59}


def test_the_end_of_a_long_prompt_shares_its_step_with_the_next_prompt():
    tokens = run(PdService(PLAIN), [(0.0, Job(1, 1500, 1)), (0.001, Job(2, 500, 1))])
    # Prefill 1000 to 25, 500 + 500 to 45; transfers of 16 and 6 ms in turn.
    assert first_ms(tokens) == {1: 64, 2: 70}


def test_prompts_go_to_the_prefill_instance_with_least_work():
    two = varied(prefill_instances=2, decode_instances=2)
    tokens = run(PdService(two), [(0.0, Job(1, 900, 1)), (0.001, Job(2, 200, 1))])
    assert first_ms(tokens) == {1: 5 + 19 + 10 + 3, 2: 1 + 23}


def test_a_decode_step_grows_with_the_batch():
    tokens = run(PdService(PLAIN), [(0.0, Job(1, 200, 6)), (0.001, Job(2, 190, 2))])
    # Prefill of job 1 to 17, of job 2 to 28.9; KV at 20 and 31.8. Job 1 decodes alone to 23 26 29 32, then
    # both share two steps of 4 ms.
    assert tokens[1] == pytest.approx([23, 26, 29, 32, 36, 40])
    assert tokens[2] == pytest.approx([36, 40])


def test_a_decode_step_grows_with_the_context():
    tokens = run(PdService(varied(step_per_kilotoken_ms=1.0)), [(0.0, Job(1, 1000, 3))])
    # 5 + 20 + 11 = 36, then 3 + 1.000, 3 + 1.001 and 3 + 1.002.
    assert tokens[1] == pytest.approx([40, 44.001, 48.003])


def test_a_full_decode_batch_makes_the_next_request_wait():
    jobs = [(0.0, Job(key, 10, 20)) for key in (1, 2, 3)]
    tokens = run(PdService(PLAIN), jobs)
    # The third is let in when the first ends: 1.1 ms of transfer, the step under way and its own step.
    assert tokens[3][0] > tokens[1][-1]
    assert tokens[3][0] < tokens[1][-1] + 1.1 + 4 + 4


def test_a_request_waits_for_kv_space_though_the_batch_has_room():
    # Each request holds 200 + 20 -> 300, and 50 for its state; 600 hold one.
    jobs = [(0.0, Job(key, 200, 20)) for key in (1, 2)]
    tokens = run(PdService(varied(decode_kv_capacity_tokens=600)), jobs)
    assert tokens[2][0] == pytest.approx(tokens[1][-1] + 3 + 3)


def test_a_request_that_can_never_fit_is_refused_with_both_sizes():
    with pytest.raises(ValueError, match="needs 10150 tokens of KV space of 10000"):
        PdService(PLAIN).arrive(0.0, Job(1, 10_000, 100))


def test_a_known_prefix_saves_prefill_but_not_transfer():
    service = PdService(PLAIN, prefix_cache=True)
    prompt = tuple(range(5))
    tokens = run(service, [(0.0, Job(1, 550, 1, prompt)), (1.0, Job(2, 550, 1, prompt))])
    assert tokens[1] == pytest.approx([5 + 15.5 + 6.5 + 3])
    # 50 tokens to compute, 500 to look up at 1 us.
    assert tokens[2] == pytest.approx([1000 + 5 + 10.5 + 0.5 + 6.5 + 3])


def test_only_the_common_beginning_counts_as_cached():
    service = PdService(PLAIN, prefix_cache=True)
    run(service, [(0.0, Job(1, 500, 1, (1, 2, 3, 4, 5)))])
    service.arrive(1.0, Job(2, 500, 1, (1, 2, 30, 4, 5)))
    (emission,) = service.advance(2.0)
    assert emission.cached_tokens == 200


def test_the_last_prompt_token_is_always_computed():
    service = PdService(PLAIN, prefix_cache=True)
    run(service, [(0.0, Job(1, 500, 1, (1, 2, 3, 4, 5)))])
    service.arrive(1.0, Job(2, 500, 1, (1, 2, 3, 4, 5)))
    (emission,) = service.advance(2.0)
    assert emission.cached_tokens == 499


def test_the_least_recently_used_prompt_leaves_a_full_cache():
    service = PdService(PLAIN, prefix_cache=True)
    old, new = tuple(range(6)), tuple(range(10, 16))
    run(service, [(0.0, Job(1, 600, 1, old)), (1.0, Job(2, 600, 1, new))])
    service.arrive(2.0, Job(3, 600, 1, old))
    service.arrive(3.0, Job(4, 600, 1, new))
    # Ten blocks fit: all six of `new` and the first four of `old`; taking `old` in again drops two of `new`.
    assert [emission.cached_tokens for emission in service.advance(9.0)] == [400, 400]


def test_a_late_caller_changes_nothing_but_when_it_hears():
    jobs = [(0.0, Job(1, 200, 5)), (0.001, Job(2, 300, 5))]
    punctual = run(PdService(PLAIN), jobs)
    service = PdService(PLAIN)
    for job in jobs:
        service.arrive(*job)
    late = {}
    for emission in service.advance(10.0):
        late.setdefault(emission.key, []).append(emission.due_s * 1000)
    assert late == punctual


def test_the_same_seed_gives_the_same_jitter_and_another_seed_another():
    def first(seed):
        return run(PdService(PLAIN, jitter_ratio=0.2, seed=seed), [(0.0, Job(1, 200, 3))])[1]

    assert first(1) == first(1)
    assert first(1) != first(2)
    assert first(1)[-1] == pytest.approx(29, rel=0.2)


def test_without_every_token_the_first_and_the_last_keep_their_times():
    jobs = [(0.0, Job(1, 200, 6)), (0.0, Job(2, 200, 2)), (0.5, Job(3, 10, 1))]
    every, ends = run(PdService(PLAIN), jobs), run(PdService(PLAIN, every_token=False), jobs)
    assert {key: (len(t), t[0], t[-1]) for key, t in every.items()} == {
        key: (len(t), t[0], t[-1]) for key, t in ends.items()
    }


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 0.2), st.integers(1, 2500), st.integers(1, 40), st.none() | st.floats(0.0, 0.3)
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_job_gets_all_its_tokens_or_is_cancelled_and_nothing_stays_held(plans):
    service = PdService(varied(prefill_instances=2, decode_instances=2, decode_kv_capacity_tokens=4000))
    moments = [(plan[0], 0, key) for key, plan in enumerate(plans)]
    moments += [(plan[0] + plan[3], 1, key) for key, plan in enumerate(plans) if plan[3] is not None]
    seen = dict.fromkeys(range(len(plans)), 0)
    cancelled, ended = set(), set()

    def take(emissions):
        for emission in emissions:
            assert emission.key not in cancelled | ended
            seen[emission.key] += emission.tokens
            if emission.final:
                ended.add(emission.key)

    for now_s, kind, key in sorted(moments):
        take(service.advance(now_s))
        if kind == 0:
            service.arrive(now_s, Job(key, plans[key][1], plans[key][2]))
        elif key not in ended:
            service.cancel(now_s, key)
            cancelled.add(key)
    take(service.advance(math.inf))
    assert cancelled | ended == set(seen)
    assert all(seen[key] == plans[key][2] for key in ended)
    assert (service.running, service.waiting, service.kv_usage_ratio) == (0, 0, 0.0)
    assert all(prefill.load_tokens == 0 for prefill in service._prefills)
    assert all(
        (one.assigned_tokens, one.context_tokens, one.held_slots) == (0, 0, 0) for one in service._decodes
    )


def test_cancelling_a_running_job_lets_a_waiting_one_in():
    service = PdService(varied(decode_max_batch=1))
    service.arrive(0.0, Job(1, 200, 1000))
    service.arrive(0.0, Job(2, 200, 1))
    service.advance(0.1)
    assert (service.running, service.waiting) == (1, 1)
    service.cancel(0.1, 1)
    assert (service.running, service.waiting) == (1, 0)
    # 3 ms of transfer, at most 3 of the step under way and 3 of its own.
    assert [emission.key for emission in service.advance(0.109)] == [2]


def test_linear_ttft_is_twenty_plus_ten_per_request_in_flight():
    tokens = run(
        LinearService(LINEAR), [(0.0, Job(1, 16, 3)), (0.001, Job(2, 16, 2)), (0.002, Job(3, 16, 1))]
    )
    assert tokens[1] == pytest.approx([30, 40, 50])
    assert tokens[2] == pytest.approx([41, 51])
    assert tokens[3] == pytest.approx([52])


def test_linear_forgets_a_cancelled_job():
    service = LinearService(LINEAR)
    service.arrive(0.0, Job(1, 16, 3))
    service.cancel(0.01, 1)
    service.arrive(0.01, Job(2, 16, 1))
    assert [(emission.key, emission.final) for emission in service.advance(1.0)] == [(2, True)]
    assert service.next_event_s() is None
