"""A tier is a prompt length to be measured at, with the output length that goes with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from pd_locust.errors import ConfigError

MIX = "mix"
"""Name under which requests of several tiers at once are recorded; no tier may have it."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}")


@dataclass(frozen=True, slots=True)
class Tier:
    """`prompt_tokens` is nominal: what the server should count, chat template included."""

    name: str
    prompt_tokens: int
    max_tokens: int = 256

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"tier {self.name!r}: a name is a letter followed by letters, digits, '_', '-' or '.' (32 at most)"
            )
        if self.name == MIX:
            raise ConfigError(f"tier {MIX}: this name stands for several tiers at once")
        for field in ("prompt_tokens", "max_tokens"):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(
                    f"tier {self.name}: {field} must be a whole number from 1 on, not {value!r}"
                )


STANDARD_TIERS: tuple[Tier, ...] = (
    Tier("short", 16),
    Tier("medium", 850),
    Tier("long", 6_330),
    Tier("xlong", 20_890),
)
"""Prompt lengths of the published PD benchmark that this project makes reproducible."""

EVERYDAY_TIERS = STANDARD_TIERS[:3]
"""Without a choice: xlong is longer than the context of many servers, and is run when it is asked for."""


def load_tiers(path: str | Path) -> tuple[Tier, ...]:
    """Read own tiers from YAML: a mapping of name to `{prompt_tokens: N, max_tokens: M}`.

    Raises ConfigError naming the file, the tier and what is accepted.
    """
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"tier file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"tier file {path} is not a text file in UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"tier file {path} is not YAML: {str(error).splitlines()[0]}") from error
    if isinstance(document, dict) and isinstance(document.get("tiers"), dict):
        document = document["tiers"]
    if not isinstance(document, dict) or not document:
        raise ConfigError(
            f"tier file {path}: expected lines like 'chat: {{prompt_tokens: 2000, max_tokens: 300}}'"
        )
    return tuple(_tier_from_yaml(path, name, entry) for name, entry in document.items())


def _tier_from_yaml(path: str | Path, name: object, entry: object) -> Tier:
    accepted = {"prompt_tokens", "max_tokens"}
    if not isinstance(entry, dict) or "prompt_tokens" not in entry or set(entry) - accepted:
        raise ConfigError(f"tier file {path}: tier {name!r} takes prompt_tokens and, if wanted, max_tokens")
    try:
        return Tier(str(name), **entry)
    except ConfigError as error:
        raise ConfigError(f"tier file {path}: {error}") from None


def choose_tiers(names: Iterable[str], known: Sequence[Tier]) -> tuple[Tier, ...]:
    """Pick tiers by name, in the order asked for; an unknown name says which exist."""
    by_name = {tier.name: tier for tier in known}
    chosen: dict[str, Tier] = {}
    for name in names:
        if name not in by_name:
            raise ConfigError(f"unknown tier {name!r}; there are {', '.join(by_name)}")
        chosen[name] = by_name[name]
    if not chosen:
        raise ConfigError(f"no tier chosen; there are {', '.join(by_name)}")
    return tuple(chosen.values())
