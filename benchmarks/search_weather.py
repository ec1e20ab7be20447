"""The capacity search against services that are noisy, drift, stall or shed load, in virtual time. Prints JSON.

    python benchmarks/search_weather.py [SEEDS] [--only WORD ...] [--processes N]

Every seed is one search under `ttft_mean<=500ms` of a service whose capacity is known: TTFT is 20 ms and 10 ms more for
each request in flight, unless the name says otherwise; 64 output tokens take 640 ms. An answer is right if it is at
most max(2 users, 5 %) from the truth. `honest` are the answers that are right, not confirmed, or marked as not steady;
`confirmed_wrong` those that are wrong and claim to be confirmed.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import random
import sys
from collections import Counter
from multiprocessing import Pool
from pathlib import Path
from statistics import NormalDist, fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from pd_locust.search import Found
from pd_locust.slo import Slo

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from virtual_search import Ended, search_in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable

MEAN = Slo.parse("ttft_mean<=500ms")
TOKENS = 64
_DECODE_S = 0.64
_RIGHT_USERS, _RIGHT_SHARE = 2, 0.05


def _linear(in_flight: int) -> float:
    return 20.0 + 10.0 * in_flight


class WeatherService:
    """TTFT = `ttft_ms(in flight)` x a factor of the request x a factor of the time, from the moment of arrival.

    `frozen` is (every, for) seconds in which nothing moves; `most` requests in flight at most, others fail at once;
    `overload` is (requests in flight, factor, seconds): beyond them TTFT is longer until so long after.
    """

    tokens = TOKENS

    def __init__(
        self,
        seed: int,
        *,
        ttft_ms: Callable[[int], float] = _linear,
        noise: Callable[[random.Random], float] = lambda _rng: 1.0,
        factor: Callable[[float], float] = lambda _now_s: 1.0,
        extra_s: Callable[[random.Random], float] = lambda _rng: 0.0,
        decode_s: float = _DECODE_S,
        frozen: tuple[float, float] | None = None,
        most: int | None = None,
        fail_share: float = 0.0,
        outage_s: tuple[float, float] | None = None,
        overload: tuple[int, float, float] | None = None,
    ) -> None:
        self._rng = random.Random(f"service {seed}")  # noqa: S311 - repeatable, not secret
        self._ttft_ms, self._noise, self._factor, self._extra_s = ttft_ms, noise, factor, extra_s
        self._decode_s, self._frozen, self._most = decode_s, frozen, most
        self._fail_share, self._outage_s, self._overload = fail_share, outage_s, overload
        self._phase_s = self._rng.random() * frozen[0] if frozen else 0.0
        self._slow_until_s = -math.inf
        self._due: list[tuple[float, int, float | None]] = []

    def begin_level(self, now_s: float) -> None:
        """Nothing changes: the weather goes on."""

    def arrive(self, now_s: float, user: int, in_flight: int) -> None:
        """Fix when the request's first and last token come, or that it fails."""
        rng = self._rng
        refused = self._most is not None and in_flight > self._most
        down = self._outage_s is not None and self._outage_s[0] <= now_s < self._outage_s[1]
        if refused or down or (self._fail_share and rng.random() < self._fail_share):
            heapq.heappush(self._due, (now_s + (0.002 if refused else 0.05), user, None))
            return
        ttft_s = self._ttft_ms(in_flight) / 1e3 * self._noise(rng) * self._factor(now_s) + self._extra_s(rng)
        if self._overload is not None:
            knee, slower, for_s = self._overload
            if in_flight > knee:
                self._slow_until_s = now_s + for_s
            ttft_s *= slower if now_s < self._slow_until_s else 1.0
        first_s = self._thaw(now_s, now_s + ttft_s)
        heapq.heappush(self._due, (self._thaw(first_s, first_s + self._decode_s), user, first_s))

    def _thaw(self, start_s: float, end_s: float) -> float:
        """Put off the end by every freeze that comes in between."""
        if self._frozen is None:
            return end_s
        every_s, for_s = self._frozen
        number = math.floor((start_s - self._phase_s) / every_s)
        while (begin_s := self._phase_s + number * every_s) < end_s:
            end_s += max(0.0, begin_s + for_s - max(start_s, begin_s))
            number += 1
        return end_s

    def next_event_s(self) -> float | None:
        """When the next request ends."""
        return self._due[0][0] if self._due else None

    def advance(self, now_s: float) -> list[Ended]:
        """Return the requests that have ended."""
        ended = []
        while self._due and self._due[0][0] <= now_s:
            end_s, user, first_s = heapq.heappop(self._due)
            ended.append(Ended(user, first_s, end_s))
        return ended


