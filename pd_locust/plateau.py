"""A Plateau is what was seen at one tier and one concurrency; live judging and post-processing share it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pd_locust import warnings
from pd_locust.judge import DEFAULT_CONFIDENCE, Judgement, judge
from pd_locust.record import Outcome, Part, TokensSource
from pd_locust.sample import Rows, Sample
from pd_locust.slo import DEFAULT_SLO, Slo, Verdict
from pd_locust.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pd_locust.warnings import Doubt

STEADY = frozenset({Part.SAMPLE})
FIRST_WAVE = frozenset({Part.WAVE})
EVERYTHING = frozenset(Part)

# Of a file of millions, so many are Python objects at a time.
_AT_A_TIME = 100_000

_LITTLE_LIMIT = 0.05
_CACHED_LIMIT = 0.02
_TEMPLATE_TOKENS = 64
_SHARE_LIMIT = 0.02
_P99_NEEDS = 100
BUSY_CORE = 0.85
"""Share of a core above which a client is one that limits: what comes then is read when there is time for it."""


class Row(Protocol):
    """The attributes of a RequestRecord that a plateau reads; a pandas row tuple has them too."""

    # Properties, so that frozen records and named tuples fit.
    @property
    def worker(self) -> int: ...
    @property
    def part(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def sent_unix_us(self) -> int: ...
    @property
    def ttft_ms(self) -> float | None: ...
    @property
    def ttfo_ms(self) -> float | None: ...
    @property
    def ttst_ms(self) -> float | None: ...
    @property
    def tpot_ms(self) -> float | None: ...
    @property
    def itl_p99_ms(self) -> float | None: ...
    @property
    def e2e_ms(self) -> float | None: ...
    @property
    def prompt_tokens(self) -> int | None: ...
    @property
    def cached_tokens(self) -> int | None: ...
    @property
    def output_tokens(self) -> int | None: ...
    @property
    def tokens_source(self) -> str | None: ...
    @property
    def text_chunks(self) -> int: ...
    @property
    def reads(self) -> int: ...
    @property
    def buffered(self) -> bool: ...
    @property
    def reconnected(self) -> bool: ...
    @property
    def loop_lag_ms(self) -> float | None: ...
    @property
    def client_cpu_share(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Plateau:
    """Latencies are of successes only; `failed` says how many are missing from them.

    `window_s` runs from the first to the last sending of the selected requests: the time in which the
    load was full. `concurrency` is the time-weighted mean of requests in flight in that window, `request_rate`
    counts what ended in it, failures too, and `output_tok_s` the tokens of the successes among them.
    `stream_tok_s` is one user's view: output tokens / E2E latency, averaged. `attainment` is the share of finished
    requests that met the limit, `goodput` their rate; a failure is a miss in both. `cut` requests are in neither.

    Of the generator itself: `loop_lag_*_ms` of the requests, `client_cpu_share` of the process that used most, and
    `shared_reads_share`, the least share of chunks that came with others in one read and so have one time.
    """

    phase: str
    tier: str
    users: int | None
    successes: int
    failed: int
    cut: int
    ttft: Summary
    ttfo: Summary
    ttst: Summary
    tpot: Summary
    itl_p99: Summary
    e2e: Summary
    prompt_tokens: float | None
    cached_share: float | None
    output_tokens: float | None
    stream_tok_s: float | None
    window_s: float | None
    concurrency: float | None
    request_rate: float | None
    output_tok_s: float | None
    little_residual: float | None
    attainment: float | None
    goodput: float | None
    loop_lag_p50_ms: float | None
    loop_lag_p99_ms: float | None
    loop_lag_max_ms: float | None
    client_cpu_share: float | None
    shared_reads_share: float | None
    slo: Slo
    judgement: Judgement
    doubts: tuple[Doubt, ...]

    @property
    def verdict(self) -> Verdict:
        """Whether the limit was kept; a level that the generator itself limited decides nothing."""
        return Verdict.INCONCLUSIVE if self.client_limited else self.judgement.verdict

    def summary_of(self, metric: str) -> Summary:
        """Summary of the latency that a limit names; `itl` is that of the requests' own p99."""
        summary: Summary = getattr(self, "itl_p99" if metric == "itl" else metric)
        return summary

    @property
    def finished(self) -> int:
        """Successes and failures; requests that we cut ourselves are not finished."""
        return self.successes + self.failed

    @property
    def success_ratio(self) -> float | None:
        """Successes / finished, None when nothing finished."""
        return self.successes / self.finished if self.finished else None

    @classmethod
    def of(
        cls,
        rows: Sample | Iterable[Row],
        *,
        phase: str,
        tier: str,
        users: int | None,
        slo: Slo = DEFAULT_SLO,
        parts: frozenset[Part] = STEADY,
        confidence: float = DEFAULT_CONFIDENCE,
        looks: int = 1,
        nominal_tokens: int | None = None,
    ) -> Plateau:
        """Judge one level from all its requests, of which those in `parts` are the sample.

        `looks` as in `judge`: how often a sample that grows is looked at.
        """
        everything = rows if isinstance(rows, Sample) else Rows(rows)
        chosen = everything.in_parts(parts)
        good = chosen.ended(Outcome.SUCCESS)
        failed = len(chosen.ended(Outcome.FAILURE))
        flow = _Flow.of(everything, chosen)
        lag = Summary.of(chosen.ordered("loop_lag_ms"))
        finished = len(good) + failed
        attainment = sum(good.met(slo.request_limits)) / finished if finished else None
        goodput = None if flow.request_rate is None or attainment is None else flow.request_rate * attainment
        plateau = cls(
            phase=phase,
            tier=tier,
            users=users,
            successes=len(good),
            failed=failed,
            cut=len(chosen.ended(Outcome.CUT)),
            ttft=Summary.of(good.ordered("ttft_ms")),
            ttfo=Summary.of(good.ordered("ttfo_ms")),
            ttst=Summary.of(good.ordered("ttst_ms")),
            tpot=Summary.of(good.ordered("tpot_ms")),
            itl_p99=Summary.of(good.ordered("itl_p99_ms")),
            e2e=Summary.of(good.ordered("e2e_ms")),
            prompt_tokens=_mean(good.values("prompt_tokens")),
            cached_share=_cached_share(good),
            output_tokens=_mean(good.values("output_tokens")),
            stream_tok_s=_mean(
                [
                    tokens / e2e_ms * 1e3
                    for tokens, e2e_ms in zip(
                        good.column("output_tokens"), good.column("e2e_ms"), strict=True
                    )
                    if tokens and e2e_ms
                ]
            ),
            window_s=flow.window_s,
            concurrency=flow.concurrency,
            request_rate=flow.request_rate,
            output_tok_s=flow.output_tok_s,
            little_residual=flow.little_residual,
            attainment=attainment,
            goodput=goodput,
            loop_lag_p50_ms=lag.p50,
            loop_lag_p99_ms=lag.p99,
            loop_lag_max_ms=lag.max,
            client_cpu_share=_busiest(chosen),
            shared_reads_share=_shared_reads(good),
            slo=slo,
            judgement=judge(chosen, slo, users, confidence, looks=looks),
            doubts=(),
        )
        return _with_doubts(plateau, good, nominal_tokens)

    @property
    def client_limited(self) -> bool:
        """Whether the generator itself was too slow: then the level says nothing of the server.

        Its loop is late by more than 5 % of the tightest limit or 1 ms, whichever is larger (p99 of requests), or
        it uses more than 85 % of a core. A limit on TPOT, which is spread over a whole stream, is not the tightest.
        """
        limits_ms = [limit.limit_ms for limit in self.slo.request_limits if limit.metric != "tpot"]
        allowed_ms = max(1.0, 0.05 * min(limits_ms, default=0.0))
        late = self.loop_lag_p99_ms is not None and self.loop_lag_p99_ms > allowed_ms
        return late or (self.client_cpu_share is not None and self.client_cpu_share > BUSY_CORE)


