import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from analysis.virtual import SWEEP, slower, write_run

from pd_locust.analysis.expression import Expression
from pd_locust.analysis.gate import Outcome, gate
from pd_locust.analysis.report import build
from pd_locust.cli import main
from pd_locust.errors import ConfigError
from pd_locust.slo import Slo

DOCS = Path(__file__).parents[2] / "docs" / "ci.md"


def checked(runs, name, *expressions, baseline=True, **options):
    old = build(runs["base"]) if baseline else None
    return gate(build(runs[name]), old, [Expression.parse(text) for text in expressions], **options)


def outcomes(checks):
    return {check.expression: check.outcome for check in checks}


def test_an_equal_run_passes_the_default_gate(runs):
    assert outcomes(checked(runs, "same")) == {
        "tok_s<-5%": Outcome.KEPT,
        "tpot_mean>+5%": Outcome.KEPT,
        "ttft_p95>+10%": Outcome.KEPT,
        "failures>1%": Outcome.KEPT,
    }


def test_a_run_that_takes_twelve_per_cent_longer_misses_the_default_gate(runs):
    checks = checked(runs, "slower")

    assert outcomes(checks)["tok_s<-5%"] is Outcome.MISSED
    assert outcomes(checks)["tpot_mean>+5%"] is Outcome.MISSED
    tpot = next(check for check in checks if check.expression == "tpot_mean>+5%")
    assert tpot.seen == pytest.approx(12, abs=0.5)
    assert tpot.low < tpot.seen < tpot.high


def test_the_level_is_the_largest_that_passed_at_four_fifths_of_the_capacity_or_less(runs):
    # 16, 64 and 96 pass: 96 is the capacity, 64 is below 76.
    assert {check.users for check in checked(runs, "same")} == {64}


def test_a_run_of_one_fixed_level_is_checked_there(tmp_path):
    levels = [("concurrency/short/64", "short", 64, 1000)]
    old, new = (
        build(write_run(tmp_path / name, levels, seed=seed)) for seed, name in enumerate(("old", "new"))
    )

    assert {(check.users, check.outcome) for check in gate(new, old, [])} == {(64, Outcome.KEPT)}


def test_a_level_may_be_named(runs):
    assert {check.users for check in checked(runs, "same", at=96)} == {96}

    with pytest.raises(ConfigError, match="no level of 65 users was held in both runs; hold one"):
        checked(runs, "same", at=65)


def test_what_noise_explains_is_no_miss(runs):
    # 11.7 % longer, with an interval around it: more than 11.5 % cannot be shown.
    (check,) = checked(runs, "slower", "ttft_mean>+11.5%")

    assert check.outcome is Outcome.NOISE
    assert check.low < 11.5 < check.seen


def test_beyond_the_bound_with_too_few_requests_is_neither_passed_nor_missed(tmp_path, capsys):
    levels = [("sweep/short/16", "short", 16, 64)]
    old, new = (
        write_run(tmp_path / name, levels, profile=slower(share))
        for name, share in (("old", 0), ("new", 0.3))
    )

    # p95 of 64 requests has three beyond it.
    (check,) = gate(build(new), build(old), [Expression.parse("ttft_p95>+10%")])
    assert (check.outcome, check.low, check.high) == (Outcome.UNDECIDED, None, None)

    asked = ["--fail-if", "ttft_p95>+10%", "--fail-if", "failures>1%", "--junit", str(tmp_path / "gate.xml")]
    assert main(["gate", str(new), "--baseline", str(old), *asked]) == 0
    assert "passed: 1 of 2 checks; 1 not decided: too few requests" in capsys.readouterr().out
    suite = ET.fromstring((tmp_path / "gate.xml").read_text())  # noqa: S314 - our own file
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "1")
    assert [case.tag for case in suite.findall("testcase/*")] == ["skipped", "system-out"]


