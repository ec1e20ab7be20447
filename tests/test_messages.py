"""Codes in the code and codes in the catalogue are the same, in all languages and with the same slots."""

import ast
import re
import string
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

import pd_locust
from pd_locust.errors import ConfigError
from pd_locust.messages import Doubt, Language, Message, catalogue, from_json, t

PACKAGE = Path(pd_locust.__file__).parent
OWN_DOUBT_PARTS = ("seen", "cause", "remedy")
# Members of the families of codes that are made of a value: prefix -> what follows it.
FAMILIES: dict[str, list[str]] = {}
HAN = r"[\u4e00-\u9fff]"


def codes_of(node):
    """Codes that an expression may be; None where they cannot be read from it."""
    match node:
        case ast.Constant(value=str(code)):
            return [code]
        case ast.JoinedStr(values=[ast.Constant(value=prefix), ast.FormattedValue()]):
            return [prefix + member for member in FAMILIES[prefix]]
        case ast.IfExp(body=one, orelse=other):
            return [*codes_of(one), *codes_of(other)]
    return None


def keys_of(node):
    """Names of a literal dict of values; None where more may be added to them."""
    if node is None:
        return set()
    assert isinstance(node, ast.Dict), "values are written as a literal dict"
    return {key.value for key in node.keys} if all(node.keys) else None


