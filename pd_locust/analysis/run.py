"""What is known about a run beside its numbers: PREFIX_run.json, which may be missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pd_locust.capacity import DEFAULT_HEADROOM
from pd_locust.errors import ConfigError, HistoryError
from pd_locust.judge import DEFAULT_CONFIDENCE
from pd_locust.slo import DEFAULT_SLO, Slo
from pd_locust.warnings import Doubt

if TYPE_CHECKING:
    from pathlib import Path

RUN_FORMAT = 1

_SUFFIXES = (
    "_requests.csv",
    "_stats_history.csv",
    "_stats.csv",
    "_failures.csv",
    "_exceptions.csv",
    "_run.json",
)


def prefix_of(path: Path) -> Path:
    """Return PREFIX for PREFIX itself and for any file of the run, such as PREFIX_stats_history.csv."""
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix):
            return path.with_name(path.name.removesuffix(suffix))
    return path


def file_of(prefix: Path, suffix: str) -> Path:
    """Path of one file of a run: `file_of(Path("reports/run"), "requests.csv")`."""
    return prefix.with_name(f"{prefix.name}_{suffix}")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Contents of PREFIX_run.json, read once; without the file everything has its default or is absent.

    `tiers` maps a name to its prompt and output tokens.
    """

    document: dict[str, Any]
    tiers: dict[str, tuple[int, int | None]]
    pairs: int | None
    slo: Slo
    headroom: float
    confidence: float
    ended_unix_s: tuple[float, ...]
    doubts: tuple[Doubt, ...]

    @classmethod
    def load(cls, prefix: Path) -> RunInfo:
        """Read PREFIX_run.json. Raises HistoryError when it is there but is not what this version writes."""
        path = file_of(prefix, "run.json")
        remedy = "delete the file to report without it"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            document = {"format": RUN_FORMAT}
        except json.JSONDecodeError as error:
            raise HistoryError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {remedy}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise HistoryError(f"{path}: {error}; {remedy}") from error
        if not isinstance(document, dict) or document.get("format") != RUN_FORMAT:
            seen = document.get("format") if isinstance(document, dict) else None
            raise HistoryError(f"{path}: format {seen!r} where this version reads {RUN_FORMAT}; {remedy}")
        try:
            return cls(
                document=document,
                tiers={
                    tier["name"]: (int(tier["prompt_tokens"]), tier.get("max_tokens"))
                    for tier in document.get("tiers") or ()
                },
                pairs=_pairs(document.get("labels") or {}),
                slo=Slo.parse(document["slo"]) if document.get("slo") else DEFAULT_SLO,
                headroom=float(document.get("headroom", DEFAULT_HEADROOM)),
                confidence=float(document.get("confidence", DEFAULT_CONFIDENCE)),
                ended_unix_s=tuple(
                    # A run that crashed has no end.
                    float(run["ended_unix_s"])
                    for run in document.get("runs") or ()
                    if run.get("ended_unix_s")
                ),
                doubts=tuple(Doubt(**doubt) for doubt in document.get("doubts") or ()),
            )
        except (ConfigError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise HistoryError(f"{path}: not as this version writes it ({error!r}); {remedy}") from error

    @property
    def nominal_tokens(self) -> dict[str, int]:
        """Prompt lengths that the run declares, by tier."""
        return {name: prompt_tokens for name, (prompt_tokens, _) in self.tiers.items()}

    def facts(self) -> list[tuple[str, str]]:
        """Return what a reader must know before the numbers, as (name, text); the unknown is left out."""
        target = self.document.get("target") or {}
        host = self.document.get("host") or {}
        tiers = [
            f"{tier['name']} ({tier['prompt_tokens']} in, {tier.get('max_tokens', '?')} out)"
            for tier in self.document.get("tiers") or ()
        ]
        known = [
            (
                "target",
                f"{target.get('base_url') or ''}{' (SIMULATED)' if target.get('simulated') else ''}".strip(),
            ),
            ("model", target.get("model")),
            ("tiers", ", ".join(tiers)),
            ("seed", self.document.get("seed")),
            ("labels", _pairs_text(self.document.get("labels"))),
            ("load from", _pairs_text(host)),
            ("versions", _pairs_text(self.document.get("versions"))),
            ("command", " ".join(self.document.get("command") or ())),
        ]
        return [(name, str(value)) for name, value in known if value not in (None, "")]


def _pairs(labels: dict[str, Any]) -> int | None:
    # Labels are free text: "8 per rack" is a label too, only not one to divide by.
    text = str(labels.get("pairs", ""))
    return int(text) if text.isdecimal() and int(text) else None


def _pairs_text(mapping: dict[str, Any] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in (mapping or {}).items())
