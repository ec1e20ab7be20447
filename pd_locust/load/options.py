"""Command-line options, and what they mean before the load starts."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pd_locust.errors import ConfigError
from pd_locust.judgement import DEFAULT_CONFIDENCE
from pd_locust.slo import Slo
from pd_locust.tier import EVERYDAY_TIERS, STANDARD_TIERS, Tier, choose_tiers, load_tiers

if TYPE_CHECKING:
    import argparse


class Secret:
    """Holds the API key outside of Locust's options, which Locust prints, puts into pages and sends around."""

    def __init__(self) -> None:
        self._value = ""

    def keep(self, value: str) -> str:
        """Remember a value and give back the empty text that may be seen instead of it."""
        if value:
            self._value = value
        return ""

    def reveal(self) -> str | None:
        """Return the key: the one given, else PD_API_KEY, else OPENAI_API_KEY, else None."""
        return self._value or _from_env("API_KEY")

    def __repr__(self) -> str:
        return "Secret(***)" if self._value else "Secret()"


API_KEY = Secret()
"""One a process: Locust parses its command line again for every page it serves."""


def _from_env(name: str) -> str | None:
    return os.environ.get(f"PD_{name}") or os.environ.get(f"OPENAI_{name}") or None


def base_url_from_env() -> str | None:
    """PD_BASE_URL, else OPENAI_BASE_URL, else None."""
    return _from_env("BASE_URL")


def model_from_env() -> str | None:
    """PD_MODEL, else OPENAI_MODEL, else None."""
    return _from_env("MODEL")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every locustfile. Key and model are in the web form too, beside Locust's host."""
    group: Any = parser.add_argument_group("pd_locust", "what is measured, and how requests are made")
    key = group.add_argument(
        "--pd-api-key",
        metavar="KEY",
        type=API_KEY.keep,
        default="",
        help="API key (or PD_API_KEY, OPENAI_API_KEY); left empty: the one given at the start",
    )
    model = group.add_argument(
        "--pd-model",
        metavar="ID",
        default="",
        help="model ID (or PD_MODEL); may be left out when the service lists exactly one",
    )
    for action in (key, model):
        # Locust's own keyword arguments for the web form do not reach an argument group.
        action.include_in_web_ui = True
        action.is_secret = action is key
        action.is_required = action.is_multiple = False
    group.add_argument("--pd-tiers", metavar="NAMES", help="comma list of tiers to run, e.g. short,long")
    group.add_argument(
        "--pd-tier-file",
        metavar="YAML",
        env_var="PD_TIER_FILE",
        help="own tiers: 'name: {prompt_tokens: N, max_tokens: M}' a line",
    )
    group.add_argument(
        "--pd-max-tokens", metavar="N", type=int, help="output tokens of every tier (default 256)"
    )
    group.add_argument(
        "--pd-seed",
        metavar="N",
        type=int,
        help="seed of the prompts (default: new each run, so that no cache knows them)",
    )
    group.add_argument(
        "--pd-label",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="label of the run, e.g. tp=1; pairs=8 gives throughput per PD pair",
    )
    group.add_argument("--pd-slo", metavar="LIMIT", default="ttft_mean<=500ms", help="limit to judge by")
    group.add_argument(
        "--pd-headroom",
        metavar="PERCENT",
        type=float,
        default=20.0,
        help="capacity kept free when planning (default 20)",
    )
    group.add_argument(
        "--pd-thinking",
        choices=("server", "on", "off"),
        default="server",
        help="chat_template_kwargs.enable_thinking",
    )
    group.add_argument("--pd-extra-body", metavar="JSON", default="", help="merged into every request")
    group.add_argument(
        "--pd-header", metavar="NAME:VALUE", action="append", default=[], help="additional request header"
    )
    group.add_argument("--pd-no-ignore-eos", action="store_true", help="let the model end its answers early")
    group.add_argument(
        "--pd-no-check",
        action="store_true",
        help="send nothing before the load: no preflight, prompts of about the nominal length",
    )
    group.add_argument("--pd-insecure", action="store_true", help="do not verify TLS certificates")
    group.add_argument(
        "--pd-first-token-timeout",
        metavar="S",
        type=float,
        default=120.0,
        help="give a stream up that has no token yet",
    )
    group.add_argument(
        "--pd-idle-timeout", metavar="S", type=float, default=60.0, help="give a stream up that falls silent"
    )
    group.add_argument(
        "--pd-max-failure-ratio",
        metavar="X",
        type=float,
        default=0.5,
        help="end the run when more of the last 30 s' requests fail (default 0.5; 1 never does)",
    )
    group.add_argument(
        "--pd-drain",
        metavar="S",
        type=float,
        default=60.0,
        help="at the end, wait so long for requests in flight; the rest is recorded as cut",
    )
    group.add_argument(
        "--pd-sim-profile",
        metavar="NAME",
        default="qwen3.5-9b-8p8d",
        help="profile of the simulated service that runs when no --host is given",
    )
    group.add_argument(
        "--pd-sim-time-scale",
        metavar="X",
        type=float,
        default=1.0,
        help="0.1 makes the simulated service ten times faster",
    )


