from __future__ import annotations

import pytest

from pd_locust.errors import ConfigError
from pd_locust.tier import EVERYDAY_TIERS, STANDARD_TIERS, Tier, choose_tiers, load_tiers


def written(folder, text):
    path = folder / "tiers.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_standard_tiers_are_those_of_the_benchmark():
    assert [(tier.name, tier.prompt_tokens, tier.max_tokens) for tier in STANDARD_TIERS] == [
        ("short", 16, 256), ("medium", 850, 256), ("long", 6330, 256), ("xlong", 20890, 256),
    ]  # fmt: skip
    assert [tier.name for tier in EVERYDAY_TIERS] == ["short", "medium", "long"]


@pytest.mark.parametrize("head", ["", "tiers:\n"])
def test_own_tiers_are_read_in_their_order(tmp_path, head):
    indent = "  " if head else ""
    lines = ["chat: {prompt_tokens: 2000, max_tokens: 300}", "agent-v2: {prompt_tokens: 30000}"]
    path = written(tmp_path, head + "".join(f"{indent}{line}\n" for line in lines))
    assert load_tiers(path) == (Tier("chat", 2000, 300), Tier("agent-v2", 30000, 256))
    assert load_tiers(str(path)) == load_tiers(path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "expected lines like"),
        ("- chat", "expected lines like"),
        ("just words", "expected lines like"),
        ("tiers: {}", "expected lines like"),
        ("chat: 2000", "tier 'chat' takes prompt_tokens"),
        ("chat: {max_tokens: 9}", "tier 'chat' takes prompt_tokens"),
        ("chat: {prompt_tokens: 9, output: 9}", "tier 'chat' takes prompt_tokens"),
        (
            "chat: {prompt_tokens: many}",
            "tier chat: prompt_tokens must be a whole number from 1 on, not 'many'",
        ),
        ("chat: {prompt_tokens: 0}", "tier chat: prompt_tokens must be a whole number from 1 on, not 0"),
        ("chat: {prompt_tokens: 1.5}", "tier chat: prompt_tokens must be a whole number from 1 on, not 1.5"),
        (
            "chat: {prompt_tokens: true}",
            "tier chat: prompt_tokens must be a whole number from 1 on, not True",
        ),
        (
            "chat: {prompt_tokens: 9, max_tokens: -1}",
            "tier chat: max_tokens must be a whole number from 1 on, not -1",
        ),
        ("'a b': {prompt_tokens: 9}", "tier 'a b': a name is a letter followed by"),
        ("7: {prompt_tokens: 9}", "tier '7': a name is a letter followed by"),
        ("chat: {prompt_tokens: 9", "is not YAML"),
        ("a: &x\n  b: *y", "is not YAML"),
        ("!!python/object:os.system {}", "is not YAML"),
    ],
)
def test_an_error_in_a_tier_file_names_the_file_the_tier_and_what_is_accepted(tmp_path, text, names):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as refusal:
        load_tiers(path)
    assert str(path) in str(refusal.value)
    assert names in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_tier_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"tier file .*none\.yaml: No such file"):
        load_tiers(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="tier file"):
        load_tiers(tmp_path)


def test_a_tier_file_that_is_not_text_says_so(tmp_path):
    path = tmp_path / "tiers.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="tier file"):
        load_tiers(path)


def test_tiers_are_chosen_in_the_order_asked_for_and_once():
    chosen = choose_tiers(["long", "short", "long"], STANDARD_TIERS)
    assert [tier.name for tier in chosen] == ["long", "short"]


def test_an_unknown_tier_says_which_there_are():
    with pytest.raises(ConfigError, match="unknown tier 'huge'; there are short, medium, long, xlong"):
        choose_tiers(["short", "huge"], STANDARD_TIERS)
    with pytest.raises(ConfigError, match="no tier chosen; there are short"):
        choose_tiers([], STANDARD_TIERS)