@dataclass(frozen=True, slots=True)
class _Flow:
    """Rates and concurrency in the window in which the load was full."""

    window_s: float | None = None
    concurrency: float | None = None
    request_rate: float | None = None
    output_tok_s: float | None = None
    little_residual: float | None = None

    @classmethod
    def of(cls, everything: Sample, chosen: Sample) -> _Flow:
        if len(chosen) < 2:
            return cls()
        sent_us = chosen.column("sent_unix_us")
        start_us, stop_us = sent_us[0], sent_us[-1]
        if stop_us <= start_us:
            return cls()
        window_us = stop_us - start_us
        busy_us = residence_us = 0.0
        ended = tokens = 0
        for at in range(0, len(everything), _AT_A_TIME):
            part = everything[at : at + _AT_A_TIME]
            columns = map(part.column, ("sent_unix_us", "e2e_ms", "output_tokens", "outcome"))
            for from_us, e2e_ms, output_tokens, outcome in zip(*columns, strict=True):
                if e2e_ms is None:
                    continue
                end_us = from_us + e2e_ms * 1e3
                if start_us <= from_us and end_us <= stop_us:  # as nearly all of a million do
                    busy_us += e2e_ms * 1e3
                else:
                    busy_us += max(0.0, min(end_us, stop_us) - max(from_us, start_us))
                if start_us < end_us <= stop_us:
                    ended += 1
                    residence_us += e2e_ms * 1e3
                    if outcome == Outcome.SUCCESS:
                        tokens += output_tokens or 0
        concurrency = busy_us / window_us
        # X x R, from what ended in the window, against N, from how long the window was occupied.
        by_little = residence_us / window_us
        return cls(
            window_s=window_us / 1e6,
            concurrency=concurrency,
            request_rate=ended / window_us * 1e6,
            output_tok_s=tokens / window_us * 1e6,
            little_residual=abs(by_little - concurrency) / concurrency if concurrency else None,
        )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _busiest(chosen: Sample) -> float | None:
    """Share of a core of the process that used most: an idle worker does not make up for a late one."""
    shares: dict[int, list[float]] = {}
    for worker, share in zip(chosen.column("worker"), chosen.column("client_cpu_share"), strict=True):
        if share is not None:
            shares.setdefault(worker, []).append(share)
    return max((sum(seen) / len(seen) for seen in shares.values()), default=None)