def add_capacity_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the search in pd_capacity.py; `--pd-slo` is the limit and `--pd-tiers` what is searched."""
    group: Any = parser.add_argument_group("pd_locust search", "the largest concurrency that keeps --pd-slo")
    group.add_argument("--pd-start", metavar="N", type=int, default=8, help="first level (default 8)")
    group.add_argument(
        "--pd-max-users",
        metavar="N",
        type=int,
        default=1024,
        help="largest level that may be held (default 1024)",
    )
    group.add_argument(
        "--pd-resolution",
        metavar="N",
        type=int,
        default=1,
        help="users between the answer and the level that fails (default 1, or 1 %%)",
    )
    group.add_argument(
        "--pd-level-max-s",
        metavar="S",
        type=float,
        default=120.0,
        help="longest time a level is held; then it is INCONCLUSIVE",
    )
    group.add_argument(
        "--pd-confidence",
        metavar="C",
        type=float,
        default=DEFAULT_CONFIDENCE,
        help="of a level's interval (default 0.95)",
    )
    group.add_argument(
        "--pd-mix",
        metavar="WEIGHTS",
        default="",
        help="after the tiers, search a mix of them: short=6,long=1",
    )
    group.add_argument("--pd-resume", metavar="PREFIX", help="go on from the levels in PREFIX_requests.csv")


def add_benchmark_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the protocol in pd_benchmark.py; `--users` is the concurrency of its second part."""
    group: Any = parser.add_argument_group("pd_locust protocol", "single stream, exact count, sweep")
    group.add_argument(
        "--pd-single-requests",
        metavar="K",
        type=int,
        default=5,
        help="requests per tier, one at a time (default 5; 0 leaves the part out)",
    )
    group.add_argument(
        "--pd-requests",
        metavar="N",
        type=int,
        default=1000,
        help="requests at --users (default 1000 at 64; 0 leaves the part out)",
    )
    group.add_argument(
        "--pd-concurrency-tier",
        metavar="NAME",
        help="their tier (default medium, else the first of the tiers)",
    )
    group.add_argument(
        "--pd-levels",
        metavar="LIST",
        default="16,32,64,96,128,160,192",
        help="concurrency levels of the sweep ('' leaves the part out)",
    )
    group.add_argument(
        "--pd-sweep-tiers", metavar="NAMES", help="tiers of the sweep (default: all but xlong)"
    )
    group.add_argument(
        "--pd-level-requests",
        metavar="N",
        type=int,
        default=100,
        help="least sample of a level (default 100, and four a user)",
    )
    group.add_argument(
        "--pd-level-max-s", metavar="S", type=float, default=60.0, help="longest time a level is held"
    )


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