def test_what_neither_run_can_measure_is_not_decided_and_what_is_measured_no_longer_is_missed(runs, tmp_path):
    def without_tpot(name):
        prefix = write_run(tmp_path / name, SWEEP)
        path = tmp_path / f"{name}_requests.csv"
        frame = pd.read_csv(path, dtype=str)
        frame["tpot_ms"] = None
        frame.to_csv(path, index=False)
        return build(prefix)

    one_token, other = without_tpot("one"), without_tpot("other")

    def outcome(new, old):
        return gate(new, old, [Expression.parse("tpot_mean>+5%")])[0].outcome

    assert outcome(one_token, other) is Outcome.UNDECIDED
    assert outcome(one_token, build(runs["base"])) is Outcome.MISSED


def test_values_need_no_baseline(runs):
    checks = checked(runs, "base", "ttft_p95>60s", "ttft_p95>1ms", "tok_s<1", "failures>1%", baseline=False)

    assert [check.outcome for check in checks] == [Outcome.KEPT, Outcome.MISSED, Outcome.KEPT, Outcome.KEPT]


def test_a_capacity_is_missed_only_when_its_whole_bracket_is_below(runs):
    # The largest level that passed is 96, the smallest that failed 400.
    checks = checked(
        runs, "base", "capacity<96", "capacity.short<97", "capacity<400", "capacity<401", baseline=False
    )

    assert [check.outcome for check in checks] == [
        Outcome.KEPT,
        Outcome.NOISE,
        Outcome.MISSED,
        Outcome.MISSED,
    ]


def test_a_capacity_may_be_compared_with_the_baseline(runs):
    (check,) = checked(runs, "slower", "capacity.short<-5%")

    assert (check.old, check.new, check.outcome) == (96, 96, Outcome.KEPT)


def test_a_limit_is_judged_condition_by_condition(runs):
    checks = checked(runs, "base", baseline=False, slo=Slo.parse("ttft_mean<=500ms and tpot_mean<=1ms"))

    assert outcomes(checks) == {
        "ttft_mean<=500ms": Outcome.KEPT,
        "tpot_mean<=1ms": Outcome.MISSED,
        "failures<=1%": Outcome.KEPT,
    }


def test_a_run_in_which_everything_failed_misses(runs, tmp_path):
    broken = write_run(tmp_path / "broken", SWEEP, seed=4)
    path = tmp_path / "broken_requests.csv"
    path.write_text(path.read_text().replace(",success,,", ",failure,server_error,"))

    asked = ["ttft_p95>+10%", "tok_s<-5%", "req_s<-5%", "failures>1%"]
    checks = gate(build(broken), build(runs["base"]), [Expression.parse(text) for text in asked])

    assert [(check.expression, check.outcome) for check in checks] == [
        (text, Outcome.MISSED) for text in asked
    ]


def edited(prefix, edit):
    """The run, after `edit` has changed the frame of its records."""
    path = prefix.with_name(f"{prefix.name}_requests.csv")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    edit(frame)
    frame.to_csv(path, index=False)
    return prefix


def fail(frame, rows):
    frame.loc[rows, ["outcome", "category"]] = ["failure", "server_error"]


def test_a_service_that_went_down_after_some_answers_misses_its_throughput(tmp_path):
    # All but the first 150 of 1000 requests: some resamples of its rounds hold no token at all.
    levels = [("concurrency/short/64", "short", 64, 1000)]
    old = write_run(tmp_path / "old", levels)
    new = edited(write_run(tmp_path / "new", levels, seed=1), lambda frame: fail(frame, frame.index[150:]))

    (check,) = gate(build(new), build(old), [Expression.parse("tok_s<-5%")])

    assert check.outcome is Outcome.MISSED
    assert check.low < check.seen < check.high < -40


def test_without_a_baseline_a_run_that_failed_everywhere_is_missed_not_refused(tmp_path, capsys):
    broken = edited(write_run(tmp_path / "broken", SWEEP), lambda frame: fail(frame, frame.index))

    assert main(["gate", str(broken), "--slo", "ttft_p95<=800ms"]) == 3
    assert main(["gate", str(broken), "--fail-if", "failures>1%"]) == 3
    assert main(["gate", str(broken), "--fail-if", "tok_s<1000"]) == 3
    assert main(["gate", str(broken), "--fail-if", "capacity<170"]) == 3
    assert "no level" not in capsys.readouterr().err


