"""Every request's record to PREFIX_requests.csv, and the run's circumstances to PREFIX_run.json."""

from __future__ import annotations

import csv
import json
import logging
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pd_locust.errors import ConfigError
from pd_locust.language import Speech
from pd_locust.load.calibrate import stored
from pd_locust.load.settings import split_names
from pd_locust.phase import Phase, PhaseKind
from pd_locust.record import COLUMNS, RECORD_VERSION, RequestRecord
from pd_locust.warnings import beyond_calibration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pd_locust.load.settings import Settings
    from pd_locust.load.setup import LoadSetup
    from pd_locust.warnings import Doubt

logger = logging.getLogger(__name__)

# Version of PREFIX_run.json.
#   1  first version
RUN_FORMAT = 1


class RecordsFile:
    """PREFIX_requests.csv. Opened before the run, so that a bad path fails in the first second."""

    def __init__(self, prefix: str) -> None:
        self.path = Path(f"{prefix}_requests.csv")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = self.path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(COLUMNS)
        self.flush()

    def write(self, rows: Iterable[list[Any]]) -> None:
        """Append rows made by RequestRecord.to_row()."""
        self._writer.writerows(rows)

    def flush(self) -> None:
        """Hand everything to the operating system; a process that dies then loses nothing of it."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()


class Outbox:
    """Records of a worker, waiting for the next report to the master."""

    def __init__(self) -> None:
        self._rows: list[list[Any]] = []

    def put(self, record: RequestRecord) -> None:
        """Keep one record."""
        self._rows.append(record.to_row())

    def take(self) -> list[list[Any]]:
        """Return what has come since the last call."""
        rows, self._rows = self._rows, []
        return rows


def recorded_levels(prefix: str) -> list[tuple[Phase, list[RequestRecord]]]:
    """Read the levels of a sweep or search back from PREFIX_requests.csv, in the order in which they were held.

    Runs of one file name their levels alike: each has its own.
    A last line that was cut is left out, as its process died while it wrote. Raises ConfigError for a file
    that is missing or is not such a file.
    """
    path = Path(f"{prefix}_requests.csv")
    levels: dict[tuple[int, Phase], list[RequestRecord]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            if tuple(next(lines, ())) != COLUMNS:
                raise ConfigError(f"--pd-resume: {path} is not a records file of this version")
            for row in lines:
                if len(row) == len(COLUMNS):
                    record = RequestRecord.from_row(row)
                    if record.phase.startswith("sweep/"):
                        phase = Phase(record.phase, PhaseKind.LEVEL, record.users, record.tier)
                        levels.setdefault((record.run, phase), []).append(record)
    except OSError as error:
        raise ConfigError(f"--pd-resume: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--pd-resume: {path}, line {lines.line_num}: {error}") from None
    return [(phase, rows) for (_, phase), rows in levels.items()]


class RunFile:
    """PREFIX_run.json: what must be known to repeat the run or to doubt it. No secrets."""

    def __init__(self, prefix: str, *, locustfile: str) -> None:
        self.path = Path(f"{prefix}_run.json")
        self._document: dict[str, Any] = {
            "format": RUN_FORMAT,
            "records_version": RECORD_VERSION,
            "command": _command_without_secrets(sys.argv),
            "locustfile": locustfile,
            "versions": {name: version(name) for name in ("pd-locust", "locust", "gevent")}
            | {"python": platform.python_version()},
            "host": {"platform": platform.platform(), "cpu_count": os.cpu_count()},
            "runs": [],
        }
        self.doubts: tuple[Doubt, ...] = ()
        self._calibration: dict[str, Any] | None = None
        self._workers = 1

    def begin(
        self, setup: LoadSetup, settings: Settings, options: dict[str, Any], *, simulated: bool, workers: int
    ) -> None:
        """Describe the run that starts now."""
        self._calibration, self._workers = stored(), workers
        self.doubts = setup.doubts
        self._document |= {
            "target": {"base_url": setup.base_url, "model": setup.model, "simulated": simulated},
            "tiers": [
                {
                    "name": fitted.tier.name,
                    "prompt_tokens": fitted.tier.prompt_tokens,
                    "max_tokens": fitted.tier.max_tokens,
                    "fitted_tokens": fitted.tokens,
                }
                for fitted in setup.tiers
            ],
            "seed": setup.seed,
            "ignore_eos": setup.ignore_eos,
            "labels": settings.labels,
            "slo": str(settings.slo),
            "headroom": settings.headroom,
            "confidence": settings.confidence,
            "workers": workers,
            "options": _plain(options),
            "calibration": self._calibration,
        }
        self._document["runs"].append(
            {"run": setup.run, "started_unix_s": round(time.time(), 3), "ended_unix_s": None}
        )
        # Levels that cannot be read are the shape's to refuse.
        levels = [int(level) for level in split_names(options.get("pd_levels") or "") if level.isdecimal()]
        self.held(max(options.get("num_users") or 0, *levels, 0))
        self._save()

    def held(self, users: int) -> None:
        """Doubt a load of which a process of this machine was measured to carry less; once a run.

        Nothing is said of a calibration that carried nothing: it was disturbed. Workers may be on other machines,
        which have not been measured; with them the users of one are compared all the same.
        """
        each = users / max(1, self._workers)
        carried = self._calibration["streams"] if self._calibration else 0
        if not carried or each <= carried or any(doubt.code == "beyond-calibration" for doubt in self.doubts):
            return
        doubt = beyond_calibration("load generator", each, carried)
        logger.warning("%s", doubt.told(Speech.chosen()))
        self.doubts += (doubt,)
        self._save()

    def end(self) -> None:
        """Note that the current run is over."""
        runs = self._document["runs"]
        if runs and runs[-1]["ended_unix_s"] is None:
            runs[-1]["ended_unix_s"] = round(time.time(), 3)
            self._save()

    def _save(self) -> None:
        # Replaced whole: a reader never sees half a document.
        self._document["doubts"] = [doubt.to_json() for doubt in self.doubts]
        draft = self.path.with_suffix(".json.tmp")
        draft.write_text(json.dumps(self._document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(self.path)


_SECRET_OPTIONS = ("--pd-api-key", "--pd-header")


def _command_without_secrets(argv: list[str]) -> list[str]:
    program = Path(argv[0]).name
    shown = ["locust" if program == "__main__.py" else program]
    hide_next = False
    for word in argv[1:]:
        name, equals, _value = word.partition("=")
        # argparse takes an unambiguous beginning for the whole name.
        secret = name.startswith("--") and any(option.startswith(name) for option in _SECRET_OPTIONS)
        if hide_next:
            shown.append("***")
        elif equals and secret:
            shown.append(f"{name}=***")
        else:
            shown.append(word)
        hide_next = secret and not equals
    return shown


_HIDDEN_OPTIONS = frozenset({"pd_api_key", "pd_header", "web_login", "tls_key"})


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Keep options that differ from nothing and hold no secret, as JSON can hold them."""
    return {
        name: value
        for name, value in sorted(options.items())
        if name not in _HIDDEN_OPTIONS
        and value not in (None, "", [], False)
        and isinstance(value, (str, int, float, bool, list))
    }
