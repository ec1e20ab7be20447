import ast
import re
from pathlib import Path

import pytest

import pd_locust
from pd_locust.analysis.compare import Finding
from pd_locust.analysis.gate import Outcome
from pd_locust.errors import ConfigError
from pd_locust.language import ENGLISH, Language, Speech
from pd_locust.search import CapacitySearch, Discarded, Measured, NextLevel
from pd_locust.slo import Verdict
from pd_locust.stream import Category

PACKAGE = Path(pd_locust.__file__).parent
CHINESE = Speech.of(Language.ZH)
HAN = re.compile(r"[\u4e00-\u9fff]")
SLOT = re.compile(r"\{(\w+)\}")


def calls(name):
    """Every call of that name in the package, with its place."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def text_of(node):
    """Text of a string or f-string, with 7 for every value; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
    return None


def test_every_doubt_is_told_in_chinese():
    texts = [
        (place, text)
        for place, call in calls("Doubt")
        for argument in call.args[2:5]
        if (text := text_of(argument)) is not None
    ]

    assert len(texts) > 40
    assert [(place, text) for place, text in texts if CHINESE.find(text) is None] == []


def test_every_cause_and_advice_of_the_check_is_told_in_chinese():
    """Whatever `likely_causes` yields, what a failed step is given as advice, and what the certificate's code says."""
    nodes = []
    for place in ("advice.py", "preflight.py", "network.py"):
        for node in ast.walk(ast.parse((PACKAGE / "check" / place).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Yield) or (place == "advice.py" and isinstance(node, ast.Return)):
                nodes.append(node.value)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Step.failed":
                nodes += node.args[3:]
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {"own", "advice"}:
                nodes += node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_BY_VERIFY_CODE":
                nodes += node.value.values
            elif isinstance(node, ast.FunctionDef) and node.name == "_direct_only":
                nodes += [
                    tuple_.elts[0]
                    for tuple_ in ast.walk(node)
                    if isinstance(tuple_, ast.Tuple) and tuple_.elts
                ]
    texts = [text for node in nodes if (text := text_of(node))]
    texts.append("a web page (Sign in) answers, not an LLM API: a gateway, a login, or the service's own UI")

    assert len(texts) > 25
    missing = [text for text in texts if CHINESE.find(text.replace("page7", "page")) is None]
    # The names of what is there follow in a variable.
    assert set(missing) <= {"the path is right, the model 7 is unknown: 7"}
    for there in ("there is a", "there are a, b", "the list is empty"):
        assert CHINESE.find(f"the path is right, the model 'm' is unknown: {there}")


def test_every_hint_of_a_failure_is_told_in_chinese():
    assert [category for category in Category if CHINESE.find(category.hint) is None] == []


def test_every_heading_and_sentence_that_is_said_has_its_chinese():
    said = [(place, text) for place, call in calls("say") for node in call.args if (text := text_of(node))]
    said += [
        (f"templates/{path.name}", text)
        for path in (PACKAGE / "analysis" / "templates").glob("*.html")
        for text in re.findall(r'say\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    ]
    said += [
        (place, text)
        for place, call in calls("Column")
        if (text := text_of(call.args[1])) and "7" not in text
    ]

    assert len(said) > 100
    assert [(place, text) for place, text in said if CHINESE.find(text) is None] == []


def test_every_step_and_end_of_a_search_is_told_in_chinese():
    whys = {text_of(call.args[1]) for _, call in calls("NextLevel")} | set(Discarded)
    searches = [
        (CapacitySearch(start, most, 1), truth, discarded)
        for start in (1, 8, 64)
        for most in (8, 200)
        for truth in (0, 5, 47, 150, 1000)
        for discarded in (None, *Discarded)
    ]
    for search, truth, discarded in searches:
        held = []
        while isinstance(step := search.next(held), NextLevel):
            verdict = Verdict.PASS if step.users <= truth else Verdict.FAIL
            # Every third hold says nothing, and so does every one of a large level.
            lost = discarded if len(held) % 3 == 2 or step.users > 100 else None
            held.append(
                Measured(step.users, Verdict.INCONCLUSIVE if lost else verdict, step.users / 48, lost)
            )
        whys.add(step.why)

    assert len(whys) > 15
    assert [why for why in sorted(whys) if why and CHINESE.find(why) is None] == []


def test_every_outcome_and_finding_is_told_in_chinese():
    words = [*Outcome, *Finding, *(f"{finding} for short, long" for finding in Finding)]
    # These two are said of capacities, in cells.
    of_cells = (f"{Finding.MORE} for", f"{Finding.FEWER} for")

    assert [w for w in words if CHINESE.find(w) is None and not w.startswith(of_cells)] == []


def test_words_of_a_server_stay_as_they_are_within_a_sentence():
    said = CHINESE(
        "a request failed (rate_limited: HTTP 429: quota exceeded for model x) and the next one worked"
    )

    assert "HTTP 429: quota exceeded for model x" in said
    assert HAN.search(said)


def test_a_translation_has_the_values_of_its_template():
    for english, chinese in CHINESE.catalogue.items():
        assert sorted(SLOT.findall(english)) == sorted(SLOT.findall(chinese)), english


def test_a_finished_sentence_finds_its_template():
    assert CHINESE("7 of 1000 requests failed") == "1000 个请求中有 7 个失败"
    assert CHINESE("short at 179 users") == "short，179 并发"


def test_the_more_particular_template_wins():
    measured = (
        "measured: short alone, at least 64 users, TTFT mean 1.0 ms, TPOT mean 2.0 ms, 256 output tokens"
    )

    assert "至少 64 并发" in CHINESE(measured)


def test_values_within_a_sentence_are_said_as_well():
    assert CHINESE("slower for short (+5.0 %)、long (+4.1 %)") == "short (+5.0 %)、long (+4.1 %)：更慢"


def test_what_nobody_translated_stays_as_it_is():
    assert CHINESE("HTTP 503: no healthy worker") == "HTTP 503: no healthy worker"
    assert ENGLISH("Warnings") == "Warnings"


def test_the_language_comes_from_the_option_then_from_the_environment(monkeypatch):
    monkeypatch.setenv("PD_LANG", "zh")
    assert Language.chosen() is Language.ZH
    assert Language.chosen("en") is Language.EN

    monkeypatch.delenv("PD_LANG")
    assert Language.chosen() is Language.EN


def test_a_language_that_there_is_not_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=r"^--lang fr: expected en or zh$"):
        Language.chosen("fr")

    monkeypatch.setenv("PD_LANG", "zh_CN")
    with pytest.raises(ConfigError, match=r"^PD_LANG zh_CN: expected en or zh$"):
        Language.chosen()
