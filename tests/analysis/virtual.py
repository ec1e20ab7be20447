"""Records of runs that the oracle plays in virtual time, as PREFIX_requests.csv and PREFIX_run.json."""

import csv
import json
from dataclasses import replace

from pd_locust.record import COLUMNS, RECORD_VERSION
from pd_sim.oracle import closed_loop
from pd_sim.profiles import QWEN

PROMPT_TOKENS = {"short": 16, "medium": 850, "long": 6330}
MAX_TOKENS = 32
START_S = 1_790_000_000


def slower(share):
    """The same deployment with every step, and the way to it, longer by this share."""
    by = 1 + share
    return replace(
        QWEN,
        routing_ms=QWEN.routing_ms * by,
        prefill_curve_ms=tuple((tokens, ms * by) for tokens, ms in QWEN.prefill_curve_ms),
        step_base_ms=QWEN.step_base_ms * by,
        step_per_request_ms=QWEN.step_per_request_ms * by,
        step_per_kilotoken_ms=QWEN.step_per_kilotoken_ms * by,
    )


def write_run(prefix, phases, *, profile=QWEN, seed=0, max_tokens=MAX_TOKENS, **document):
    """Write the files of a run; phases are (phase, tier, users, requests), held one after the other."""
    rows, at_s = [], START_S
    for place, (phase, tier, users, requests) in enumerate(phases):
        outcomes = sorted(
            closed_loop(
                profile,
                users,
                PROMPT_TOKENS[tier],
                max_tokens,
                requests,
                seed=1000 * seed + place,
                jitter_ratio=0.1,
            )
        )
        first_s = outcomes[0].start_s
        rows += [_row(outcome, at_s - first_s, (phase, tier, users), max_tokens) for outcome in outcomes]
        at_s += outcomes[-1].start_s - first_s + 10
    with prefix.with_name(f"{prefix.name}_requests.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([[row.get(name) for name in COLUMNS] for row in rows])
    tiers = [
        {"name": name, "prompt_tokens": tokens, "max_tokens": max_tokens}
        for name, tokens in PROMPT_TOKENS.items()
    ]
    run = {"format": 1, "tiers": tiers, "labels": {"pairs": "8"}, **document}
    prefix.with_name(f"{prefix.name}_run.json").write_text(json.dumps(run))
    return prefix


def sweep(tier, *levels):
    """Levels as (users, requests)."""
    return [(f"sweep/{tier}/{users}", tier, users, requests) for users, requests in levels]


SWEEP = sweep("short", (16, 400), (64, 1000), (96, 960), (400, 2400))
"""96 users are the capacity, 400 fail, and 64 are below the knee."""


def _row(outcome, offset_s, level, max_tokens):
    phase, tier, users = level
    return {
        "v": RECORD_VERSION,
        "request_id": f"{phase}-{outcome.start_s}",
        "run": 1,
        "phase": phase,
        "tier": tier,
        "users": users,
        "part": "sample",
        "worker": 0,
        "user": 0,
        "sent_unix_us": round((outcome.start_s + offset_s) * 1e6),
        "in_flight": users,
        "reconnected": 0,
        "status": 200,
        "outcome": "success",
        "ttft_ms": round(outcome.ttft_ms, 3),
        "ttfo_ms": round(outcome.ttft_ms, 3),
        "tpot_ms": round(outcome.tpot_ms, 6),
        "itl_p99_ms": round(2 * outcome.tpot_ms, 3),
        "e2e_ms": round(outcome.e2e_ms, 3),
        "prompt_tokens": PROMPT_TOKENS[tier],
        "cached_tokens": 0,
        "output_tokens": max_tokens,
        "tokens_source": "usage",
        "text_chunks": max_tokens,
        "finish_reason": "length",
        "buffered": 0,
        "reads": max_tokens,
        "body_bytes": 12_000,
    }
