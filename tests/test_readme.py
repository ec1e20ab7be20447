from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def commands(name: str) -> list[str]:
    return re.findall(r"```(?:bash|yaml)\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def test_both_readmes_give_the_same_commands():
    assert commands("README.md") == commands("README.zh-CN.md")


def test_the_test_command_is_the_one_that_ci_runs():
    assert ".ci/run\n" in commands("README.md")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_every_page_that_is_linked_exists():
    for readme in ("README.md", "README.zh-CN.md", "reports/README.md"):
        folder = (ROOT / readme).parent
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / readme).read_text(encoding="utf-8")):
            assert (folder / target).exists(), f"{readme}: {target}"


def test_nothing_in_the_repository_names_a_path_of_one_machine():
    for path in ROOT.rglob("*"):
        if path.suffix in {".md", ".py", ".toml", ".yaml"} and ".venv" not in path.parts:
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"(?<![\w.])/(?:root|farm|work/main)/", text) or path == Path(__file__), path


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_tables_that_are_shown_are_those_of_the_sample(readme):
    shown = (
        (ROOT / readme).read_text(encoding="utf-8").split("<!-- sample -->")[1].split("<!-- /sample -->")[0]
    )
    sample = (ROOT / "reports" / "sample" / "benchmark_report.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in shown.splitlines() if line.startswith("|")]

    assert len(rows) == 16
    assert [row for row in rows if row not in sample] == []
