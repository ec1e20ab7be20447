"""Doubts as values: what was seen, the likely cause, what to try. The same text everywhere it is shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pd_locust.language import ENGLISH

if TYPE_CHECKING:
    from pd_locust.language import Speech


@dataclass(frozen=True, slots=True)
class Doubt:
    """One reason not to trust a number yet. `code` is stable; `where` names tier and level."""

    code: str
    where: str
    seen: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        return self.told(ENGLISH)

    def told(self, say: Speech) -> str:
        """The same as `str()`, in a language."""
        what = f"{say(self.where)}{say(': ')}{say(self.seen)}"
        return f"{what}{say('. Likely cause: ')}{say(self.cause)}{say('. Try: ')}{say(self.remedy)}{say('.')}"

    def to_json(self) -> dict[str, str]:
        """Stable keys for `--json`."""
        return asdict(self)


def few_samples(where: str, count: int, needed: int) -> Doubt:
    """A percentile of a handful of requests is one of them."""
    return Doubt(
        "few-samples",
        where,
        f"{count} requests in the sample, p99 needs {needed}",
        "the level was too short or most of it was the first wave",
        "more requests (--pd-requests, --pd-level-requests) or a longer run",
    )


def little_residual(where: str, residual: float, limit: float) -> Doubt:
    """N = X x R holds for any stable system (Little 1961); a residual says that the window was not stable."""
    return Doubt(
        "little",
        where,
        f"Little's law misses by {residual * 100:.1f} % (limit {limit * 100:.0f} %)",
        "the load was not steady in the window, or requests outlast it",
        "a longer level; check that users do not pause between requests",
    )


def cache_hits(where: str, share: float) -> Doubt:
    """A prompt answered from the prefix cache did not pay for its prefill."""
    return Doubt(
        "cache-hits",
        where,
        f"{share * 100:.0f} % of prompt tokens came from the prefix cache",
        "prompts repeat, or an earlier run used the same seed",
        "another --pd-seed, or a server started without prefix caching",
    )


def buffered_streams(where: str, share: float) -> Doubt:
    """Measured-back chunks make TTFT late and TPOT a fiction."""
    return Doubt(
        "buffered",
        where,
        f"{share * 100:.0f} % of streams arrived in bursts",
        "a proxy buffers the response (nginx proxy_buffering, a gateway that collects) "
        "or the engine's stream interval is long",
        "measure at the router's own port, or switch buffering off; do not trust TPOT here",
    )


def reconnects(where: str, share: float) -> Doubt:
    """Connecting is in no TTFT, but a real user behind such a server pays for it."""
    return Doubt(
        "reconnects",
        where,
        f"{share * 100:.0f} % of requests found their kept connection closed",
        "the server or a proxy closes connections that are idle for a moment, or after some requests",
        "a longer keep-alive there; connect_ms says what a connection costs, which is not in TTFT",
    )


def chunk_counted(where: str, share: float) -> Doubt:
    """Chunks are not tokens: speculative decoding and UTF-8 pieces break the equality both ways."""
    return Doubt(
        "tokens-by-chunks",
        where,
        f"{share * 100:.0f} % of requests have their tokens counted by chunks",
        "the server sends no usage although stream_options.include_usage was asked for",
        "an engine or router that passes usage through; compare TPOT only with runs counted alike",
    )


def failures(where: str, failed: int, finished: int) -> Doubt:
    """Latency tables show successes only; with failures they flatter."""
    return Doubt(
        "failures",
        where,
        f"{failed} of {finished} requests failed",
        "see the failures table; each category has its own hint",
        "fix the cause first: latencies of a failing service describe the survivors",
    )


def under_concurrency(where: str, asked: float, measured: float) -> Doubt:
    """Users are not concurrency."""
    return Doubt(
        "under-concurrency",
        where,
        f"{measured:.1f} requests in flight where {asked:.0f} users were asked for",
        "users back off after failures, wait for connections, or the generator is too slow",
        "look at failures and connect_ms first, then --processes",
    )


def length_missed(where: str, nominal: int, actual: float) -> Doubt:
    """The actual length is what every table shows; the tier's name is only a name."""
    return Doubt(
        "prompt-length",
        where,
        f"prompts have {actual:.0f} tokens where the tier says {nominal}",
        "the chat template alone is longer, or the server reports no usage to fit to",
        "read the table by its actual tokens, or set another prompt_tokens for the tier",
    )


def client_limited(where: str, loop_lag_ms: float | None, cpu_share: float | None) -> Doubt:
    """A server's limit and a client's must never be confused."""
    lag = f"{loop_lag_ms:.1f} ms" if loop_lag_ms is not None else "unknown"
    cpu = f"{cpu_share * 100:.0f} %" if cpu_share is not None else "unknown"
    return Doubt(
        "client-limited",
        where,
        f"the load generator was late itself (loop lag p99 {lag}, {cpu} of a core)",
        "one process cannot read so many streams, or other programs use its core",
        "--processes 2 or more, workers on other machines, and nothing else on this one",
    )


def beyond_calibration(where: str, users: float, streams: int) -> Doubt:
    """What this machine was measured to carry says more than what it happens to notice during a run."""
    return Doubt(
        "beyond-calibration",
        where,
        f"{users:.0f} users a process, where this machine was measured to carry {streams}",
        "more streams than one process here reads without being late itself (pd-locust calibrate)",
        "--processes 2 or more, workers on other machines, or pd-locust calibrate again while nothing else runs",
    )