def lognormal(sigma: float) -> Callable[[random.Random], float]:
    """Factor with mean 1."""
    return lambda rng: math.exp(rng.gauss(0, sigma) - sigma * sigma / 2)


class Modulation:
    """Ornstein-Uhlenbeck process: a factor with mean 1 that forgets itself in `tau_s`."""

    def __init__(self, deviation: float, tau_s: float, seed: int) -> None:
        self._deviation, self._tau_s = deviation, tau_s
        self._rng = random.Random(f"modulation {seed}")  # noqa: S311
        self._value, self._at = self._rng.gauss(0, 1), 0

    def __call__(self, now_s: float) -> float:
        """Factor at a time that never falls, in steps of a quarter of a second."""
        steps = int(now_s / 0.25) - self._at
        if steps > 0:
            kept = math.exp(-steps * 0.25 / self._tau_s)
            self._value = kept * self._value + math.sqrt(1 - kept * kept) * self._rng.gauss(0, 1)
            self._at += steps
        return math.exp(self._deviation * self._value - self._deviation**2 / 2)


class Switching:
    """Two states of mean duration `dwell_s`."""

    def __init__(self, low: float, high: float, dwell_s: float, seed: int) -> None:
        self._factors, self._dwell_s = (low, high), dwell_s
        self._rng = random.Random(f"switching {seed}")  # noqa: S311
        self._state = self._rng.random() < 0.5
        self._until_s = self._rng.expovariate(1 / dwell_s)

    def __call__(self, now_s: float) -> float:
        """Factor at a time that never falls."""
        while now_s >= self._until_s:
            self._state = not self._state
            self._until_s += self._rng.expovariate(1 / self._dwell_s)
        return self._factors[self._state]


class Case(NamedTuple):
    """The answer is right from `truth[0]` to `truth[1]`, give or take what is allowed."""

    truth: tuple[int, int]
    service: Callable[[int], WeatherService]
    slo: Slo = MEAN


def case(truth: int | tuple[int, int], slo: Slo = MEAN, **service: Any) -> Case:
    """A case whose service is the same for every seed but for its randomness."""
    both = truth if isinstance(truth, tuple) else (truth, truth)
    return Case(both, lambda seed: WeatherService(seed, **service), slo)