def test_a_level_that_the_load_generator_limited_decides_nothing_but_of_failures(runs, tmp_path, capsys):
    late = write_run(tmp_path / "late", SWEEP, profile=slower(0.3))
    edited(late, lambda frame: frame.update(pd.DataFrame({"loop_lag_ms": ["200.0"] * len(frame)})))

    asked = ["ttft_mean>+5%", "ttft_mean>1ms", "failures>1%"]
    checks = gate(
        build(late),
        build(runs["base"]),
        [Expression.parse(text) for text in asked],
        Slo.parse("ttft_mean<=1ms"),
    )

    assert [check.outcome for check in checks] == [
        *(Outcome.LIMITED, Outcome.LIMITED, Outcome.KEPT),
        *(Outcome.LIMITED, Outcome.KEPT),
    ]
    command = ["gate", str(late), "--baseline", str(runs["base"]), "--fail-if", "ttft_mean>1ms"]
    assert main([*command, "--fail-if", "failures>1%"]) == 0
    assert "passed: 1 of 2 checks; 1 not decided: the load generator was the limit" in capsys.readouterr().out
    # A gate of which no check decides anything is not passed.
    assert main([*command, "--json", "-"]) == 2
    assert json.loads(capsys.readouterr().out)["passed"] is False
    assert main(command) == 2
    assert (
        "nothing could be decided; 1 not decided: the load generator was the limit" in capsys.readouterr().out
    )


def test_too_few_requests_for_a_limit_decide_nothing(tmp_path):
    six = write_run(tmp_path / "six", [("concurrency/short/2", "short", 2, 6)])

    (limit,) = gate(build(six), None, [], Slo.parse("ttft_p95<=1ms"))

    assert (limit.outcome, limit.low) == (Outcome.UNDECIDED, None)


def test_a_tier_that_the_new_run_did_not_hold_is_told(runs, tmp_path):
    both = write_run(tmp_path / "both", [*SWEEP, ("sweep/medium/16", "medium", 16, 400)])

    checks = gate(build(runs["base"]), build(both), [Expression.parse("tok_s<-5%")])

    assert [(check.tier, check.users, check.outcome) for check in checks] == [
        ("short", 64, Outcome.KEPT),
        ("medium", 16, Outcome.NOT_HELD),
    ]


def test_a_capacity_of_nothing_is_all_of_it_lost(runs, tmp_path):
    broken = edited(write_run(tmp_path / "broken", SWEEP), lambda frame: fail(frame, frame.index))

    (check,) = gate(build(broken), build(runs["base"]), [Expression.parse("capacity<-5%")])

    assert (check.outcome, check.old, check.new, check.seen) == (Outcome.MISSED, 96, 0, -100)


def test_fewer_failures_cannot_be_refused():
    with pytest.raises(ConfigError, match=r"fewer failures are no fault; write failures>1%$"):
        Expression.parse("failures<1%")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ttft_p95>+10%", ("ttft_p95", None, True, 1.1, True)),
        ("capacity.short<-5%", ("capacity", "short", False, 0.95, True)),
        ("tok_s.my-tier.2 < -5%", ("tok_s", "my-tier.2", False, 0.95, True)),
        ("ttft_mean>0.8s", ("ttft_mean", None, True, 800, False)),
        ("req_s<3.5", ("req_s", None, False, 3.5, False)),
        ("failures>1%", ("failures", None, True, 0.01, False)),
    ],
)
def test_expressions_are_read(text, read):
    name, tier, above, bound, relative = read
    assert Expression.parse(text) == Expression(text, name, tier, above, pytest.approx(bound), relative)


@pytest.mark.parametrize(
    "text",
    [
        *("", "ttft", "ttft>3", "ttft_p95", "ttft_p95=3ms", "ttft_p95>800", "tok_s<3ms", "tok_s<3%"),
        *("failures>+1%", "failures>1", "ttft_p95>+10ms", "capacity<170ms"),
    ],
)
def test_an_expression_that_is_none_says_what_is_accepted(text):
    with pytest.raises(ConfigError) as caught:
        Expression.parse(text)

    assert str(caught.value).startswith(f"--fail-if {text!r}: expected NAME[.TIER] > or < ")
    assert "ttft_mean, ttft_p50" in str(caught.value)