def _shared_reads(good: Sample) -> float | None:
    """Share of the chunks with text that came with another one, at least: reads without text are counted too."""
    texts = good.column("text_chunks")
    chunks = sum(texts)
    shared = sum(
        text - reads for text, reads in zip(texts, good.column("reads"), strict=True) if text > reads
    )
    return shared / chunks if chunks else None


def _cached_share(good: Sample) -> float | None:
    cached_tokens = prompt_tokens = 0
    for cached, prompt in zip(good.column("cached_tokens"), good.column("prompt_tokens"), strict=True):
        if cached is not None and prompt:
            cached_tokens += cached
            prompt_tokens += prompt
    return cached_tokens / prompt_tokens if prompt_tokens else None


def _with_doubts(plateau: Plateau, good: Sample, nominal_tokens: int | None) -> Plateau:
    where = (
        f"{plateau.tier} at 1 user"
        if plateau.users == 1
        else f"{plateau.tier} at {plateau.users or '?'} users"
    )
    doubts: list[Doubt] = []
    if plateau.client_limited:
        doubts.append(warnings.client_limited(where, plateau.loop_lag_p99_ms, plateau.client_cpu_share))
    if plateau.failed:
        doubts.append(warnings.failures(where, plateau.failed, plateau.finished))
    if plateau.users and plateau.users > 1:
        doubts += _load_doubts(plateau, where)
    # The chat template opens every prompt: its tokens are cached everywhere, and are no repeated prompt.
    beyond_template = (plateau.cached_share or 0) * (plateau.prompt_tokens or 0) > _TEMPLATE_TOKENS
    if plateau.cached_share is not None and plateau.cached_share > _CACHED_LIMIT and beyond_template:
        doubts.append(warnings.cache_hits(where, plateau.cached_share))
    if len(good):
        doubts += _stream_doubts(good, where)
    if nominal_tokens and plateau.prompt_tokens:
        allowed = max(3.0, 0.02 * nominal_tokens)
        if abs(plateau.prompt_tokens - nominal_tokens) > allowed:
            doubts.append(warnings.length_missed(plateau.tier, nominal_tokens, plateau.prompt_tokens))
    return replace(plateau, doubts=tuple(doubts))


def _stream_doubts(good: Sample, where: str) -> Iterator[Doubt]:
    reconnected, buffered = (
        sum(map(bool, good.column(name))) / len(good) for name in ("reconnected", "buffered")
    )
    if reconnected > _SHARE_LIMIT:
        yield warnings.reconnects(where, reconnected)
    if buffered > _SHARE_LIMIT:
        yield warnings.buffered_streams(where, buffered)
    by_chunks = good.column("tokens_source").count(TokensSource.CHUNKS) / len(good)
    if by_chunks:
        yield warnings.chunk_counted(where, by_chunks)


def _load_doubts(plateau: Plateau, where: str) -> list[Doubt]:
    doubts: list[Doubt] = []
    # A level of a sweep is judged by its interval, which says itself whether the sample was large enough.
    if 0 < plateau.successes < _P99_NEEDS and not plateau.phase.startswith("sweep/"):
        doubts.append(warnings.few_samples(where, plateau.successes, _P99_NEEDS))
    if plateau.little_residual is not None and plateau.little_residual > _LITTLE_LIMIT:
        doubts.append(warnings.little_residual(where, plateau.little_residual, _LITTLE_LIMIT))
    asked, measured = plateau.users, plateau.concurrency
    if asked is not None and measured is not None and measured < 0.95 * asked:
        doubts.append(warnings.under_concurrency(where, asked, measured))
    return doubts
