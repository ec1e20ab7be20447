"""The parts of the load that need neither Locust's runner nor a service."""

from __future__ import annotations

import random
import re
from argparse import ArgumentParser
from dataclasses import replace
from types import SimpleNamespace

import locust.argument_parser
import locust.stats
import pytest

from pd_locust.errors import ConfigError
from pd_locust.load import options, settings
from pd_locust.load.failure_limit import FailureWindow
from pd_locust.load.locust_patches import keep_out_of_total
from pd_locust.load.phases_on_workers import _WorkerWatch
from pd_locust.load.plugin import _parse_defaults_once
from pd_locust.load.recorder import RecordsFile, _command_without_secrets, recorded_levels
from pd_locust.load.setup import prepare
from pd_locust.load.shapes import BenchmarkShape, CapacityShape, protocol
from pd_locust.load.users import Backoff
from pd_locust.phase import Phase, PhaseKind, level_phase
from pd_locust.prompt import interleave
from pd_locust.ramp import Latencies
from pd_locust.record import Outcome, Part, RequestContext, RequestRecord
from pd_locust.stream import Category, StreamTiming
from pd_locust.tier import STANDARD_TIERS, choose_tiers


def record(
    e2e_ms: float, *, phase: str = "sweep/short/10", users: int = 10, tier: str = "short"
) -> RequestRecord:
    seen = RequestContext("id", 1, phase, tier, users, Part.SAMPLE, 0, 1, 1_000_000, 1)
    timing = StreamTiming(0, text_ns=[int(e2e_ms * 5e5)], end_ns=int(e2e_ms * 1e6), finish_reason="length")
    return RequestRecord.from_timing(seen, timing)


def test_ttft_and_tpot_have_rows_of_their_own_and_are_not_in_the_total():
    stats = locust.stats.RequestStats()
    keep_out_of_total(stats)
    for kind, value in [("POST", 900), ("TTFT", 120), ("TPOT", 8)]:
        stats.log_request(kind, "short", value, 0)
    assert stats.total.num_requests == 1
    assert stats.total.total_response_time == 900
    assert {key: entry.num_requests for key, entry in stats.entries.items()} == {
        ("short", "POST"): 1, ("short", "TTFT"): 1, ("short", "TPOT"): 1,
    }  # fmt: skip


def test_a_user_backs_off_in_steps_and_starts_over_after_a_success():
    backoff = Backoff(random.Random(1))
    first, second, third, fourth = (backoff.next_s() for _ in range(4))
    assert 0.75 <= first <= 1.25
    assert 3 <= second <= 5
    assert 11.25 <= third <= 18.75
    assert 11.25 <= fourth <= 18.75
    backoff.reset()
    assert backoff.next_s() <= 1.25


def test_retry_after_is_honoured_up_to_a_minute():
    assert Backoff(random.Random(1)).next_s(7) == 7
    assert Backoff(random.Random(1)).next_s(3600) == 60
    assert Backoff(random.Random(1)).next_s(0) >= 0.75


def test_a_run_is_aborted_when_more_than_the_allowed_share_of_the_window_failed():
    window = FailureWindow(0.5)
    for index in range(49):
        assert window.note(index / 10, Category.SERVER_ERROR, "server_error: HTTP 503") is None
    last_word = window.note(5, Category.SERVER_ERROR, "server_error: HTTP 503")
    assert last_word is not None
    assert last_word.startswith("run aborted: 50 of 50 requests in the last 30 s failed")
    assert "50 of them as server_error: HTTP 503" in last_word


def test_failures_that_have_left_the_window_do_not_count():
    window = FailureWindow(0.5)
    for _ in range(45):
        window.note(0, Category.RESET, "reset")
    assert [window.note(40 + index / 100, None, "") for index in range(60)] == [None] * 60
    assert window.note(41, Category.RESET, "reset") is None


def test_a_ratio_of_one_never_aborts():
    window = FailureWindow(1)
    assert [window.note(0, Category.RESET, "reset") for _ in range(200)] == [None] * 200


def test_users_start_over_a_second_until_a_latency_is_known_and_then_over_about_one():
    latencies = Latencies()
    assert latencies.with_ramp(level_phase("short", 10)).ramp_s == 1.0
    latencies.note(level_phase("short", 10), [record(400), record(600)])
    assert latencies.with_ramp(level_phase("short", 10)).ramp_s == 0.5
    assert latencies.with_ramp(level_phase("short", 20)).ramp_s == 0.75
    assert latencies.with_ramp(level_phase("short", 5)).ramp_s == 0.5
    assert latencies.with_ramp(level_phase("long", 5)).ramp_s == 1.0
    assert latencies.with_ramp(Phase("single/short", PhaseKind.COUNT, users=1, tier="short")).ramp_s == 0.0


def test_a_mix_interleaves_its_tiers_evenly():
    turns = interleave({"short": 3, "long": 1})
    assert [next(turns) for _ in range(8)] == ["short", "short", "long", "short"] * 2


