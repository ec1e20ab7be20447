"""What a calibration says, where it is kept, and which runs it makes doubtful."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from pd_locust.errors import PdLocustError
from pd_locust.load import calibrate
from pd_locust.load.calibrate import Calibration, Level, store, stored
from pd_locust.load.recorder import RunFile


def calibration(*levels: tuple[int, float], limit_ms: float = 1.0) -> Calibration:
    """Levels as (streams, error at p99); 400 streams would take a whole core."""
    return Calibration(
        limit_ms, tuple(Level(n, 400, n * 96, 0.2, p99_ms, n / 400, 24.0) for n, p99_ms in levels), 0.5
    )


def test_the_largest_level_within_the_limit_is_the_best():
    found = calibration((64, 0.4), (128, 0.9), (256, 1.1))

    assert found.best.streams == 128
    assert found.disturbed == []
    assert found.answer == "one process carries 128 streams, 12,288 events/s, with TTFT within 1 ms at p99"


def test_a_level_that_a_run_would_call_client_limited_is_not_recommended():
    found = calibration((192, 0.1), (340, 0.2), (341, 0.3))

    assert (found.levels[1].cpu_share, found.best.streams) == (0.85, 340)
    assert found.disturbed == []


def test_a_level_was_disturbed_when_a_larger_one_kept_the_limit():
    found = calibration((64, 3.0), (128, 0.9), (256, 9.0))

    assert found.best.streams == 128
    assert [level.streams for level in found.disturbed] == [64]
    assert "64 streams were disturbed: something else used this machine meanwhile" in found.lines()


def test_without_a_level_within_the_limit_there_is_no_best():
    found = calibration((64, 3.0), (128, 4.0))

    assert found.best is None
    assert found.disturbed == []
    assert (found.to_json()["streams"], found.to_json()["events_per_s"]) == (0, 0)
    assert found.answer.startswith("no level keeps TTFT within 1 ms at p99")


def test_the_table_fits_into_80_columns():
    lines = calibration((8, 0.111), (1024, 123.456), limit_ms=200).lines()[:-1]

    assert max(map(len, lines)) <= 80
    assert lines[2] == "  1,024       400    98,304                0.20 123.46          24.0       256%"


def test_how_late_the_service_noticed_a_request_is_no_error_of_the_client():
    # Sent at 7.000 s, noticed 40 ms later, first token written at 7.240 s and seen 0.25 ms after that.
    row = {"request_id": "a", "part": "sample", "ttft_ms": "240.25", "sent_unix_us": "1700000007000000"}
    row["client_cpu_share"] = "0.5"
    truth = {"a": {"received_ns": 7_040_000_000, "first_token_ns": 7_240_000_000, "done_ns": 7_720_000_000}}

    level = calibrate._level(1, [row], truth, ahead_ns=1_700_000_000 * 10**9)

    assert (level.error_p50_ms, level.error_p99_ms) == (0.25, 0.25)
    # 64 tokens, a role, the finish, the usage and [DONE] in 0.68 s; half a core for 100 events a second.
    assert (level.events_per_s, level.us_per_event) == (100, 5000)


def test_how_late_the_service_was_is_read_from_its_histogram():
    bucket = 'pd_locust_sim:token_lateness_seconds_bucket{model_name="m",le="%s"} %d'

    late = "\n".join(bucket % one for one in [("0.0005", 980), ("0.002", 995), ("+Inf", 1000)])
    beyond = "\n".join(bucket % one for one in [("0.0005", 980), ("+Inf", 1000)])

    assert calibrate._late_below_ms(late) == 2
    assert calibrate._late_below_ms(beyond.replace("+Inf", "inf")) is None


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pd_locust" / "calibration.json"


def test_a_stored_calibration_is_read_back(cache):
    document = calibration((64, 0.4)).to_json()

    assert stored() is None
    assert store(document) == cache
    assert stored() == document


@pytest.mark.parametrize(
    "stale",
    [
        {"format": 0},
        {"host": {"name": "another-machine"}},
        {"versions": {"pd-locust": "0.0.1"}},
    ],
    ids=["format", "machine", "version"],
)
def test_a_calibration_of_something_else_is_not_read(cache, stale):
    store(calibration((64, 0.4)).to_json() | stale)

    assert cache.exists()
    assert stored() is None


@pytest.mark.parametrize("text", ["", "[]", "{", '"64"'])
def test_a_broken_file_is_no_calibration(cache, text):
    cache.parent.mkdir(parents=True)
    cache.write_text(text)

    assert stored() is None


def test_a_cache_that_cannot_be_written_is_said(cache):
    cache.parent.parent.write_text("a file where a directory should be")

    with pytest.raises(PdLocustError, match=r"calibration.json: .*; the calibration is not kept"):
        store(calibration((64, 0.4)).to_json())


SETUP = SimpleNamespace(
    base_url="http://127.0.0.1:1", model="m", tiers=(), seed=1, ignore_eos=True, doubts=(), run=1
)
SETTINGS = SimpleNamespace(labels={}, slo="ttft_mean<=500ms", headroom=0.2, confidence=0.95)


def begun(tmp_path, *, workers: int = 1, **options) -> RunFile:
    run = RunFile(str(tmp_path / "run"), locustfile="locustfile.py")
    run.begin(SETUP, SETTINGS, options, simulated=False, workers=workers)
    return run


def written(tmp_path):
    return json.loads((tmp_path / "run_run.json").read_text())


def test_a_run_carries_the_calibration_and_no_doubt_within_it(cache, tmp_path):
    document = calibration((64, 0.4)).to_json()
    store(document)

    begun(tmp_path, num_users=64)

    assert cache.exists()
    assert written(tmp_path)["calibration"] == document
    assert written(tmp_path)["doubts"] == []


@pytest.mark.parametrize(
    ("options", "each"),
    [({"num_users": 65}, 65), ({"num_users": 1, "pd_levels": "16,200"}, 200)],
    ids=["users", "levels"],
)
def test_a_run_beyond_the_calibration_is_doubted_when_it_begins(cache, tmp_path, options, each):
    store(calibration((64, 0.4)).to_json())

    begun(tmp_path, **options)

    (doubt,) = written(tmp_path)["doubts"]
    assert cache.exists()
    assert doubt["code"] == "beyond-calibration"
    assert doubt["seen"] == f"{each} users a process, where this machine was measured to carry 64"


def test_a_level_that_a_search_came_to_is_doubted_once(cache, tmp_path):
    store(calibration((64, 0.4)).to_json())
    run = begun(tmp_path)

    for users in (32, 64, 128, 256):
        run.held(users)

    assert cache.exists()
    assert [doubt["code"] for doubt in written(tmp_path)["doubts"]] == ["beyond-calibration"]
    assert written(tmp_path)["doubts"][0]["seen"].startswith("128 users a process")


def test_users_are_counted_by_process(cache, tmp_path):
    store(calibration((64, 0.4)).to_json())

    begun(tmp_path, workers=2, num_users=128).held(128)

    assert cache.exists()
    assert written(tmp_path)["doubts"] == []


def test_without_a_calibration_nothing_is_doubted(cache, tmp_path):
    begun(tmp_path, num_users=10_000)

    assert not cache.exists()
    assert written(tmp_path)["calibration"] is None
    assert written(tmp_path)["doubts"] == []
