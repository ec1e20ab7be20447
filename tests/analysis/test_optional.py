import csv
import sys
from pathlib import Path

import openpyxl
import pyarrow.parquet
import pytest

from pd_locust.cli import main
from pd_locust.record import COLUMNS, RequestRecord

pytestmark = pytest.mark.usefixtures("at_the_runs")


@pytest.fixture
def at_the_runs(runs, tmp_path, monkeypatch):
    for file in runs["base"].parent.glob("base_*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)


def report(*options):
    return main(["report", "base", *options])


def rows_of(name):
    with Path(name).open(newline="") as file:
        return list(csv.reader(file))


def test_every_table_is_a_sheet_with_the_cells_of_its_csv_file():
    assert report("--excel", "base.xlsx") == 0

    book = openpyxl.load_workbook("base.xlsx")
    assert book.sheetnames == [
        "single_stream", "concurrency", "capacity", "levels", "failures", "warnings", "run",
    ]  # fmt: skip
    for name in ("single_stream", "concurrency", "capacity", "levels"):
        header, *wanted = rows_of(f"base_{name}.csv")
        assert [cell.value for cell in book[name][1]] == header
        rows = list(book[name].iter_rows(min_row=2, values_only=True))
        assert len(rows) == len(wanted) == {"capacity": 1, "levels": 4}.get(name, 0)
        for row, texts in zip(rows, wanted, strict=True):
            for cell, text in zip(row, texts, strict=True):
                # A workbook keeps 16 digits.
                number = isinstance(cell, (int, float))
                assert float(text) == pytest.approx(cell, rel=1e-12) if number else text == (cell or "")


def test_parquet_holds_every_record_and_nothing_where_nothing_was():
    assert report("--parquet", "base.parquet", "--no-files") == 0

    seen = pyarrow.parquet.read_table("base.parquet")
    header, *rows = rows_of("base_requests.csv")
    assert tuple(seen.column_names) == tuple(header) == COLUMNS
    assert seen.num_rows == len(rows) > 1000
    texts = ("", None)
    for record, row in zip(seen.to_pylist()[:200], rows[:200], strict=True):
        wanted = RequestRecord.from_row(row)
        for name in COLUMNS[1:]:
            value = getattr(wanted, name)
            assert record[name] == value or (record[name] in texts and value in texts), name


def test_a_last_line_that_was_cut_is_left_out_of_parquet():
    records = Path("base_requests.csv")
    count = len(rows_of(records)) - 1
    records.write_bytes(records.read_bytes()[:-7])

    assert report("--parquet", "base.parquet", "--no-files") == 0
    assert pyarrow.parquet.read_metadata("base.parquet").num_rows == count - 1


@pytest.mark.parametrize(
    ("option", "package", "module"),
    # Not pyarrow itself: where it is there, pandas takes texts from it, and would find half of it gone.
    [("excel", "openpyxl", "openpyxl"), ("parquet", "pyarrow", "pyarrow.parquet")],
)
def test_without_its_library_an_export_says_what_to_install(option, package, module, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, None)

    assert report(f"--{option}", "file", "--no-files") == 2
    assert f"--{option} needs {package}: pip install 'pd-locust[{option}]'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["excel", "parquet"])
def test_a_path_that_cannot_be_written_is_one_sentence(option, capsys):
    assert report(f"--{option}", "no/such/file", "--no-files") == 2

    error = capsys.readouterr().err
    assert f"--{option} no/such/file" in error
    assert error.count("\n") == 1


def test_a_run_without_records_has_no_parquet():
    Path("base_requests.csv").rename("other.csv")
    Path("base_stats_history.csv").unlink(missing_ok=True)

    assert report("--parquet", "base.parquet", "--no-files") != 0
    assert not Path("base.parquet").exists()
