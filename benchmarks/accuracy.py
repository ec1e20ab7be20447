"""How wrong TTFT and TPOT are, and what an event costs, against a service that knows the truth. Prints JSON.

    python benchmarks/accuracy.py            1 to 512 streams x two prompt lengths x two starts
    python benchmarks/accuracy.py --quick    less of each, below a minute
    python benchmarks/accuracy.py --streams 179 --prompts short --starts at-once --repeat 5

The service sends a token every 8 ms and its first one after 200 ms +- 20 %, whatever the load. TTFT error is
the record's TTFT less the service's own (first bytes of the request read to first token written): the way there,
the way back and the client's delay are all in it, and how late the service noticed the request. The stamp's error
leaves that last part out: it counts from the client's sending. `server_lateness_below_ms`: how late tokens came.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from against_truth import PROMPTS, TPOT_MS, TTFT_MS, Load, Measured, figures, machine, median, pd_locust, run

_LOADED_S = 6.0
_QUICK_LOADED_S = 2.5


def main() -> int:
    options = _parser().parse_args()
    loads = [
        Load(streams, _rounds(options), options.tokens, tier, start == "at-once")
        for streams in options.streams
        for tier in options.prompts
        for start in options.starts
    ]
    before = machine()
    cases = []
    for load in loads:
        runs = [run(pd_locust, load, undisturbed=options.undisturbed) for _ in range(options.repeat)]
        cases.append(_case(load, runs))
        print(_line(cases[-1]), file=sys.stderr)
    document = {
        "service": {"ttft_ms": TTFT_MS, "tpot_ms": TPOT_MS, "output_tokens": options.tokens},
        "undisturbed": options.undisturbed,
        "machine_before": before,
        "machine_after": machine(),
        "cases": cases,
    }
    print(json.dumps(document, indent=2))
    return 0


def _rounds(options: argparse.Namespace) -> int:
    e2e_s = (TTFT_MS + TPOT_MS * options.tokens) / 1000
    return max(2, round((_QUICK_LOADED_S if options.quick else _LOADED_S) / e2e_s))


def _case(load: Load, runs: list[Measured]) -> dict[str, Any]:
    """Several runs of one case: each in full, and the medians that are worth quoting."""

    def medians(errors: list[dict[str, float | None]]) -> dict[str, float]:
        return {
            name: round(median([error[name] or 0.0 for error in errors]), 3)
            for name in ("mean", "p50", "p95", "p99")
        }

    return {
        "streams": load.streams,
        "prompt_tokens": PROMPTS[load.tier],
        "start": "at once" if load.at_once else "spread",
        "median": {
            "ttft_error_ms": medians([figures(measured.ttft_errors_ms()) for measured in runs]),
            "stamp_error_ms": medians([figures(measured.stamp_errors_ms()) for measured in runs]),
            "tpot_error_percent_p50": round(
                median([figures(measured.tpot_errors(), 8)["p50"] or 0.0 for measured in runs]) * 100, 4
            ),
            "client_us_per_event": round(median([measured.us_per_event for measured in runs]), 2),
            "client_cpu_share": round(median([one.client_cpu_s / one.seconds for one in runs]), 3),
        },
        "runs": [measured.to_json() | _own(measured) for measured in runs],
    }


def _own(measured: Measured) -> dict[str, Any]:
    """Return what our records say of the client itself, and the first wave apart from the rest."""
    lags_ms = [float(row["loop_lag_ms"]) for row in measured.rows if row["loop_lag_ms"]]
    waves = [
        error
        for row, error in zip(measured.rows, measured.ttft_errors_ms(), strict=True)
        if row["part"] == "wave"
    ]
    return {"loop_lag_ms": figures(lags_ms), "ttft_error_ms_first_wave": figures(waves)}


def _line(case: dict[str, Any]) -> str:
    seen = case["median"]
    error, stamp = seen["ttft_error_ms"], seen["stamp_error_ms"]
    return (
        f"{case['streams']:4} streams, {case['prompt_tokens']:6} prompt tokens, {case['start']:7}: TTFT error "
        f"p50 {error['p50']:.2f}, p95 {error['p95']:.2f}, p99 {error['p99']:.2f} ms; its stamp's "
        f"{stamp['p50']:.3f}, {stamp['p95']:.3f}, {stamp['p99']:.3f} ms; TPOT "
        f"{seen['tpot_error_percent_p50']:.3f} %; {seen['client_us_per_event']:.1f} us an event, "
        f"{seen['client_cpu_share'] * 100:.0f} % of a core"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", 1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--streams", type=int, nargs="+", help="concurrent streams")
    add("--prompts", nargs="+", choices=list(PROMPTS), help="prompt lengths, by tier")
    add("--starts", nargs="+", choices=["at-once", "spread"], help="how users begin")
    add("--tokens", type=int, default=128, help="output tokens a request")
    add("--repeat", type=int, default=1, help="runs of each case")
    add(
        "--undisturbed",
        action="store_true",
        help="both processes go before all others, and no core sleeps (root): as on a quiet machine",
    )
    add("--quick", action="store_true", help="two cases only, below a minute")
    parser.set_defaults(streams=[1, 64, 179, 256, 512], prompts=list(PROMPTS), starts=["at-once", "spread"])
    if "--quick" in sys.argv:
        parser.set_defaults(streams=[1, 179], prompts=["short"], starts=["at-once", "spread"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