def test_what_cannot_be_checked_is_refused_in_one_sentence(runs):
    with pytest.raises(
        ConfigError, match=r"^nothing to hold the run against: give --baseline, --fail-if or --slo$"
    ):
        checked(runs, "base", baseline=False)
    with pytest.raises(ConfigError, match=r"a change needs a --baseline$"):
        checked(runs, "base", "ttft_p95>+10%", baseline=False)
    with pytest.raises(ConfigError, match=r"there is no such tier; there are short$"):
        checked(runs, "base", "ttft_p95.long>+10%")


def test_the_command_says_which_check_was_missed_and_by_how_much(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs["base"].parent)

    assert main(["gate", "same", "--baseline", "base"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "passed: 4 of 4 checks"

    assert main(["gate", "slower", "--baseline", "base", "--fail-if", "tpot_mean>+5%"]) == 3
    assert re.fullmatch(
        r"failed: 1 of 1 checks: short at 64 users tpot_mean>\+5% \(\+12\.\d+, \+1[12]\.\d+ … \+12\.\d+ % of change\)",
        capsys.readouterr().out.splitlines()[-1],
    )

    assert main(["gate", "slower", "--fail-if", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("pd-locust: --fail-if 'nonsense': expected ")


def test_junit_has_a_case_for_each_check_and_a_failure_for_each_miss(runs, tmp_path):
    file = tmp_path / "gate.xml"
    command = ["gate", str(runs["slower"]), "--baseline", str(runs["base"]), "--junit", str(file)]

    assert main(command) == 3
    suite = ET.fromstring(file.read_text())  # noqa: S314 - our own file
    assert (suite.get("tests"), suite.get("failures")) == ("4", str(len(suite.findall(".//failure"))))
    assert suite.find("testcase[@name='failures>1% at 64 users']/system-out").text.startswith("kept: short")
    assert "% of change" in suite.find("testcase[@name='tpot_mean>+5% at 64 users']/failure").get("message")


def test_markdown_begins_with_the_verdict(runs, tmp_path):
    file = tmp_path / "gate.md"

    main(["gate", str(runs["same"]), "--baseline", str(runs["base"]), "--markdown", str(file)])

    assert file.read_text().startswith("**passed: 4 of 4 checks**\n\n| check | tier | users | outcome |")


def test_json_is_plain_data(runs, tmp_path):
    file = tmp_path / "gate.json"

    main(["gate", str(runs["slower"]), "--baseline", str(runs["base"]), "--json", str(file)])

    document = json.loads(file.read_text())
    assert document["passed"] is False
    assert document["checks"][0]["expression"] == "tok_s<-5%"


def commands_of_the_page():
    """The pd-locust commands of docs/ci.md, with their exit codes where the page gives one."""
    blocks = re.findall(r"```(?:yaml|bash)\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("pd-locust ", 1)[1] for line in lines if "pd-locust " in line and "pip" not in line]


def test_the_commands_of_the_documentation_run(runs, monkeypatch):
    commands = commands_of_the_page()
    assert len(commands) >= 4
    folder = runs["base"].parent
    (folder / "reports").mkdir()
    for name, run in (("main", "base"), ("candidate", "same")):
        for file in folder.glob(f"{run}_*"):
            (folder / "reports" / file.name.replace(run, name, 1)).write_bytes(file.read_bytes())
    monkeypatch.chdir(folder)

    for command in commands:
        assert main(shlex.split(command)) == 0, command


def test_a_capacity_of_which_nothing_is_known_is_not_decided(runs, tmp_path):
    late = edited(
        write_run(tmp_path / "late", SWEEP),
        lambda frame: frame.update(pd.DataFrame({"loop_lag_ms": ["200.0"] * len(frame)})),
    )

    checks = gate(
        build(late), build(runs["base"]), [Expression.parse("capacity<-5%"), Expression.parse("capacity<170")]
    )

    assert [(check.new, check.outcome) for check in checks] == [(None, Outcome.UNDECIDED)] * 2
