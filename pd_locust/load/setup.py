"""LoadSetup: everything a process needs to make requests, settled before the first one of the load."""

from __future__ import annotations

import logging
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pd_locust.check.control import ControlPlane
from pd_locust.check.preflight import Timeouts, preflight
from pd_locust.endpoint import Endpoint, authorization, conceal, secrets_of, streaming_headers, tls_context
from pd_locust.errors import ConfigError
from pd_locust.language import Speech
from pd_locust.load.settings import Settings
from pd_locust.prompt import Fit, PromptText, fit_words, prefixes
from pd_locust.tier import Tier
from pd_locust.warnings import Doubt
from pd_locust.wire.chat import ChatRequest

logger = logging.getLogger(__name__)

# Fitting must not warm the cache for the load: its prefixes come from a seed that no run uses.
_FIT_SEED_OFFSET = 1 << 40
_USUAL_TEMPLATE_TOKENS = 12  # with the prefix


@dataclass(frozen=True, slots=True)
class FittedTier:
    """A tier with its prompt's length in words, and what the server counts for it (None: it does not say)."""

    tier: Tier
    words: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class LoadSetup:
    """Sent from the master to its workers; the key is in no repr."""

    base_url: str
    model: str
    seed: int
    tiers: tuple[FittedTier, ...]
    api_key: str | None = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    extra_body: dict[str, Any] = field(default_factory=dict)
    ignore_eos: bool = True
    verify_tls: bool = True
    mix: dict[str, int] = field(default_factory=dict)
    run: int = 1
    doubts: tuple[Doubt, ...] = ()

    @property
    def endpoint(self) -> Endpoint:
        """The parsed Base URL."""
        return Endpoint.parse(self.base_url)

    def chat_requests(self) -> dict[str, ChatRequest]:
        """Build the request bytes of every tier, by name."""
        return {
            fitted.tier.name: ChatRequest.build(
                model=self.model,
                text=str(PromptText(fitted.words, self.seed)),
                max_tokens=fitted.tier.max_tokens,
                ignore_eos=self.ignore_eos,
                extra=self.extra_body,
            )
            for fitted in self.tiers
        }

    def request_headers(self) -> dict[str, str]:
        """Headers of every streaming request."""
        return streaming_headers(self.api_key, self.headers)

    def tls(self) -> ssl.SSLContext | None:
        """One context for all connections of a process; loading the CA file takes 20 ms each time."""
        return tls_context(self.verify_tls) if self.base_url.startswith("https:") else None

    def to_message(self) -> dict[str, Any]:
        """Plain types, for Locust's messages; contains the key."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> LoadSetup:
        """Inverse of `to_message`."""
        tiers = tuple(
            FittedTier(Tier(**part["tier"]), part["words"], part["tokens"]) for part in message["tiers"]
        )
        doubts = tuple(Doubt(**doubt) for doubt in message["doubts"])
        return cls(**{**message, "tiers": tiers, "doubts": doubts})


def prepare(
    settings: Settings,
    tiers: Sequence[Tier],
    *,
    base_url: str,
    api_key: str | None,
    model: str | None,
    run: int,
) -> LoadSetup:
    """Check the service with two small streams, and fit every tier's prompt by a few one-token requests.

    Nothing is sent with `--pd-no-check`: prompts are then about as long as their tier says. Raises
    ConfigError with the likely cause when the service cannot be used.
    """
    endpoint = Endpoint.parse(base_url)
    seed = secrets.randbelow(1 << 31) if settings.seed is None else settings.seed
    if not settings.check:
        if not model:
            raise ConfigError("--pd-no-check asks the service nothing: give the model ID with --pd-model")
        fitted = [
            FittedTier(tier, max(0, tier.prompt_tokens - _USUAL_TEMPLATE_TOKENS), None) for tier in tiers
        ]
        return LoadSetup(
            base_url=endpoint.base_url,
            model=model,
            seed=seed,
            tiers=tuple(fitted),
            api_key=api_key,
            **settings.for_requests(),
            mix=settings.mix,
            run=run,
        )
    checked = preflight(
        endpoint,
        api_key=api_key,
        model=model,
        timeouts=Timeouts(first_token_s=settings.first_token_timeout_s, idle_s=settings.idle_timeout_s),
        **settings.for_requests(),
    )
    if checked.model is None or not checked.ok:
        raise ConfigError(
            f"{endpoint.base_url}: {checked.verdict}. Every step: pd-locust check --host {endpoint.base_url}"
        )
    for doubt in checked.doubts:
        logger.warning("%s", doubt.told(Speech.chosen()))
    control = ControlPlane(endpoint, authorization(api_key) | settings.headers, verify=settings.verify_tls)
    fitting = _Fitting(control, checked.model, seed, settings.extra_body)
    fitted = []
    for tier in tiers:
        try:
            fit = fit_words(tier.prompt_tokens, fitting.count)
        except ConfigError as error:
            hidden = conceal(str(error), secrets_of(api_key, settings.headers))
            raise ConfigError(f"tier {tier.name}: {hidden}") from None
        fitted.append(FittedTier(tier, fit.words, fit.tokens))
        logger.info("%s", _fit_line(tier, fit))
    return LoadSetup(
        base_url=endpoint.base_url,
        model=checked.model,
        seed=seed,
        tiers=tuple(fitted),
        api_key=api_key,
        **(settings.for_requests() | {"ignore_eos": checked.ignore_eos}),
        mix=settings.mix,
        run=run,
        doubts=checked.doubts,
    )


class _Fitting:
    """Counts prompts on the server, each length once for all tiers."""

    def __init__(self, control: ControlPlane, model: str, seed: int, extra_body: dict[str, Any]) -> None:
        self._control = control
        self._model = model
        self._seed = seed
        self._extra_body = extra_body
        self._prefixes = prefixes(seed + _FIT_SEED_OFFSET)
        self._counted: dict[int, int | None] = {}

    def count(self, words: int) -> int | None:
        if words not in self._counted:
            messages = _messages(next(self._prefixes), str(PromptText(words, self._seed)))
            body = {"model": self._model, "messages": messages, **self._extra_body}
            tokens = self._control.count_by_usage(body)
            if tokens is None:
                tokens = self._control.count_by_tokenizer(self._model, messages)
            self._counted[words] = tokens
        return self._counted[words]


def _messages(prefix: str, text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prefix + text}]


def _fit_line(tier: Tier, fit: Fit) -> str:
    if fit.tokens is None:
        return f"tier {tier.name}: {fit.words} words; the service does not report prompt tokens"
    prompt = f"{fit.tokens} prompt tokens (nominal {tier.prompt_tokens})"
    return f"tier {tier.name}: {prompt}, {tier.max_tokens} output tokens"
