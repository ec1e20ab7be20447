"""Files that take a library of their own: the tables as an Excel workbook, the records as Parquet."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pandas as pd

from pd_locust.analysis.csvfile import whole_lines
from pd_locust.analysis.export import csv_tables
from pd_locust.errors import ConfigError
from pd_locust.record import RequestRecord

if TYPE_CHECKING:
    from pathlib import Path

    from pd_locust.analysis.report import Report

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
