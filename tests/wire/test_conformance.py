from __future__ import annotations

from wire.make_conformance import PAGE, page


def test_the_committed_page_is_in_step_with_the_code():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/wire/make_conformance.py"


def test_nothing_on_the_page_differs_from_what_was_expected():
    rows = [line for line in page().splitlines() if line.startswith("| ") and "expected | result" not in line]
    assert len(rows) > 180
    assert [row for row in rows if not row.endswith("| as expected |")] == []
