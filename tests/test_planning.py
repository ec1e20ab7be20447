from dataclasses import replace
from types import SimpleNamespace

import pytest

from pd_locust.capacity import capacity_row
from pd_locust.errors import ConfigError
from pd_locust.planning import parse_rates, plan
from pd_locust.plateau import Plateau
from pd_locust.slo import DEFAULT_SLO


def level(tier, users, ttft_ms, tpot_ms, output_tokens):
    fields = dict.fromkeys(
        ("ttfo_ms", "ttst_ms", "itl_p99_ms", "e2e_ms", "prompt_tokens", "cached_tokens"), None
    )
    fields |= {"part": "sample", "outcome": "success", "tokens_source": "usage", "buffered": False}
    fields |= {
        "loop_lag_ms": None,
        "client_cpu_share": None,
        "worker": 0,
        "text_chunks": 8,
        "reads": 9,
        "reconnected": False,
    }
    rows = [
        SimpleNamespace(
            **fields, sent_unix_us=n, ttft_ms=ttft_ms, tpot_ms=tpot_ms, output_tokens=output_tokens
        )
        for n in range(100)
    ]
    return Plateau.of(rows, phase=f"sweep/{tier}/{users}", tier=tier, users=users)


def capacity(tier, users, ttft_ms, tpot_ms, output_tokens, *, failed_at=None):
    levels = [level(tier, users, ttft_ms, tpot_ms, output_tokens)]
    if failed_at:
        levels.append(level(tier, failed_at, 900, tpot_ms, output_tokens))
    return capacity_row(tier, levels, DEFAULT_SLO)


# 0.5 s + 250 x 10 ms = 3 s a request: 100 users are 33.3 requests/s.
SHORT = capacity("short", 100, 500, 10, 251, failed_at=110)
# 0.4 s + 160 x 10 ms = 2 s a request: 40 users are 20 requests/s.
LONG = capacity("long", 40, 400, 10, 161)


def test_a_tier_carries_its_users_divided_by_the_time_of_a_request():
    (tier,) = plan([SHORT], {"short": 10}, headroom=0).tiers

    assert tier.requests_per_s == pytest.approx(100 / 3)
    assert tier.share == pytest.approx(0.3)
    assert tier.users_in_flight == pytest.approx(30)


def test_a_mix_adds_the_shares_of_its_tiers_and_keeps_the_headroom_free():
    planned = plan([SHORT, LONG], {"short": 10, "long": 5}, headroom=0.2, pairs=8)

    # 0.3 + 0.25 of 8 pairs, of which 80 % may be used: 5.5 pairs.
    assert planned.share == pytest.approx(0.55)
    assert (planned.pairs_needed, planned.pairs_with_spare) == (6, 7)


def test_a_mix_that_fills_a_pair_exactly_needs_no_second_one():
    assert plan([LONG], {"long": 16}, headroom=0.2).pairs_needed == 1
    assert plan([LONG], {"long": 16.1}, headroom=0.2).pairs_needed == 2


def test_the_smallest_rate_needs_a_pair():
    assert plan([LONG], {"long": 0.001}, headroom=0.2, pairs=8).pairs_needed == 1


def test_a_capacity_without_a_failed_level_is_at_least_that():
    planned = plan([SHORT, LONG], {"short": 1, "long": 1}, headroom=0.2)

    assert [tier.at_least for tier in planned.tiers] == [False, True]


def test_a_single_token_has_no_pace():
    (tier,) = plan([capacity("short", 10, 500, None, 1)], {"short": 1}, headroom=0).tiers

    assert tier.requests_per_s == pytest.approx(20)


def test_a_tier_without_capacity_is_refused_by_name():
    failed = capacity_row("xlong", [level("xlong", 1, 900, 10, 256)], DEFAULT_SLO)

    for rows in ([SHORT, failed], [SHORT]):
        with pytest.raises(
            ConfigError, match=r"--rate xlong: this run found no capacity .* capacity: short$"
        ):
            plan(rows, {"xlong": 1}, headroom=0.2)


def test_rates_are_read_by_tier():
    assert parse_rates("short=30,long=0.5") == {"short": 30, "long": 0.5}


@pytest.mark.parametrize(
    "text", ["", "short", "short=", "short=x", "short=-1", "short=0", "=3", "a=1,a=2", "a=inf"]
)
def test_rates_that_are_none_say_what_is_accepted(text):
    with pytest.raises(ConfigError, match=r"expected TIER=REQUESTS_PER_S"):
        parse_rates(text)


def test_a_tier_that_was_held_beside_others_is_no_basis_of_a_plan():
    with pytest.raises(ConfigError, match=r"^--rate short: other tiers were under load with it"):
        plan([replace(SHORT, alone=False)], {"short": 10}, headroom=0)
