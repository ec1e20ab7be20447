"""What people read, in their language. Every room writes plain English; the catalogue says it in another one.

English sentences are the keys, as in gettext, with `{names}` where values stand. A finished sentence finds
its template by its fixed words: so one that another process recorded months ago can be said in Chinese too,
and no room but the one that shows it needs to know of languages.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import yaml

from pd_locust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SLOT = re.compile(r"\{(\w+)\}")


class Language(StrEnum):
    """The language of terminal, Markdown and HTML. Keys of JSON and CSV are English in all of them."""

    EN = "en"
    ZH = "zh"

    @classmethod
    def chosen(cls, option: str | None = None) -> Language:
        """`option`, else PD_LANG, else English. Raises ConfigError for a language that there is not."""
        word = option or os.environ.get("PD_LANG") or cls.EN
        if word not in set(cls):
            where = "--lang" if option else "PD_LANG"
            raise ConfigError(f"{where} {word}: expected {' or '.join(cls)}")
        return cls(word)


class Speech:
    """Says English sentences in one language; a sentence that its catalogue lacks stays English."""

    def __init__(self, language: Language, catalogue: Mapping[str, str]) -> None:
        self.language = language
        self.catalogue = catalogue
        # The template with most fixed text first: "at least {n} users" is also an "{n} users".
        templates = sorted((key for key in catalogue if _SLOT.search(key)), key=_fixed_length, reverse=True)
        self._templates = [(_pattern(template), catalogue[template]) for template in templates]

    @classmethod
    @lru_cache
    def of(cls, language: Language) -> Speech:
        """Read the catalogue of a language, once."""
        if language is Language.EN:
            return cls(language, {})
        text = files("pd_locust").joinpath(f"{language}.yaml").read_text(encoding="utf-8")
        return cls(language, yaml.safe_load(text))

    @classmethod
    def chosen(cls, option: str | None = None) -> Speech:
        """Speak the language of `option`, else of PD_LANG, else English. Raises ConfigError."""
        return cls.of(Language.chosen(option))

    @property
    def comma(self) -> str:
        """Between clauses; what the catalogue has for ", " stands between the items of a list."""
        return self.catalogue.get("comma", ", ")

    def __call__(self, english: str) -> str:
        """Say a sentence or a word; values within it are said as well where the catalogue has them."""
        return self.find(english) or english

    def find(self, english: str) -> str | None:
        """Say it, or return None where the catalogue has nothing for it."""
        if (said := self.catalogue.get(english)) is not None:
            return said
        for pattern, template in self._templates:
            if match := pattern.fullmatch(english):
                return template.format(**{name: self(value) for name, value in match.groupdict().items()})
        return None


def _fixed_length(template: str) -> int:
    return len(_SLOT.sub("", template))


def _pattern(template: str) -> re.Pattern[str]:
    fixed_and_names = _SLOT.split(template)
    parts = [
        f"(?P<{part}>.+?)" if number % 2 else re.escape(part) for number, part in enumerate(fixed_and_names)
    ]
    return re.compile("".join(parts), re.DOTALL)


ENGLISH = Speech.of(Language.EN)
