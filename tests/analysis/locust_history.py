"""Write PREFIX_stats_history.csv with Locust's own writer, on a clock that the plan moves.

Usage: locust_history.py PREFIX < PLAN, where PLAN is JSON: {"percentiles": [0.5, ...], "full": bool, "start":
unix seconds, "seconds": [{"users": N, "anew": bool, "requests": [[tier, ttft_ms, tpot_ms, e2e_ms], ...]}]}.
A request whose ttft_ms is null failed. What ends in a second is written at its end.
"""

import json
import sys
from types import SimpleNamespace

from locust import stats


def main(prefix, plan):
    clock = SimpleNamespace(now=plan["start"])
    stats.time = SimpleNamespace(time=lambda: clock.now)
    runner = SimpleNamespace(user_count=0, exceptions={})
    environment = SimpleNamespace(stats=stats.RequestStats(use_response_times_cache=True), runner=runner)
    seconds = iter(plan["seconds"])

    def play_one_second(_):
        second = next(seconds, None)
        if second is None:
            raise KeyboardInterrupt
        if second.get("anew"):
            environment.stats.clear_all()
        runner.user_count = second["users"]
        for request in second.get("requests", ()):
            log(environment.stats, *request)
        clock.now += 1

    stats.gevent = SimpleNamespace(sleep=play_one_second)
    writer = stats.StatsCSVFileWriter(environment, plan["percentiles"], prefix, full_history=plan["full"])
    writer()
    writer.close_files()


def log(all_stats, tier, ttft_ms, tpot_ms, e2e_ms):
    all_stats.log_request("POST", tier, e2e_ms, 0)
    if ttft_ms is None:
        all_stats.log_error("POST", tier, "server_error")
        return
    # As pd_locust's load room does it: entries of their own that the Aggregated row does not count.
    all_stats.get(tier, "TTFT").log(ttft_ms, 0)
    all_stats.get(tier, "TPOT").log(tpot_ms, 0)


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin))
