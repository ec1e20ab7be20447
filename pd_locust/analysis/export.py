"""A Report for programs: JSON and CSV. Keys and columns are English in every language."""

from __future__ import annotations

import csv
import importlib
import io
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pandas as pd

from pd_locust.analysis.csvfile import whole_lines
from pd_locust.analysis.run import file_of
from pd_locust.errors import ConfigError
from pd_locust.record import RequestRecord

if TYPE_CHECKING:
    from pathlib import Path

    from pd_locust.analysis.report import Report
    from pd_locust.analysis.tables import Table

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


_WIDEST = 60


def write_workbook(report: Report, path: Path) -> Path:
    """Write one sheet a table with the columns of its CSV file, and what is known about the run.

    Raises ConfigError without openpyxl, and when the path cannot be written.
    """
    _need("openpyxl", "--excel", "excel")
    sheets = {
        table.name: pd.DataFrame(list(table.rows), columns=[column.name for column in table.columns])
        for table in (*csv_tables(report), report.failures)
    }
    doubts = [doubt.to_json() for doubt in report.doubts]
    sheets["warnings"] = pd.DataFrame(doubts, columns=["code", "where", "seen", "cause", "remedy"])
    sheets["run"] = pd.DataFrame(report.run.facts(), columns=["fact", "value"])
    try:
        with pd.ExcelWriter(path, engine="openpyxl") as book:
            for name, frame in sheets.items():
                frame.to_excel(book, sheet_name=name, index=False, freeze_panes=(1, 0))
                sheet = book.sheets[name]
                for cells in sheet.columns:
                    longest = max(len(str(cell.value or "")) for cell in cells)
                    sheet.column_dimensions[cells[0].column_letter].width = min(longest + 2, _WIDEST)
    except OSError as error:
        raise ConfigError(f"--excel {path}: {error.strerror or error}") from None
    return path


def write_parquet(records: Path, path: Path) -> Path:
    """Write PREFIX_requests.csv as Parquet, block by block: memory does not grow with the number of records.

    Columns have the types of RequestRecord; absent is null. Raises ConfigError without pyarrow, when there are no
    records or a line is none, and when the path cannot be written.
    """
    parquet = _need("pyarrow.parquet", "--parquet", "parquet")
    pyarrow, read = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.csv")
    kinds = {"int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    types = {
        field.name: kinds.get(str(field.type).removesuffix(" | None"), pyarrow.string())
        for field in fields(RequestRecord)
    }
    try:
        with whole_lines(records) as lines:
            blocks = read.open_csv(
                lines,
                convert_options=read.ConvertOptions(column_types=types, strings_can_be_null=True),
            )
            with parquet.ParquetWriter(path, blocks.schema) as writer:
                for block in blocks:
                    writer.write_batch(block)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise ConfigError(f"--parquet {path}, from {records.name}: {error}") from None
    return path


def _need(package: str, option: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ConfigError(
            f"{option} needs {package.partition('.')[0]}: pip install 'pd-locust[{extra}]'"
        ) from None
