"""Command-line options, and what stands in the environment instead; settings.py says what they mean."""

from __future__ import annotations

import argparse
import os
from typing import Any

from pd_locust.judge import DEFAULT_CONFIDENCE


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
