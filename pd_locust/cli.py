"""The pd-locust command. Each verb imports its room when it is called, so that --help is quick."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pd_locust.analysis.verbs import add_compare, add_gate, add_plan, add_report
from pd_locust.errors import ConfigError, PdLocustError
from pd_locust.output import write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_GATE = 3

_EXAMPLES = """\
examples:
  locust -f locustfiles/pd_stream.py                          web UI against the simulated service
  pd-locust check --host https://llm.example/v1               one streamed answer, step by step
  locust -f locustfiles/pd_benchmark.py --headless --csv reports/benchmark
  pd-locust report reports/benchmark                          tables and one HTML page of a recorded run
  pd-locust report reports/benchmark --slo 'ttft_p95<=800ms' --json -
  pd-locust compare reports/before reports/after              level by level, with intervals
  pd-locust gate reports/after --baseline reports/before      exit code 3 when it got worse
  pd-locust plan reports/benchmark --rate short=30,long=5     PD pairs for a mix of traffic
  pd-locust replay answer.http                                judge an answer saved with curl -sSN -i --raw
  pd-locust calibrate                                         what this machine's generator can be trusted with
  pd-locust sim --port 8000                                   the simulated service, on its own

exit codes: 0 fine, 1 run failed, 2 usage or configuration, 3 gate missed
"""


_CHECK_EXAMPLES = """\
examples:
  PD_API_KEY=sk-... pd-locust check --host https://llm.example/api/v1
  pd-locust check --host http://127.0.0.1:8000 --model qwen3.5-9b --thinking off --json -

exit codes: 0 fine, 1 the service failed the check, 2 usage or configuration
"""


_CALIBRATE_EXAMPLES = """\
examples:
  pd-locust calibrate                                 about a minute; kept for run.json
  pd-locust calibrate --streams 256,512,768 --limit-ms 5 --json -

exit codes: 0 fine, 1 not even the smallest level keeps the limit, 2 usage

