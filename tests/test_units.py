from __future__ import annotations

from pd_locust.units import format_count, format_ms, format_percent, ns_to_ms


def test_nanoseconds_are_milliseconds_to_the_microsecond():
    assert [ns_to_ms(ns) for ns in (0, 1_000_000, 1_234_567, 499, 500_000_000_000)] == [
        0.0,
        1.0,
        1.235,
        0.0,
        500_000.0,
    ]


def test_absent_is_absent_in_every_form():
    assert ns_to_ms(None) is None
    assert [format_ms(None), format_count(None), format_percent(None)] == ["n/a", "n/a", "n/a"]


def test_milliseconds_have_one_decimal_and_thousands_are_separated():
    assert [format_ms(ms) for ms in (391.4, 6.94, 0.0, 1092.9, 12_345.67)] == [
        "391.4",
        "6.9",
        "0.0",
        "1,092.9",
        "12,345.7",
    ]


def test_counts_are_whole():
    assert [format_count(count) for count in (0, 427.4, 3400, 20_890)] == ["0", "427", "3,400", "20,890"]


def test_hundred_per_cent_is_said_only_when_nothing_is_missing():
    assert [format_percent(ratio) for ratio in (1.0, 999_999 / 1_000_000, 0.5, 0.0, 0.1234)] == [
        "100 %", "99.99 %", "50 %", "0 %", "12.34 %",
    ]  # fmt: skip