def test_records_of_levels_are_read_back_as_they_were_written(tmp_path):
    written = [record(400), record(500), record(9, phase="stream"), record(600, phase="sweep/short/10/2")]
    file = RecordsFile(str(tmp_path / "run"))
    file.write(one.to_row() for one in written)
    file.close()
    levels = recorded_levels(str(tmp_path / "run"))
    assert [(phase.name, rows) for phase, rows in levels] == [
        ("sweep/short/10", written[:2]), ("sweep/short/10/2", written[3:]),
    ]  # fmt: skip
    phase, rows = levels[0]
    assert (phase.users, rows[0].outcome) == (10, Outcome.SUCCESS)


def test_levels_of_two_runs_in_one_file_are_two_holds(tmp_path):
    written = [replace(record(400 + run), run=run) for run in (1, 2, 1)]
    file = RecordsFile(str(tmp_path / "run"))
    file.write(one.to_row() for one in written)
    file.close()

    levels = recorded_levels(str(tmp_path / "run"))
    assert [(phase.name, [row.run for row in rows]) for phase, rows in levels] == [
        ("sweep/short/10", [1, 1]), ("sweep/short/10", [2]),
    ]  # fmt: skip


def test_a_file_to_resume_from_that_is_none_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"--pd-resume: .*none_requests.csv: No such file"):
        recorded_levels(str(tmp_path / "none"))
    (tmp_path / "odd_requests.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="is not a records file"):
        recorded_levels(str(tmp_path / "odd"))


def test_the_recorded_command_has_no_secrets():
    words = [
        "/x/bin/locust",
        "--pd-api-key",
        "sk-1",
        "--pd-api-key=sk-2",
        "--pd-header",
        "X-Key: sk-3",
        "--users",
        "4",
    ]
    assert _command_without_secrets(words) == [
        "locust", "--pd-api-key", "***", "--pd-api-key=***", "--pd-header", "***", "--users", "4",
    ]  # fmt: skip


def test_an_abbreviated_option_hides_its_secret_as_well():
    words = [
        "/venv/locust/__main__.py",
        "--pd-api",
        "sk-1",
        "--pd-head",
        "X-Key: sk-2",
        "--pd-tiers",
        "a",
    ]
    assert _command_without_secrets(words) == [
        "locust", "--pd-api", "***", "--pd-head", "***", "--pd-tiers", "a",
    ]  # fmt: skip


def test_the_key_is_kept_outside_of_the_parsed_options():
    secret = options.Secret()
    parser = ArgumentParser()
    parser.add_argument("--pd-api-key", type=secret.keep, default="")
    parsed = parser.parse_args(["--pd-api-key", "sk-1"])
    assert vars(parsed) == {"pd_api_key": ""}
    assert secret.reveal() == "sk-1"
    assert "sk-1" not in repr(secret)


@pytest.mark.parametrize("text", ["16,x", "0", "-4", "1.5"])
def test_levels_that_are_none_are_refused(text):
    with pytest.raises(ConfigError, match="--pd-levels"):
        settings.read_levels(text)


def test_levels_are_sorted_and_each_is_held_once():
    assert settings.read_levels("64, 16,64") == [16, 64]
    assert settings.read_levels("") == []


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ('{"stream": false}', "stream is the benchmark's own to set"),
        ("[1]", "expected a JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_an_extra_body_that_would_break_the_benchmark_is_refused(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        settings.extra_body_of(SimpleNamespace(pd_thinking="server", pd_extra_body=given))


def test_thinking_is_a_field_of_the_chat_template():
    asked = settings.extra_body_of(SimpleNamespace(pd_thinking="off", pd_extra_body='{"temperature": 0}'))
    assert asked == {"chat_template_kwargs": {"enable_thinking": False}, "temperature": 0}


def test_a_spawn_message_builds_no_parser_once_the_defaults_are_known(monkeypatch):
    built = []
    build = locust.argument_parser.setup_parser_arguments
    monkeypatch.setattr(
        locust.argument_parser,
        "setup_parser_arguments",
        lambda parser: (built.append(parser), build(parser))[1],
    )
    monkeypatch.setattr(locust.argument_parser, "default_args_dict", locust.argument_parser.default_args_dict)
    _parse_defaults_once()
    _parse_defaults_once()
    # What a worker does with the options of every spawn message.
    ours = [name for name in ("host", "pd_tiers") if name not in locust.argument_parser.default_args_dict()]
    again = [name for name in ("host", "pd_tiers") if name not in locust.argument_parser.default_args_dict()]

    assert ours == again == ["pd_tiers"]
    assert len(built) == 1


def count_phase(*words: str) -> Phase:
    """The exact count of a benchmark of two tiers that is asked for with these options."""
    parser = ArgumentParser()
    parser.add_argument("--users", dest="num_users", type=int)
    options.add_benchmark_arguments(parser)
    given = parser.parse_args(["--pd-levels", "", *words])
    chosen = choose_tiers(["short", "medium"], STANDARD_TIERS)
    return protocol(SimpleNamespace(tiers=chosen, search_tiers=("short",)), given)[-1]


def test_the_exact_count_is_of_the_tier_that_was_named_else_of_medium():
    assert count_phase().tier == "medium"
    assert count_phase("--pd-concurrency-tier", "short").tier == "short"


def test_a_tier_that_there_is_not_is_never_replaced_by_another():
    # argparse completes a beginning that is unambiguous: this asks for the tier "64".
    with pytest.raises(ConfigError, match=r"^unknown tier '64'; there are short, medium$"):
        count_phase("--pd-concurrency", "64")


def read(*words: str) -> settings.Settings:
    parser = ArgumentParser()
    options.add_arguments(parser)
    options.add_capacity_arguments(parser)
    return settings.Settings.read(parser.parse_args(words))


def test_without_a_check_the_mix_is_sent_all_the_same():
    mixed = read("--pd-no-check", "--pd-mix", "short=6,long=1")

    setup = prepare(mixed, mixed.tiers, base_url="http://host", api_key=None, model="m", run=1)

    assert setup.mix == {"short": 6, "long": 1}


def test_only_tiers_that_will_be_held_are_prepared():
    given = SimpleNamespace(pd_levels="", pd_sweep_tiers=None)

    assert CapacityShape.tiers_to_measure(None, read(), given) == {"short", "medium", "long"}
    assert CapacityShape.tiers_to_measure(None, read("--pd-mix", "xlong=1"), given) == {
        "short", "medium", "long", "xlong",
    }  # fmt: skip

    def of_benchmark(*words: str) -> set[str]:
        parser = ArgumentParser()
        parser.add_argument("--users", dest="num_users", type=int)
        options.add_benchmark_arguments(parser)
        return BenchmarkShape.tiers_to_measure(None, read(), parser.parse_args(words))

    assert of_benchmark() == {"short", "medium", "long", "xlong"}
    assert of_benchmark("--pd-single-requests", "0") == {"short", "medium", "long"}
    assert of_benchmark("--pd-single-requests", "0", "--pd-levels", "") == {"medium"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--pd-first-token-timeout", "inf"), "--pd-first-token-timeout must be greater than 0, and finite"),
        (("--pd-idle-timeout", "nan"), "--pd-idle-timeout must be greater than 0, and finite"),
        (("--pd-level-max-s", "0"), "--pd-level-max-s must be greater than 0"),
        (("--pd-slo", "ttft_mean<=0ms"), "a latency of 0 is kept by no request"),
        (("--pd-header", "X-Team: \u5e73\u53f0"), "HTTP headers hold ASCII names and Latin-1 values only"),
        (("--pd-extra-body", '{"max_tokens": 9}'), "--pd-extra-body: max_tokens is set by --pd-max-tokens"),
        (("--pd-extra-body", '{"model": "x"}'), "--pd-extra-body: model is set by --pd-model"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(words, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        read(*words)


def test_a_field_of_the_chat_template_goes_beside_thinking_and_may_replace_it():
    def sent(body):
        return read("--pd-thinking", "off", "--pd-extra-body", body).extra_body["chat_template_kwargs"]

    assert sent('{"chat_template_kwargs": {"own": 1}}') == {"enable_thinking": False, "own": 1}
    assert sent('{"chat_template_kwargs": {"enable_thinking": true}}') == {"enable_thinking": True}


def test_workers_that_come_or_go_are_noticed_and_a_late_heartbeat_is_not(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr("pd_locust.load.phases_on_workers.time", SimpleNamespace(monotonic=lambda: now_s))
    seen = []
    watch = _WorkerWatch({"a", "b"})
    for now_s, there in [(0, "ab"), (5, "a"), (12, "ab"), (20, "a"), (29, "a"), (31, "a")]:  # noqa: B007
        seen.append(watch.has_changed(set(there)))

    assert seen == [False] * 5 + [True]


@pytest.mark.parametrize(("requests", "first"), [(143, 8), (144, 96)])
def test_a_resumed_hold_counts_only_with_the_sample_that_a_verdict_takes(requests, first):
    # 48 users, clearly within the limit; its first sample is three requests a user.
    rows = [record(400 + n % 7, phase="sweep/short/48", users=48) for n in range(requests)]
    plugin = SimpleNamespace(
        settings=read("--pd-tiers", "short"),
        live=None,
        refused=True,
        resumed_levels=lambda _tier: [(48, rows)],
    )
    options_of_search = SimpleNamespace(pd_start=8, pd_max_users=1024, pd_resolution=1, pd_level_max_s=60)

    script = CapacityShape().script(plugin, options_of_search)
    assert next(script).phase.users == first
    script.close()
