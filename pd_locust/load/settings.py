"""What the options of a run mean, read once and checked before the load starts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from pd_locust.errors import ConfigError
from pd_locust.judge import DEFAULT_CONFIDENCE
from pd_locust.slo import Slo
from pd_locust.tier import EVERYDAY_TIERS, STANDARD_TIERS, Tier, choose_tiers, load_tiers


@dataclass(frozen=True, slots=True)
class Settings:
    """Options read once and checked; whatever is wrong with them is said before any request is sent."""

    tiers: tuple[Tier, ...]
    tiers_chosen: bool
    seed: int | None
    labels: dict[str, str]
    slo: Slo
    confidence: float
    headroom: float
    headers: dict[str, str]
    extra_body: dict[str, Any]
    ignore_eos: bool
    verify_tls: bool
    check: bool
    mix: dict[str, int]
    first_token_timeout_s: float
    idle_timeout_s: float

    @property
    def search_tiers(self) -> list[str]:
        """Names of the tiers whose capacity is looked for: those chosen, and xlong only if it was."""
        everyday = {tier.name for tier in EVERYDAY_TIERS}
        return [tier.name for tier in self.tiers if self.tiers_chosen or tier.name in everyday]

    def for_requests(self) -> dict[str, Any]:
        """Return what every request of the load is made with."""
        return {
            "headers": self.headers,
            "extra_body": self.extra_body,
            "ignore_eos": self.ignore_eos,
            "verify_tls": self.verify_tls,
        }

    @classmethod
    def read(cls, options: Any) -> Settings:
        """Raise ConfigError naming the option and what it accepts."""
        if not 0 <= options.pd_headroom < 100:
            raise ConfigError(f"--pd-headroom {options.pd_headroom:g}: expected per cent from 0 to below 100")
        if not 0 <= options.pd_max_failure_ratio <= 1:
            raise ConfigError(
                f"--pd-max-failure-ratio {options.pd_max_failure_ratio:g}: expected a share from 0 to 1"
            )
        for name in ("pd_first_token_timeout", "pd_idle_timeout", "pd_drain", "pd_sim_time_scale"):
            if not 0 < getattr(options, name) < math.inf:
                raise ConfigError(f"--{name.replace('_', '-')} must be greater than 0, and finite")
        for name in ("pd_single_requests", "pd_requests", "pd_level_requests"):
            if getattr(options, name, 0) < 0:
                raise ConfigError(f"--{name.replace('_', '-')} must not be negative")
        if not getattr(options, "pd_level_max_s", 1.0) > 0:
            raise ConfigError("--pd-level-max-s must be greater than 0")
        return cls(
            tiers=known_tiers(options),
            tiers_chosen=bool(options.pd_tiers or options.pd_tier_file),
            seed=options.pd_seed,
            labels=dict(_pair(text, "=", "--pd-label", "KEY=VALUE") for text in options.pd_label),
            slo=Slo.parse(options.pd_slo),
            confidence=_confidence(options),
            headroom=options.pd_headroom / 100,
            headers=dict(header_of(text) for text in options.pd_header),
            extra_body=extra_body_of(options),
            ignore_eos=not options.pd_no_ignore_eos,
            verify_tls=not options.pd_insecure,
            check=not options.pd_no_check,
            mix=_mix(getattr(options, "pd_mix", ""), known_tiers(options)),
            first_token_timeout_s=options.pd_first_token_timeout,
            idle_timeout_s=options.pd_idle_timeout,
        )


def known_tiers(options: Any) -> tuple[Tier, ...]:
    """Tiers chosen by `--pd-tiers` from the standard ones and those of `--pd-tier-file`, or all there are.

    A tier file replaces the standard tiers as the default choice; by name they stay available.
    """
    own = load_tiers(options.pd_tier_file) if options.pd_tier_file else ()
    known = {tier.name: tier for tier in (*STANDARD_TIERS, *own)}
    if options.pd_max_tokens is not None:
        known = {name: Tier(name, tier.prompt_tokens, options.pd_max_tokens) for name, tier in known.items()}
    if options.pd_tiers:
        return choose_tiers(split_names(options.pd_tiers), tuple(known.values()))
    return tuple(known[tier.name] for tier in (own or STANDARD_TIERS))


def _mix(text: str, tiers: tuple[Tier, ...]) -> dict[str, int]:
    weights: dict[str, int] = {}
    for part in split_names(text):
        name, weight = _pair(part, "=", "--pd-mix", "TIER=WEIGHT")
        if not weight.isascii() or not weight.isdigit() or int(weight) < 1:
            raise ConfigError(f"--pd-mix {part!r}: a weight is a whole number from 1 on")
        weights[name] = int(weight)
    if weights:
        choose_tiers(weights, tiers)
    return weights


def _confidence(options: Any) -> float:
    confidence = float(getattr(options, "pd_confidence", DEFAULT_CONFIDENCE))
    if not 0.5 <= confidence < 1:
        raise ConfigError(
            f"--pd-confidence {confidence:g}: expected a probability from 0.5 to below 1, such as 0.95"
        )
    for name, least in (("pd_start", 1), ("pd_max_users", 1), ("pd_resolution", 1)):
        if getattr(options, name, least) < least:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least {least}")
    return confidence


def split_names(text: str) -> list[str]:
    """Read a comma list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read_levels(text: str, option: str = "--pd-levels") -> list[int]:
    """Read `16,32,64`: whole numbers from 1 on, ascending, each once."""
    try:
        levels = sorted({int(part) for part in split_names(text)})
    except ValueError:
        raise ConfigError(f"{option} {text!r}: expected whole numbers like 16,32,64") from None
    if levels and levels[0] < 1:
        raise ConfigError(f"{option} {text!r}: a level has at least 1 user")
    return levels


