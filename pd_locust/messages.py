"""Messages are values: a code and what fills it. Words are made once, at the edge, from `messages.yaml`.

    where = Message("place.level", {"tier": "all", "users": 1})
    t(where, Language.EN)    -> "all at 1 user"
    t(where, Language.ZH)    -> "all，1 并发"

Values are shown, never translated: a tier named `all` stays `all`. Where a word of ours stands in a text, the
value is a Message. The catalogue has a text per language for every code; nested keys are joined by dots, and a plain
string is the same in every language:

    place:
      level: {en: "{tier} at {users:count} {users:|user|users}", zh: "{tier}，{users:count} 并发"}

A slot is `{name}` or `{name:FORMAT}`, with FORMAT one of

    ms, count, percent    `391.4 ms`, `1,234`, and of a share of 1 `99.57 %`
    list, clauses         values joined as `a, b` or `a; b`
    |user|users           the first word for 1, else the second
    ,.2f or .0%           as Python formats numbers, with a space before `%`

None is `n/a` in all of them. A new message: write `Message("code", {...})` where it is used and add the code to
messages.yaml; tests/test_messages.py says what is missing, unused or has other slots. Write both as literals, so that
a search finds them; of a family of codes (`f"verdict.{verdict}"`) the test is given the members. A new language: one
more `Language`, and its text at every code.
"""

from __future__ import annotations

import os
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from pd_locust.errors import ConfigError
from pd_locust.units import NOT_AVAILABLE, format_count, format_ms, format_percent


class Language(StrEnum):
    """Languages of terminal, Markdown and HTML. Keys of JSON and CSV are English in all of them."""

    EN = "en"
    ZH = "zh"

    @classmethod
    def chosen(cls, option: str | None = None) -> Language:
        """`option`, else PD_LANG, else English. Raises ConfigError for an unknown language."""
        name = option or os.environ.get("PD_LANG") or cls.EN
        if name not in set(cls):
            where = "--lang" if option else "PD_LANG"
            raise ConfigError(f"{where} {name}: expected {' or '.join(cls)}")
        return cls(name)


@dataclass(frozen=True, slots=True)
class Message:
    """A code of the catalogue with the values of its slots. `asdict` makes JSON of it, `from_json` reads it."""

    code: str
    values: dict[str, Value] = field(default_factory=dict, hash=False)


Value = str | int | float | None | Message | Sequence["Value"]


@dataclass(frozen=True, slots=True)
class Doubt:
    """A reason not to trust a number yet. The catalogue has its three texts under `doubt.CODE`.

    `where` is the place it is about: a tier, a level, a file. Values named `seen`, `cause` and `remedy` are finished
    texts, as run.json had them in format 1, and are shown as they stand.
    """

    code: str
    where: Value
    values: dict[str, Value] = field(default_factory=dict, hash=False)

    @property
    def seen(self) -> Value:
        """What was observed."""
        return self._part("seen")

    @property
    def cause(self) -> Value:
        """The likely cause."""
        return self._part("cause")

    @property
    def remedy(self) -> Value:
        """What to try."""
        return self._part("remedy")

    def _part(self, name: str) -> Value:
        return self.values[name] if name in self.values else Message(f"doubt.{self.code}.{name}", self.values)

    @property
    def sentence(self) -> Message:
        """Where, what, cause and remedy in one line."""
        parts = {"where": self.where, "seen": self.seen, "cause": self.cause, "remedy": self.remedy}
        return Message("doubt-line", parts)

    def to_json(self) -> dict[str, Any]:
        """English texts with stable keys, for `--json`."""
        parts = {"where": self.where, "seen": self.seen, "cause": self.cause, "remedy": self.remedy}
        return {"code": self.code, **{name: t(part, Language.EN) for name, part in parts.items()}}

    def to_record(self) -> dict[str, Any]:
        """Plain values, for run.json and for workers."""
        return asdict(self)

    @classmethod
    def from_record(cls, document: dict[str, Any]) -> Doubt:
        """Inverse of `to_record`; also reads format 1. Raises KeyError for a code or a value that is missing."""
        values = document.get("values")
        if values is None:
            values = {name: document[name] for name in ("seen", "cause", "remedy")}
        doubt = cls(document["code"], from_json(document["where"]), _values(values))
        t(doubt.sentence, Language.EN)
        return doubt


def from_json(value: Any) -> Value:
    """Read a value as `asdict` and JSON leave it."""
    match value:
        case {"code": code, "values": values}:
            return Message(code, _values(values))
        case list() | tuple():
            return tuple(map(from_json, value))
        case _:
            return value  # type: ignore[no-any-return]


def _values(values: dict[str, Any]) -> dict[str, Value]:
    return {name: from_json(value) for name, value in values.items()}


def t(value: Value, language: Language) -> str:
    """Make words of a message; any other value is shown as it is. Raises KeyError for an unknown code or slot."""
    if isinstance(value, Message):
        return _Words(language).vformat(catalogue()[value.code][language], (), value.values)
    return _Words(language).format_field(value, "")


_FORMATS: dict[str, Callable[[Any], str]] = {
    "ms": lambda ms: f"{format_ms(ms)} ms",
    "count": format_count,
    "percent": format_percent,
}


class _Words(string.Formatter):
    def __init__(self, language: Language) -> None:
        self._language = language

    def format_field(self, value: Value, format_spec: str) -> str:
        if format_spec.startswith("|"):
            _, one, many = format_spec.split("|")
            return one if value == 1 else many
        if value is None:
            return NOT_AVAILABLE
        if isinstance(value, Message):
            return t(value, self._language)
        if isinstance(value, (list, tuple)):
            between = t(Message(f"between.{format_spec or 'list'}"), self._language)
            return between.join(t(part, self._language) for part in value)
        show = _FORMATS.get(format_spec)
        text = show(value) if show else format(value, format_spec)
        return text.replace("%", " %") if format_spec.endswith("%") else text


@cache
def catalogue() -> dict[str, dict[Language, str]]:
    """Texts by code and language, read once."""
    text = files("pd_locust").joinpath("messages.yaml").read_text(encoding="utf-8")
    return dict(_texts(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))))  # noqa: S506


def _texts(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[Language, str]]]:
    for key, below in tree.items():
        if isinstance(below, str):
            yield f"{prefix}{key}", dict.fromkeys(Language, below)
        elif set(below) <= set(Language):
            yield f"{prefix}{key}", {Language(name): text for name, text in below.items()}
        else:
            yield from _texts(below, f"{prefix}{key}.")
