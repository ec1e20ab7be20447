"""The pd-locust command. Each verb imports its room when it is called, so that --help is quick."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pd_locust.errors import ConfigError, PdLocustError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_GATE = 3

_EXAMPLES = """\
examples:
  locust -f locustfiles/pd_stream.py                          web UI against the simulated service
  locust -f locustfiles/pd_benchmark.py --headless --csv reports/benchmark
  pd-locust report reports/benchmark                          tables of a recorded run
  pd-locust report reports/benchmark --slo 'ttft_p95<=800ms' --json -
  pd-locust replay answer.http                                judge an answer saved with curl -sSN -i --raw
  pd-locust sim --port 8000                                   the simulated service, on its own

exit codes: 0 fine, 1 run failed, 2 usage or configuration, 3 limit or gate missed
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; every expected error is one sentence on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["sim"]:
        # The simulator speaks for itself: it shares no code with the rest, not even options.
        from pd_locust.sim.__main__ import main as simulate  # noqa: PLC0415

        return simulate(arguments[1:])
    options = _parser().parse_args(arguments)
    verb: Callable[[argparse.Namespace], int] = options.verb
    try:
        return verb(options)
    except PdLocustError as error:
        print(f"pd-locust: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pd-locust",
        description="Post-processing and tools around the locustfiles of pd_locust.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pd-locust {_version()}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    report = verbs.add_parser("report", help="tables of a recorded run, from its CSV files")
    report.add_argument("prefix", metavar="PREFIX", help="what --csv was given, or one of the files")
    report.add_argument("--slo", metavar="LIMIT", help="judge by this limit, e.g. 'ttft_p95<=800ms' [the run's]")
    report.add_argument("--headroom", metavar="PERCENT", type=float, help="capacity kept free [the run's, 20]")
    report.add_argument("--pairs", metavar="N", type=int, help="number of PD pairs [label pairs of the run]")
    report.add_argument("--history-only", action="store_true", help="use Locust's history even if there are records")
    report.add_argument("--json", metavar="FILE", help="write JSON there; - prints it instead of the tables")
    report.add_argument("--no-files", action="store_true", help="print only")
    report.set_defaults(verb=_report)

    replay = verbs.add_parser("replay", help="judge answers saved with curl -sSN -i --raw")
    replay.add_argument("files", metavar="FILE", nargs="+")
    replay.add_argument("--json", metavar="FILE", help="write JSON there; - prints it instead of lines")
    replay.set_defaults(verb=_replay)

    verbs.add_parser("sim", help="the simulated PD service (pd-locust sim --help)", add_help=False)
    return parser


def _version() -> str:
    from pd_locust import __version__  # noqa: PLC0415

    return __version__


def _report(options: argparse.Namespace) -> int:
    from pd_locust.analysis import report  # noqa: PLC0415
    from pd_locust.slo import Slo  # noqa: PLC0415

    if options.headroom is not None and not 0 <= options.headroom < 100:
        raise ConfigError(f"--headroom {options.headroom:g}: expected per cent from 0 to below 100")
    if options.pairs is not None and options.pairs < 1:
        raise ConfigError(f"--pairs {options.pairs}: expected a whole number from 1 on")
    prefix = report.prefix_of(Path(options.prefix))
    built = report.build(
        prefix,
        slo=Slo.parse(options.slo) if options.slo else None,
        headroom=None if options.headroom is None else options.headroom / 100,
        pairs=options.pairs,
        history_only=options.history_only,
    )
    if options.json != "-":
        report.render_terminal(built)
    if options.json:
        _write_json(report.to_json(built), options.json)
    if not options.no_files:
        for path in report.write_tables(built, prefix):
            if options.json != "-":
                print(f"wrote {path}")
    return EXIT_OK


def _replay(options: argparse.Namespace) -> int:
    from pd_locust.wire.replay import replay  # noqa: PLC0415

    verdicts = []
    for name in options.files:
        try:
            raw = Path(name).read_bytes()
        except OSError as error:
            raise ConfigError(f"{name}: {error.strerror}") from None
        try:
            verdicts.append({"file": name, **replay(raw)})
        except PdLocustError as error:
            raise ConfigError(f"{name}: {error}") from None
    if options.json:
        _write_json(verdicts, options.json)
    if options.json != "-":
        for verdict in verdicts:
            shown = ", ".join(f"{key} {value}" for key, value in verdict.items() if key != "file" and value is not None)
            print(f"{verdict['file']}: {shown}")
    return EXIT_OK


def _write_json(document: object, target: str) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    if target == "-":
        print(text)
        return
    try:
        Path(target).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {target}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