The load is a real Locust process against the simulated service: a token every 8 ms a stream, loopback only.
Let nothing else run meanwhile: what disturbs this measurement would disturb the others.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; every expected error is one sentence on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["sim"]:
        # The simulator speaks for itself: it shares no code with the rest, not even options.
        from pd_sim.__main__ import main as simulate  # noqa: PLC0415

        return simulate(arguments[1:], prog="pd-locust sim")
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

    check = verbs.add_parser(
        "check",
        help="one real streamed answer, step by step, and what to try where it fails",
        epilog=_CHECK_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_check_arguments(check)
    check.set_defaults(verb=_check)

    add_report(verbs)
    add_compare(verbs)
    add_gate(verbs)
    add_plan(verbs)

    replay = verbs.add_parser("replay", help="judge answers saved with curl -sSN -i --raw")
    replay.add_argument("files", metavar="FILE", nargs="+", help="an answer from its status line on")
    replay.add_argument("--json", metavar="FILE", help="write JSON there; - prints it instead of lines")
    replay.set_defaults(verb=_replay)

    calibrate = verbs.add_parser(
        "calibrate",
        help="how many streams one process of this machine carries before TTFT is off",
        epilog=_CALIBRATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    calibrate.add_argument("--streams", metavar="LIST", help="levels to hold [32 to 384]")
    calibrate.add_argument(
        "--limit-ms", metavar="MS", type=float, default=1.0, help="error of TTFT allowed at p99 [%(default)s]"
    )
    calibrate.add_argument(
        "--json", metavar="FILE", help="write JSON there; - prints it instead of the table"
    )
    calibrate.set_defaults(verb=_calibrate)

    verbs.add_parser("sim", help="the simulated PD service (pd-locust sim --help)", add_help=False)
    return parser


def _add_check_arguments(parser: argparse.ArgumentParser) -> None:
    # Each with its name in the locustfiles as well: hints and errors speak of those.
    add = parser.add_argument
    add("--host", metavar="URL", help="base URL of the service (or PD_BASE_URL, OPENAI_BASE_URL)")
    add(
        "--model",
        "--pd-model",
        dest="pd_model",
        metavar="ID",
        help="model ID (or PD_MODEL, OPENAI_MODEL); may be left out when the service lists exactly one",
    )
    add(
        "--api-key",
        "--pd-api-key",
        dest="pd_api_key",
        metavar="KEY",
        help="API key (or PD_API_KEY, OPENAI_API_KEY, which no process list shows)",
    )
    add(
        "--header",
        "--pd-header",
        dest="pd_header",
        metavar="NAME:VALUE",
        action="append",
        default=[],
        help="additional request header",
    )
    add(
        "--thinking",
        "--pd-thinking",
        dest="pd_thinking",
        choices=("server", "on", "off"),
        default="server",
        help="chat_template_kwargs.enable_thinking",
    )
    add(
        "--extra-body",
        "--pd-extra-body",
        dest="pd_extra_body",
        metavar="JSON",
        default="",
        help="merged into every request",
    )
    add(
        "--no-ignore-eos",
        "--pd-no-ignore-eos",
        dest="pd_no_ignore_eos",
        action="store_true",
        help="let the model end its answers early",
    )
    add(
        "--insecure",
        "--pd-insecure",
        dest="pd_insecure",
        action="store_true",
        help="do not verify TLS certificates",
    )
    add(
        "--first-token-timeout",
        "--pd-first-token-timeout",
        dest="pd_first_token_timeout",
        metavar="S",
        type=float,
        default=120.0,
        help="give up without a token after so long [120]",
    )
    add("--json", metavar="FILE", help="write JSON there; - prints it instead of the steps")
    add("--lang", metavar="en|zh", help="language of causes and remedies (or PD_LANG) [en]")


def _version() -> str:
    from pd_locust import __version__  # noqa: PLC0415

    return __version__


def _check(options: argparse.Namespace) -> int:
    from rich.console import Console  # noqa: PLC0415

    from pd_locust.check.preflight import Timeouts, preflight  # noqa: PLC0415
    from pd_locust.check.render import print_step  # noqa: PLC0415
    from pd_locust.endpoint import Endpoint  # noqa: PLC0415
    from pd_locust.language import Speech  # noqa: PLC0415
    from pd_locust.load.options import Secret, base_url_from_env, model_from_env  # noqa: PLC0415
    from pd_locust.load.settings import extra_body_of, header_of  # noqa: PLC0415

    key = Secret()
    options.pd_api_key = key.keep(options.pd_api_key or "")
    host = options.host or base_url_from_env()
    if not host:
        raise ConfigError("no base URL: give it with --host (PD_BASE_URL)")
    if not options.pd_first_token_timeout > 0:
        raise ConfigError("--first-token-timeout must be greater than 0")
    endpoint = Endpoint.parse(host)
    headers = dict(header_of(text) for text in options.pd_header)
    extra_body = extra_body_of(options)
    say = Speech.chosen(options.lang)
    console = Console(highlight=False, soft_wrap=True)
    to_terminal = options.json != "-"
    if to_terminal:
        print(say(f"checking {endpoint.base_url}"))
    seen = preflight(
        endpoint,
        api_key=key.reveal(),
        model=options.pd_model or model_from_env(),
        headers=headers,
        extra_body=extra_body,
        ignore_eos=not options.pd_no_ignore_eos,
        verify_tls=not options.pd_insecure,
        timeouts=Timeouts(first_token_s=options.pd_first_token_timeout),
        on_step=(lambda step: print_step(step, console, say)) if to_terminal else None,
    )
    if options.json:
        write_json({"base_url": endpoint.base_url, **seen.to_json()}, options.json)
    if to_terminal and seen.ok:
        doubtful = say(", see the doubts above (!)") if seen.doubts else ""
        print(say(f"fine: {seen.model} can be measured") + doubtful)
    return EXIT_OK if seen.ok else EXIT_FAILED


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
        write_json(verdicts, options.json)
    if options.json != "-":
        for verdict in verdicts:
            shown = ", ".join(
                f"{key} {value}" for key, value in verdict.items() if key != "file" and value is not None
            )
            print(f"{verdict['file']}: {shown}")
    return EXIT_OK


def _calibrate(options: argparse.Namespace) -> int:
    from pd_locust.load.calibrate import DEFAULT_LEVELS, calibrate, store  # noqa: PLC0415
    from pd_locust.load.settings import read_levels  # noqa: PLC0415

    def on_level(streams: int) -> None:
        print(f"measuring {streams} streams", file=sys.stderr)

    if not 0 < options.limit_ms < float("inf"):
        raise ConfigError("--limit-ms must be greater than 0")
    levels = read_levels(options.streams or "", "--streams") or DEFAULT_LEVELS
    found = calibrate(levels, options.limit_ms, on_level)
    document = found.to_json()
    if options.json:
        write_json(document, options.json)
    if options.json != "-":
        print(*found.lines(), sep="\n")
    if found.best is None:
        # Something disturbed it: it says nothing of the machine, and must not replace one that does.
        return EXIT_FAILED
    kept = store(document)
    if options.json != "-":
        print(f"kept in {kept}, for run.json of the runs to come")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
