from __future__ import annotations

import re
import shlex
import subprocess
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


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_and_heading_that_is_linked_exists():
    seen = 0
    for page in tracked("*.md"):
        for target in re.findall(r"\]\(([^)\s:]+)\)", page.read_text(encoding="utf-8")):
            name, _, anchor = target.partition("#")
            linked = page.parent / name if name else page
            assert linked.exists(), f"{page.relative_to(ROOT)}: {target}"
            assert not anchor or anchor in anchors(linked), f"{page.relative_to(ROOT)}: {target}"
            seen += 1
    assert seen > 30


def test_nothing_in_the_repository_names_a_path_of_one_machine():
    homes = re.compile(r"(?<![\w.$~}])/(?:root|home|Users|farm|tmp|work)/")
    for path in tracked():
        if path.parts[-2:] != ("tests", "test_readme.py") and "streams" not in path.parts:
            found = homes.search(path.read_bytes().decode("utf-8", "replace"))
            assert found is None, f"{path.relative_to(ROOT)}: {found[0]}"


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


def test_every_command_against_a_service_names_it():
    """Without --host a run measures the simulated service, and says so only in its log and reports."""
    block = next(block for block in commands("README.md") if "PD_API_KEY" in block)
    lines = [line for line in block.splitlines() if line.startswith(("locust ", "pd-locust "))]

    assert len(lines) == 5
    assert [line for line in lines if " --host https://" not in line] == []