def extra_body_of(options: Any) -> dict[str, Any]:
    """Return what `--pd-thinking` and `--pd-extra-body` add to every request."""
    extra: dict[str, Any] = {}
    if options.pd_thinking != "server":
        extra["chat_template_kwargs"] = {"enable_thinking": options.pd_thinking == "on"}
    if options.pd_extra_body:
        try:
            given = json.loads(options.pd_extra_body)
        except json.JSONDecodeError as error:
            raise ConfigError(f"--pd-extra-body is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise ConfigError('--pd-extra-body: expected a JSON object such as {"temperature": 0}')
        _refuse_reserved(given)
        own, template = extra.get("chat_template_kwargs", {}), given.get("chat_template_kwargs")
        if isinstance(template, dict):
            given["chat_template_kwargs"] = own | template
        extra |= given
    return extra


def _refuse_reserved(given: dict[str, Any]) -> None:
    if "min_tokens" in given:
        raise ConfigError(
            "--pd-extra-body: min_tokens breaks PD routers, which force max_tokens=1 on the prefill leg; "
            "the output length is fixed by ignore_eos and the tier's max_tokens"
        )
    for field, option in (("max_tokens", "--pd-max-tokens"), ("model", "--pd-model")):
        if field in given:
            raise ConfigError(f"--pd-extra-body: {field} is set by {option}")
    reserved = {"messages", "stream", "stream_options"} & set(given)
    if reserved:
        raise ConfigError(f"--pd-extra-body: {', '.join(sorted(reserved))} is the benchmark's own to set")


_OWN_HEADERS = {"host", "content-length", "content-type", "authorization", "x-request-id", "accept-encoding"}


def header_of(text: str) -> tuple[str, str]:
    """Read one `--pd-header`; those that pd_locust sets itself are refused."""
    name, value = _pair(text, ":", "--pd-header", "NAME:VALUE")
    if name.lower() in _OWN_HEADERS:
        raise ConfigError(f"--pd-header {name}: this header is set by pd_locust")
    if "\n" in text or "\r" in text or " " in name:
        raise ConfigError(f"--pd-header {name!r}: not a header name and a value of one line")
    if not name.isascii() or not _is_latin_1(value):
        raise ConfigError(f"--pd-header {name!r}: HTTP headers hold ASCII names and Latin-1 values only")
    return name, value


def _is_latin_1(text: str) -> bool:
    return all(ord(character) < 256 for character in text)


def _pair(text: str, separator: str, option: str, form: str) -> tuple[str, str]:
    key, found, value = text.partition(separator)
    if not found or not key.strip():
        raise ConfigError(f"{option} {text!r}: expected {form}")
    return key.strip(), value.strip()
