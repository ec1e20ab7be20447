"""A Report for programs: JSON and CSV. Keys and columns are English in every language."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from pd_locust.analysis.run import file_of

if TYPE_CHECKING:
    from pathlib import Path

    from pd_locust.analysis.report import Report
    from pd_locust.analysis.table import Table

REPORT_FORMAT = 1


def to_json(report: Report) -> dict[str, Any]:
    """Plain data with stable keys: milliseconds, tokens, shares of 1; absent is None."""
    return {
        "format": REPORT_FORMAT,
        "source": report.source,
        "run": report.run.document,
        "slo": str(report.slo),
        "headroom": report.headroom,
        "pairs": report.pairs,
        "answers": list(report.answers),
        **{table.name: list(table.rows) for table in (*csv_tables(report), report.failures)},
        "cut": report.cut,
        "warnings": [doubt.to_json() for doubt in report.doubts],
        "notes": list(report.notes),
    }


def write_tables(report: Report, prefix: Path) -> list[Path]:
    """Write PREFIX_single_stream.csv, _concurrency.csv, _capacity.csv and _levels.csv, empty ones too."""
    paths = []
    for table in csv_tables(report):
        path = file_of(prefix, f"{table.name}.csv")
        path.write_text(to_csv(table), encoding="utf-8", newline="")
        paths.append(path)
    return paths


def to_csv(table: Table) -> str:
    """All columns of a table, a header first; absent is the empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [column.name for column in table.columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return text.getvalue()


def csv_tables(report: Report) -> tuple[Table, ...]:
    """Return the tables that have a CSV file each."""
    return report.single_stream, report.concurrency, report.capacity, report.levels
