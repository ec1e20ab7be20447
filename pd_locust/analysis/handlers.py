"""What the verbs that read recorded runs do: read, judge, show and write. Each returns its exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pd_locust import planning
from pd_locust.analysis import compare as comparing
from pd_locust.analysis import compare_view, export, gate_view, plan_view
from pd_locust.analysis import gate as gating
from pd_locust.analysis.export import write_parquet, write_workbook
from pd_locust.analysis.expression import Expression
from pd_locust.analysis.page import to_html
from pd_locust.analysis.render import print_lines, print_view, render_terminal, to_markdown
from pd_locust.analysis.report import Report, build
from pd_locust.analysis.run import file_of, prefix_of
from pd_locust.errors import ConfigError
from pd_locust.language import Speech
from pd_locust.output import write_json, write_text
from pd_locust.slo import Slo

if TYPE_CHECKING:
    import argparse

    from rich.status import Status

EXIT_UNUSABLE, EXIT_GATE = 2, 3
_PIPED_WIDTH = 100


def report(options: argparse.Namespace) -> int:
    """Print tables; write HTML, Markdown and CSV beside the run."""
    prefix, say = prefix_of(Path(options.prefix)), Speech.chosen(options.lang)
    slo = Slo.parse(options.slo) if options.slo else None
    headroom, pairs = _share(options.headroom), _whole(options.pairs)
    with _busy(say(f"reading {prefix}")):
        report = build(prefix, slo=slo, headroom=headroom, pairs=pairs, history_only=options.history_only)
    if options.json != "-":
        render_terminal(report, _console(), say)
    if options.json:
        write_json(export.to_json(report), options.json)
    written = []
    with _busy(say(f"writing {prefix}")):
        if not options.no_files:
            written += [
                write_text(file_of(prefix, "report.html"), to_html(report, say)),
                write_text(file_of(prefix, "report.md"), to_markdown(report, say)),
                *export.write_tables(report, prefix),
            ]
        if options.excel:
            written.append(write_workbook(report, Path(options.excel)))
        if options.parquet:
            written.append(write_parquet(file_of(prefix, "requests.csv"), Path(options.parquet)))
    if written and options.json != "-":
        print(say("wrote ") + ", ".join(map(str, written)))
    return 0


def compare(options: argparse.Namespace) -> int:
    """Print comparisons with the first run."""
    say = Speech.chosen(options.lang)
    old, *others = (_built(prefix, say, options.slo) for prefix in (options.old, *options.new))
    with _busy(say("comparing")):
        comparisons = [comparing.compare(old, other) for other in others]
    if options.json != "-":
        for one in comparisons:
            compare_view.print_comparison(one, _console(), say)
    if options.json:
        write_json(compare_view.comparison_json(comparisons), options.json)
    if options.html:
        write_text(Path(options.html), compare_view.comparison_page(comparisons, say), "--html")
    return 0


def gate(options: argparse.Namespace) -> int:
    """Print checks; EXIT_GATE when one is missed, EXIT_UNUSABLE when none decides anything."""
    say = Speech.chosen(options.lang)
    expressions = [Expression.parse(text) for text in options.fail_if]
    slo = Slo.parse(options.slo) if options.slo else None
    new = _built(options.prefix, say)
    old = _built(options.baseline, say) if options.baseline else None
    checks = gating.gate(new, old, expressions, slo, options.at)
    if options.json != "-":
        print_view(gate_view.checks_view(checks, say), _console())
        print(gate_view.verdict_of(checks, say))
    if options.json:
        write_json(gate_view.to_json(checks), options.json)
    if options.junit:
        write_text(Path(options.junit), gate_view.to_junit(checks), "--junit")
    if options.markdown:
        write_text(Path(options.markdown), gate_view.to_markdown(checks, say), "--markdown")
    if any(check.outcome is gating.Outcome.MISSED for check in checks):
        return EXIT_GATE
    # A gate that never decides anything would be open for good.
    return 0 if any(check.outcome.decides for check in checks) else EXIT_UNUSABLE


def plan(options: argparse.Namespace) -> int:
    """Print how many pairs a mix needs."""
    say = Speech.chosen(options.lang)
    rates, headroom, pairs = (
        planning.parse_rates(options.rate),
        _share(options.headroom),
        _whole(options.pairs),
    )
    report = _built(options.prefix, say)
    pairs = pairs or report.pairs
    planned = planning.plan(
        report.found, rates, report.headroom if headroom is None else headroom, pairs or 1
    )
    if options.json != "-":
        console = _console()
        print_lines([plan_view.answer(planned, say)], console, style="bold green")
        console.print()
        print_view(plan_view.plan_view(planned, say), console)
        print_lines(plan_view.remarks(planned, say, pairs_known=pairs is not None), console, mark="- ")
    if options.json:
        write_json(plan_view.to_json(planned), options.json)
    return 0


def _built(prefix: str, say: Speech, slo: str | None = None) -> Report:
    with _busy(say(f"reading {prefix}")):
        return build(prefix_of(Path(prefix)), slo=Slo.parse(slo) if slo else None)


def _busy(what: str) -> Status:
    """Say on a terminal what takes its time; nothing where standard error is a file."""
    return Console(stderr=True).status(what)


def _share(percent: str | None) -> float | None:
    if percent is None:
        return None
    try:
        share = float(percent.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ConfigError(f"--headroom {percent}: expected per cent from 0 to below 100")
    return share


def _whole(pairs: int | None) -> int | None:
    if pairs is not None and pairs < 1:
        raise ConfigError(f"--pairs {pairs}: expected a whole number from 1 on")
    return pairs


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)
