"""Options of the verbs that read recorded runs; what the verbs do is imported when one is called."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_GATE_EXAMPLES = """\
examples:
  pd-locust gate reports/new --baseline reports/main
  pd-locust gate reports/new --baseline reports/main --fail-if 'ttft_p95>+10%' --fail-if 'capacity.short<-5%'
  pd-locust gate reports/new --slo 'ttft_p95<=800ms' --at 64 --junit gate.xml --markdown gate.md

without --fail-if and --slo: tok_s<-5%, tpot_mean>+5%, ttft_p95>+10%, failures>1%
exit codes: 0 passed, 2 usage or configuration, 3 missed
"""


def add_report(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `report`."""
    report = verbs.add_parser("report", help="tables and one HTML file of a recorded run, from its CSV files")
    add = report.add_argument
    add("prefix", metavar="PREFIX", help="what --csv was given, or one of the files")
    add("--slo", metavar="LIMIT", help="judge by this limit, e.g. 'ttft_p95<=800ms' [the run's]")
    add("--headroom", metavar="PERCENT", help="capacity kept free [the run's, 20]")
    add("--pairs", metavar="N", type=int, help="number of PD pairs [label pairs of the run]")
    add("--history-only", action="store_true", help="use Locust's history even if there are records")
    add("--json", metavar="FILE", help="write JSON there; - prints it instead of the tables")
    add("--excel", metavar="FILE", help="write all tables as one workbook there; needs pd-locust[excel]")
    add("--parquet", metavar="FILE", help="write the records as Parquet there; needs pd-locust[parquet]")
    add("--no-files", action="store_true", help="print only")
    _add_lang(report)
    report.set_defaults(verb=_verb("report"))


def add_compare(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `compare`."""
    verb = verbs.add_parser(
        "compare", help="two or more runs of the same protocol, level by level, with intervals"
    )
    add = verb.add_argument
    add("old", metavar="A", help="PREFIX of the run that the others are compared with")
    add("new", metavar="B", nargs="+", help="PREFIX of another run")
    add("--slo", metavar="LIMIT", help="judge all runs by this limit [each run's, which must be the same]")
    add("--json", metavar="FILE", help="write JSON there; - prints it instead of the tables")
    add("--html", metavar="FILE", help="write one HTML file with overlaid curves there")
    _add_lang(verb)
    verb.set_defaults(verb=_verb("compare"))


def add_gate(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `gate`."""
    verb = verbs.add_parser(
        "gate",
        help="exit code 3 when a run got worse by more than is allowed and noise explains",
        epilog=_GATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = verb.add_argument
    add("prefix", metavar="PREFIX", help="the run to be judged")
    add("--baseline", metavar="PREFIX", help="the run to compare it with")
    add(
        "--fail-if",
        metavar="EXPR",
        action="append",
        default=[],
        help="e.g. 'ttft_p95>+10%%' or 'capacity.short<-5%%'; several times if need be [throughput first: docs/ci.md]",
    )
    add("--slo", metavar="LIMIT", help="fail also if the level does not keep this limit")
    add(
        "--at",
        metavar="USERS",
        type=int,
        help="level to check at [the largest that passed at 80 %% of the capacity]",
    )
    add("--junit", metavar="FILE", help="write JUnit XML there")
    add("--markdown", metavar="FILE", help="write a summary for a pull request there")
    add("--json", metavar="FILE", help="write JSON there; - prints it instead of the table")
    _add_lang(verb)
    verb.set_defaults(verb=_verb("gate"))


def add_plan(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `plan`."""
    verb = verbs.add_parser("plan", help="PD pairs that a mix of traffic needs, from the capacities of a run")
    add = verb.add_argument
    add("prefix", metavar="PREFIX", help="a run with a sweep or capacity search")
    add(
        "--rate",
        metavar="TIER=N,...",
        required=True,
        help="requests per second of each tier, e.g. short=30,long=5",
    )
    add("--headroom", metavar="PERCENT", help="capacity kept free, e.g. 20 or 20%% [the run's, 20]")
    add(
        "--pairs",
        metavar="N",
        type=int,
        help="PD pairs of the deployment that was measured [label pairs of the run]",
    )
    add("--json", metavar="FILE", help="write JSON there; - prints it instead of the table")
    _add_lang(verb)
    verb.set_defaults(verb=_verb("plan"))


def _add_lang(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lang", metavar="en|zh", help="language of what people read (or PD_LANG) [en]")


def _verb(name: str) -> Callable[[argparse.Namespace], int]:
    def call(options: argparse.Namespace) -> int:
        # pandas takes half a second, which --help should not.
        from pd_locust.analysis import handlers  # noqa: PLC0415

        handler: Callable[[argparse.Namespace], int] = getattr(handlers, name)
        return handler(options)

    return call
