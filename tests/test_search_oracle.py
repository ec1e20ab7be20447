"""The search against the simulated service's model in virtual time: is its answer the model's?

benchmarks/search_accuracy.py does the same with 200 seeds.
"""

from __future__ import annotations

import pytest
from virtual_search import TIERS, ModelService, search_in_virtual_time

from pd_locust.search import Bracket, Found
from pd_locust.slo import DEFAULT_SLO, Slo
from pd_sim.oracle import Limit, max_concurrency
from pd_sim.profiles import LINEAR, QWEN

SEEDS = 3
TOKENS = 64


@pytest.mark.parametrize("tier", TIERS)
def test_the_answer_is_the_models_within_two_users_or_three_per_cent(tier):
    prompt_tokens = TIERS[tier]
    limit = Limit("ttft", "mean", 500.0)
    truth, _ = max_concurrency(QWEN, prompt_tokens, TOKENS, limit, jitter_ratio=0.3, turns=12)
    for seed in range(SEEDS):
        service = ModelService(QWEN, prompt_tokens, TOKENS, jitter_ratio=0.3, seed=seed)
        searched = search_in_virtual_time(service, DEFAULT_SLO)
        assert isinstance(searched.end, Found)
        assert searched.end.bracket.low == pytest.approx(truth, abs=max(2, 0.03 * truth))


def test_the_straight_line_to_48_users_is_found_exactly_and_in_eight_levels():
    searched = search_in_virtual_time(ModelService(LINEAR, 16, 64), DEFAULT_SLO)
    assert searched.end == Found(Bracket(48, 49), confirmed=True)
    assert [level.users for level in searched.levels] == [8, 16, 32, 48, 96, 49, 48, 49]


@pytest.mark.parametrize(
    ("limit", "oracle"),
    [
        ("ttft_p95<=500ms", Limit("ttft", "p95", 500.0)),
        ("tpot_mean<=8.5ms", Limit("tpot", "mean", 8.5)),
        ("e2e_p50<=1s", Limit("e2e", "p50", 1000.0)),
    ],
)
def test_other_limits_are_found_as_well(limit, oracle):
    truth, _ = max_concurrency(QWEN, 850, TOKENS, oracle, jitter_ratio=0.1, turns=16)
    searched = search_in_virtual_time(ModelService(QWEN, 850, TOKENS, jitter_ratio=0.1), Slo.parse(limit))
    assert searched.end.bracket.low == pytest.approx(truth, abs=max(3, 0.05 * truth))


def test_each_level_keeps_its_users_in_flight():
    for level in search_in_virtual_time(
        ModelService(QWEN, 850, TOKENS, jitter_ratio=0.1), DEFAULT_SLO
    ).levels:
        assert level.concurrency == pytest.approx(level.users, rel=0.02)
