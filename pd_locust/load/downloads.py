"""What the web UI lets one take home while the run goes on: the records so far, and the report on them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import gevent
from flask import Response
from gevent.lock import BoundedSemaphore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pd_locust.load.recorder import RecordsFile

_PIECE_BYTES = 1 << 16
_REPORT_LIMIT_S = 120.0
_NICE = ["nice", "-n", "10"] if shutil.which("nice") else []


class Downloads:
    """Files as they are now. pandas runs in a process of its own, at low priority, one at a time."""

    def __init__(self, records: RecordsFile) -> None:
        self._records = records
        self._one_at_a_time = BoundedSemaphore()

    @property
    def _name(self) -> str:
        return self._records.path.name.removesuffix("_requests.csv")

    def requests(self) -> Response:
        """PREFIX_requests.csv so far, whole rows only."""
        size = self._size()
        return _attachment(
            self._pieces(size), self._records.path.name, "text/csv", {"Content-Length": str(size)}
        )

    def html(self) -> Response:
        """The report that `pd-locust report` writes."""
        return self._report("report.html", "text/html")

    def tables(self) -> Response:
        """All of its other files."""
        return self._report("tables.zip", "application/zip")

    def _size(self) -> int:
        # Nothing can be written between the two lines: no greenlet switch is in them.
        self._records.flush()
        return self._records.path.stat().st_size

    def _pieces(self, size: int) -> Iterator[bytes]:
        with self._records.path.open("rb") as file:
            while size > 0 and (piece := file.read(min(size, _PIECE_BYTES))):
                size -= len(piece)
                yield piece
                gevent.sleep(0)

    def _report(self, wanted: str, mimetype: str) -> Response:
        with self._one_at_a_time, tempfile.TemporaryDirectory(prefix="pd_report") as folder:
            prefix = Path(folder) / self._name
            # A copy: the report must not meet a row that is being written.
            with Path(f"{prefix}_requests.csv").open("wb") as copy:
                copy.writelines(self._pieces(self._size()))
            run_file = self._records.path.with_name(f"{self._name}_run.json")
            if run_file.exists():
                shutil.copyfile(run_file, f"{prefix}_run.json")
            problem = _make_report(prefix, wanted)
            made = Path(f"{prefix}_{wanted}")
            if problem or not made.exists():
                return Response(
                    f"no report yet: {problem or 'it was not written'}\n", 503, mimetype="text/plain"
                )
            return _attachment(made.read_bytes(), made.name, mimetype, {})


def _make_report(prefix: Path, wanted: str) -> str:
    """Run `pd-locust report`, and zip its files if that is wanted; return what went wrong, or nothing."""
    report = [*_NICE, sys.executable, "-m", "pd_locust.cli", "report", str(prefix)]
    problem = _run(report, prefix.parent)
    if problem or not wanted.endswith(".zip"):
        return problem
    inputs = {"requests.csv", "run.json", "report.html"}
    names = [path.name for path in sorted(prefix.parent.iterdir())]
    tables = [name for name in names if name.removeprefix(f"{prefix.name}_") not in inputs]
    return _run(
        [*_NICE, sys.executable, "-m", "zipfile", "-c", f"{prefix.name}_{wanted}", *tables], prefix.parent
    )


def _run(command: list[str], folder: Path) -> str:
    # Locust has patched subprocess: only this greenlet waits.
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_REPORT_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {_REPORT_LIMIT_S:.0f} s"
    return "" if done.returncode == 0 else (done.stderr.strip() or "unknown error").splitlines()[-1]


def _attachment(body: bytes | Iterator[bytes], name: str, mimetype: str, headers: dict[str, str]) -> Response:
    disposition = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(body, mimetype=mimetype, headers=disposition | headers)
