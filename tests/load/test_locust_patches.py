"""What replaces Locust's histogram buckets and CSV writer; the oracle is Locust's own."""

from __future__ import annotations

import random
from itertools import count
from types import SimpleNamespace

import gevent
import locust.stats
import pytest

from pd_locust.load.locust_patches import PreciseCsvWriter, bucket_response_time, percentiles

SHARES = locust.stats.PERCENTILES_TO_REPORT


@pytest.mark.parametrize(
    ("response_time", "bucket"),
    [
        (504, 504),
        (6.4249, 6.42),
        (6.9, 6.9),
        (1092.9, 1090),
        (0.0644, 0.064),
        (12345, 12300),
        (0, 0),
        (99.96, 100),
    ],
)
def test_buckets_keep_three_digits(response_time, bucket):
    assert bucket_response_time(response_time) == bucket


@pytest.mark.parametrize("seed", range(200))
def test_one_sort_gives_the_percentiles_that_locust_finds_one_by_one(seed):
    chance = random.Random(seed)
    times = {
        bucket_response_time(chance.lognormvariate(5, 1)): chance.randint(1, 9)
        for _ in range(chance.choice([1, 2, 40, 900]))
    }
    requests = sum(times.values())
    assert percentiles(times, requests, SHARES) == [
        locust.stats.calculate_response_time_percentile(times, requests, share) for share in SHARES
    ]


def writer_of(stats, tmp_path):
    return PreciseCsvWriter(
        SimpleNamespace(stats=stats, runner=SimpleNamespace(user_count=3, exceptions={})),
        SHARES,
        str(tmp_path / "run"),
    )


def busy_stats(monkeypatch, seconds=25):
    """Half a minute of three tiers, a tenth of it failures, on a clock that starts at 1,000,000 s."""
    clock = SimpleNamespace(now=1_000_000.0)
    monkeypatch.setattr("time.time", lambda: clock.now)
    stats = locust.stats.RequestStats(use_response_times_cache=True)
    chance = random.Random(5)
    for _ in range(seconds):
        for tier in ("short", "medium", "long"):
            for _ in range(chance.randint(0, 4)):
                failed = chance.random() < 0.1
                stats.log_request("POST", tier, None if failed else chance.lognormvariate(5, 1), 0)
                if failed:
                    stats.log_error("POST", tier, "server_error")
        clock.now += 1
    return stats


@pytest.mark.parametrize("use_current", [False, True])
@pytest.mark.parametrize("seconds", [2, 11, 25])
def test_a_row_has_the_percentiles_that_locust_would_write(monkeypatch, tmp_path, seconds, use_current):
    monkeypatch.setattr("locust.stats.bucket_response_time", bucket_response_time)
    stats = busy_stats(monkeypatch, seconds)
    writer = writer_of(stats, tmp_path)
    for entry in [*stats.entries.values(), stats.total]:
        read = (
            entry.get_current_response_time_percentile if use_current else entry.get_response_time_percentile
        )
        assert writer._percentile_fields(entry, use_current) == [read(share) or 0 for share in SHARES]


def test_streams_have_their_turn_before_each_row(monkeypatch, tmp_path):
    stats = busy_stats(monkeypatch)
    writer = writer_of(stats, tmp_path)
    turns = []

    def take_turns():
        while True:
            turns.append(len(turns))
            gevent.sleep(0)

    other = gevent.spawn(take_turns)
    writer._requests_data_rows(writer.requests_csv_writer)
    writer._stats_history_data_rows(writer.stats_history_csv_writer, 1_000_030.0)
    other.kill()
    rows = 2 * (len(stats.entries) + 1)
    assert rows == 8
    assert len(turns) >= rows


def test_a_run_that_ends_while_rows_are_made_leaves_the_last_ones_whole(monkeypatch, tmp_path):
    stats = busy_stats(monkeypatch)
    writer = writer_of(stats, tmp_path)
    writing = gevent.spawn(writer)
    gevent.sleep(0.3)  # the first rows are written; the next come a second later
    seen = tmp_path / "run_stats.csv"
    writer.requests_flush()
    whole = seen.read_text()
    assert len(whole.splitlines()) == 5
    calls = count()

    def stay_away_from_the_second_row_on(entry, **_):
        if next(calls):
            gevent.sleep(60)
        return [entry.num_requests] * len(SHARES)

    monkeypatch.setattr(writer, "_percentile_fields", stay_away_from_the_second_row_on)
    gevent.sleep(1)
    writer.close_files()
    writing.kill()
    assert seen.read_text() == whole
