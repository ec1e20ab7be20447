from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pd_locust.cli import _parser

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


@pytest.mark.parametrize("language", ["", ".zh-CN"])
def test_the_tables_that_are_shown_are_those_of_the_sample(language):
    text = (ROOT / f"README{language}.md").read_text(encoding="utf-8")
    shown = text.split("<!-- sample -->")[1].split("<!-- /sample -->")[0]
    report = ROOT / "reports" / "sample" / f"benchmark_report{language}.md"
    sample = report.read_text(encoding="utf-8").splitlines()
    rows = [line for line in shown.splitlines() if line.startswith(("|", "- **"))]

    assert len(rows) == 24
    assert [row for row in rows if row not in sample] == []
    assert f"reports/sample/{report.name}" in text


def test_every_pd_locust_command_of_the_readme_is_understood():
    lines = [
        shlex.split(line, comments=True)
        for block in commands("README.md")
        for line in block.splitlines()
        if line.startswith("pd-locust")
    ]

    assert len(lines) >= 6
    for _, *words in lines:
        _parser().parse_args(words)