def uses():
    """Yield (place, code, names of the values) of every Message and every part of a Doubt in the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name in {"messages.py", "warnings.py"}:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if "pd_locust.warnings" in ast.unparse(tree):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                if node.func.id == "Message":
                    values = node.args[1] if len(node.args) > 1 else None
                    for code in codes_of(node.args[0]):
                        yield place, code, keys_of(values)
                elif node.func.id == "Doubt":
                    values = node.args[2] if len(node.args) > 2 else None
                    for code in codes_of(node.args[0]):
                        yield place, code, keys_of(values)


USES = list(uses())


def texts(code):
    """Texts that a code stands for: its own, or the three of a doubt."""
    if f"doubt.{code}.seen" in catalogue():
        return [catalogue()[f"doubt.{code}.{part}"] for part in OWN_DOUBT_PARTS]
    return [catalogue()[code]]


def slots(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_code_in_the_package_is_in_the_catalogue_with_its_values():
    for place, code, names in USES:
        expected = {name for text in texts(code) for name in slots(text[Language.EN])}
        assert names is None or names == expected, f"{place}: {code}"


@pytest.mark.parametrize("code", catalogue())
def test_a_code_has_a_text_with_the_same_slots_in_every_language(code):
    text = catalogue()[code]

    assert set(text) == set(Language)
    assert all(text.values())
    assert len({frozenset(slots(text[language])) for language in Language}) == 1


def fill(text, value):
    """Values for all slots of a text; a slot that joins gets several."""
    parts = [(name, spec) for _, name, spec, _ in string.Formatter().parse(text) if name is not None]
    return {name: (value, value) if spec in {"list", "clauses"} else value for name, spec in parts}


@pytest.mark.parametrize("value", [0, 1, 1234.5, None])
def test_every_text_can_be_filled_with_a_number_and_with_nothing(value):
    for code, text in catalogue().items():
        for language in Language:
            assert t(Message(code, fill(text[language], value)), language), (code, language)


STRAY = (
    rf"{HAN} {HAN}",
    rf"{HAN}[,;:?!(]",
    "[，。：；、（）] | [，。：；、（）]",  # they bring their own space
    rf"{HAN}[A-Za-z0-9{{]|[A-Za-z0-9}}]{HAN}",
)


@pytest.mark.parametrize("stray", STRAY)
def test_chinese_has_its_own_punctuation_and_spaces_only_around_other_scripts(stray):
    assert {
        code: text[Language.ZH] for code, text in catalogue().items() if re.search(stray, text[Language.ZH])
    } == {}


@pytest.mark.parametrize("word", ["压测端", "限制", "用户数", "输入 token", "迟到", "无限迟", "握持"])
def test_chinese_has_one_word_for_each_thing(word):
    assert [code for code, text in catalogue().items() if word in text[Language.ZH]] == []


@pytest.mark.parametrize("tier", ["all", "failed", "mean", "place.level", "{users}", "%s", "a|b"])
@pytest.mark.parametrize("language", Language)
def test_a_value_is_never_translated(tier, language):
    assert t(Message("place.level", {"tier": tier, "users": 8}), language).startswith(tier)


@pytest.mark.parametrize(
    ("users", "text"), [(1, "short at 1 user"), (0, "short at 0 users"), (1024, "short at 1,024 users")]
)
def test_english_counts_one_and_many(users, text):
    assert t(Message("place.level", {"tier": "short", "users": users}), Language.EN) == text


def test_values_are_shown_in_the_format_of_their_slot():
    lag = {"lag_ms": 12.34, "cpu": 0.914}

    assert t(Doubt("client-limited", "x", lag).seen, Language.EN).endswith(
        "(loop lag p99 12.3 ms, core use 91 %)"
    )
    assert t(Doubt("client-limited", "x", dict.fromkeys(lag)).seen, Language.EN).endswith(
        "(loop lag p99 n/a, core use n/a)"
    )
    listed = Doubt("model-not-listed", "x", {"model": "m", "ids": ("a", "b")})
    assert t(listed.seen, Language.EN) == "the model 'm' is not in the list: a, b"
    assert t(listed.seen, Language.ZH) == "模型 m 不在列表中：a、b"


DOUBT = Doubt(
    "buffered",
    Message("place.level", {"tier": "all", "users": 1}),
    {"what": Message("doubt.buffered.streams", {"share": 0.5})},
)


def test_a_message_within_a_message_is_said_in_the_same_language():
    assert t(DOUBT.sentence, Language.EN).startswith(
        "all at 1 user: 50 % of the streams arrived in bursts. Likely cause: "
    )
    assert t(DOUBT.sentence, Language.ZH).startswith("all，1 并发：50 % 的流成批到达。可能原因：")


def test_doubts_are_the_same_after_a_file():
    assert Doubt.from_record(orjson.loads(orjson.dumps(DOUBT.to_record()))) == DOUBT
    listed = Doubt("model-not-listed", "x", {"model": "m", "ids": ("a", "b")})
    assert Doubt.from_record(orjson.loads(orjson.dumps(listed.to_record()))) == listed


def test_doubts_can_be_told_apart_and_counted():
    other = Doubt("buffered", Message("place.level", {"tier": "all", "users": 2}), DOUBT.values)

    assert len({DOUBT, Doubt("buffered", DOUBT.where, DOUBT.values), other}) == 2


def test_a_doubt_of_format_1_is_shown_as_it_stands():
    old = {
        "code": "client-limited",
        "where": "all at 8 users",
        "seen": "it was late",
        "cause": "all",
        "remedy": "failed",
    }

    for language in Language:
        assert "it was late" in t(Doubt.from_record(old).sentence, language)
    assert Doubt.from_record(old).to_json() == old
    assert Doubt.from_record(Doubt.from_record(old).to_record()).to_json() == old


@pytest.mark.parametrize(
    "document",
    [
        {"code": "no-such-code", "where": "x", "values": {}},
        {"code": "disagreement", "where": "x", "values": {}},
        {"code": "disagreement", "where": {"code": "no.such.place", "values": {}}, "values": {"users": 1}},
        {"code": "disagreement", "where": "x"},
    ],
)
def test_a_doubt_that_could_not_be_said_is_refused_when_it_is_read(document):
    with pytest.raises(KeyError):
        Doubt.from_record(document)


def test_json_keeps_messages_within_lists():
    value = (Message("place.generator"), 1, None, "x")

    assert from_json([asdict(value[0]), 1, None, "x"]) == value


def test_the_language_comes_from_the_option_then_from_the_environment(monkeypatch):
    monkeypatch.setenv("PD_LANG", "zh")
    assert Language.chosen() is Language.ZH
    assert Language.chosen("en") is Language.EN

    monkeypatch.delenv("PD_LANG")
    assert Language.chosen() is Language.EN


def test_an_unknown_language_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=r"^--lang fr: expected en or zh$"):
        Language.chosen("fr")

    monkeypatch.setenv("PD_LANG", "zh_CN")
    with pytest.raises(ConfigError, match=r"^PD_LANG zh_CN: expected en or zh$"):
        Language.chosen()