_P95 = math.floor((800 / math.exp(NormalDist().inv_cdf(0.95) * 0.3 - 0.045) - 20) / 10)
_NOISY = {"noise": lognormal(0.3)}
CASES = {
    "20+10N, lognormal noise s=.3": case(48, **_NOISY),
    "20+10N, lognormal noise s=1": case(48, noise=lognormal(1)),
    "450+0.5N, s=.3 (flat)": case(100, ttft_ms=lambda n: 450 + 0.5 * n, **_NOISY),
    "1 % of requests +10 s": case(
        38, noise=lognormal(0.2), extra_s=lambda rng: 10.0 if rng.random() < 0.01 else 0.0
    ),
    "modulation 10 %, tau 5 s": Case(
        (48, 48), lambda seed: WeatherService(seed, factor=Modulation(0.1, 5, seed), **_NOISY)
    ),
    "warm-up x1.5, tau 30 s": case(48, factor=lambda t: 1 + 0.5 * math.exp(-t / 30), **_NOISY),
    "drift +30 % in 2 min": case((37, 48), factor=lambda t: 1 + 0.3 * min(1, t / 120), **_NOISY),
    "stall 3 s every 60 s": case(45, frozen=(60, 3), **_NOISY),
    "bistable x.8/x1.2, 30 s": Case(
        (48, 48), lambda seed: WeatherService(seed, factor=Switching(0.8, 1.2, 30, seed), **_NOISY)
    ),
    "slow x1.5 for 60 s after >52 in flight": case(48, overload=(52, 1.5, 60), **_NOISY),
    "429 above 30 in flight": case(30, most=30, **_NOISY),
    "E2E of 10 s (256 tokens x 40 ms)": case(48, decode_s=10.2, **_NOISY),
    "outage of 5 s": Case(
        (48, 48), lambda seed: WeatherService(seed, outage_s=(10 + seed % 40, 15 + seed % 40), **_NOISY)
    ),
    "0.5 % fail (failures<=1%)": case(48, fail_share=0.005, **_NOISY),
    "2 % fail (failures<=1%)": case(0, fail_share=0.02, **_NOISY),
    "ttft_p95<=800ms, s=.3": case(_P95, Slo.parse("ttft_p95<=800ms"), **_NOISY),
    "attainment(ttft<=800ms)>=95%, s=.3": case(_P95, Slo.parse("attainment(ttft<=800ms)>=95%"), **_NOISY),
    "no noise": case(48),
}


class Seen(NamedTuple):
    """What one search said."""

    users: int
    confirmed: bool
    steady: bool
    levels: int
    requests: int
    seconds: float


def search(name: str, seed: int) -> Seen:
    """One search of one case."""
    chosen = CASES[name]
    searched = search_in_virtual_time(chosen.service(seed), chosen.slo, seed=seed)
    end = searched.end
    return Seen(
        users=end.bracket.low or 0,
        confirmed=isinstance(end, Found) and end.confirmed,
        steady=True,
        levels=len(searched.levels),
        requests=searched.requests,
        seconds=searched.seconds,
    )


def summary(name: str, seen: list[Seen]) -> dict[str, Any]:
    """Shares over all seeds."""
    low, high = CASES[name].truth
    allowed = max(_RIGHT_USERS, _RIGHT_SHARE * high)

    def right(one: Seen) -> bool:
        return low - allowed <= one.users <= high + allowed

    def share(which: Callable[[Seen], bool]) -> float:
        return round(sum(map(which, seen)) / len(seen), 4)

    answers = Counter(one.users for one in seen)
    return {
        "truth": low if low == high else [low, high],
        "answer_min_median_max": [min(answers), median(one.users for one in seen), max(answers)],
        "right": share(right),
        "confirmed": share(lambda one: one.confirmed),
        "honest": share(lambda one: right(one) or not one.confirmed or not one.steady),
        "confirmed_wrong": share(lambda one: one.confirmed and not right(one)),
        "marked_unsteady": share(lambda one: not one.steady),
        "levels": round(fmean(one.levels for one in seen), 1),
        "requests": round(fmean(one.requests for one in seen)),
        "seconds": round(fmean(one.seconds for one in seen)),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="?", type=int, default=50)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args()
    names = [name for name in CASES if any(word in name for word in chosen.only)]
    results = {}
    with Pool(chosen.processes) as pool:
        for name in names:
            seen = pool.starmap(search, [(name, seed) for seed in range(chosen.seeds)], chunksize=5)
            results[name] = summary(name, seen)
            print(name, results[name], file=sys.stderr)
    print(json.dumps({"seeds": chosen.seeds, "results": results}, indent=2))
    return (
        0 if all(one["honest"] >= 0.95 and one["confirmed_wrong"] <= 0.02 for one in results.values()) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
