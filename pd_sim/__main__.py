"""`python -m pd_sim`: serve a simulated LLM service, or compute its capacity."""

import argparse
import asyncio
import gc
import json
import logging
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from pd_sim.faults import Fault
from pd_sim.http_protocol import HttpProtocol
from pd_sim.oracle import LIMITS, Limit, max_concurrency, summary
from pd_sim.profiles import PROFILES, QWEN
from pd_sim.replies import RoleChunk
from pd_sim.server import Simulator, SimulatorOptions

PROG = "python -m pd_sim"
_EXAMPLES = """
examples:
  {prog}                                     the default profile on port 8000
  {prog} --port 0 --time-scale 0.1           a free port, ten times faster
  {prog} --fault error-mid-stream --fault-ratio 0.05
  {prog} --oracle 'ttft_mean<=500ms'         its capacity at 16, 850 and 6330 prompt tokens
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Run until SIGTERM, SIGINT or, with --exit-with-stdin, the end of stdin; or answer --oracle."""
    parser = make_parser(prog)
    given = parser.parse_args(argv)
    profile = PROFILES[given.profile]
    if given.oracle is not None:
        try:
            print(json.dumps(_capacities(given), indent=2))
        except ValueError as error:
            parser.error(f"{error}; give fewer --prompt-tokens or --max-tokens")
        return 0
    given.profile = profile
    given.max_model_len_tokens = given.max_model_len_tokens or profile.max_model_len_tokens
    options = SimulatorOptions(**{name: getattr(given, name) for name in SimulatorOptions.__slots__})
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(options, given.host, given.port, given.exit_with_stdin))
    except OSError as error:
        print(f"cannot listen on {given.host}:{given.port}: {error.strerror}", file=sys.stderr)
        return 1


async def _serve(options: SimulatorOptions, host: str, port: int, exit_with_stdin: bool) -> int:
    loop = asyncio.get_running_loop()
    # asyncio, unlike uvloop, logs every write to a client that has just left.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    simulator = Simulator(options, loop)
    server = await loop.create_server(lambda: HttpProtocol(simulator.serve), host, port, backlog=1024)
    if exit_with_stdin:
        threading.Thread(target=_await_stdin_end, args=(loop, stop), daemon=True).start()
    # A full collection over the streams would stall them all; nothing here makes many cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    address, actual_port = server.sockets[0].getsockname()[:2]
    print(
        f"pd_sim ready http://{address}:{actual_port} "
        f"model={options.model} profile={options.profile.name} pairs={options.profile.pairs}",
        flush=True,
    )
    await stop.wait()
    # Streams in progress are cut: whoever stops a simulator does not wait for its tokens.
    server.close()
    simulator.close()
    return 0


def _await_stdin_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # os.read, not sys.stdin: a daemon thread inside a buffered read aborts the interpreter's shutdown.
    with suppress(OSError):  # a closed stdin has ended, too
        while os.read(0, 65_536):
            pass
    with suppress(RuntimeError):  # the loop ended first
        loop.call_soon_threadsafe(stop.set)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _capacities(given: argparse.Namespace) -> dict[str, Any]:
    heading = {"limit": str(given.oracle), "profile": given.profile}
    if given.prompt_tokens:
        return {**heading, **_capacity(given, given.prompt_tokens)}
    return {**heading, "tiers": [_capacity(given, tokens) for tokens in (16, 850, 6330)]}


def _capacity(given: argparse.Namespace, prompt_tokens: int) -> dict[str, Any]:
    users, runs = max_concurrency(
        PROFILES[given.profile],
        prompt_tokens,
        given.max_tokens,
        given.oracle,
        seed=given.seed,
        jitter_ratio=given.jitter_ratio,
        progress=lambda users: _show(f"{prompt_tokens} prompt tokens: simulating {users} users"),
    )
    _show("")
    found, following = users or 0, (users or 0) + 1
    return {
        "prompt_tokens": prompt_tokens,
        "max_tokens": given.max_tokens,
        "max_concurrency": users,
        "at": summary(runs[found]) if found in runs else None,
        "next": summary(runs[following]) if following in runs else None,
    }


def _show(progress: str) -> None:
    if sys.stderr.isatty():
        # Back to the start of the line, and clear it.
        print(f"\r\x1b[K{progress}", end="", file=sys.stderr, flush=True)


def make_parser(prog: str = PROG) -> argparse.ArgumentParser:
    """Return the parser of all options."""
    faults = textwrap.fill(", ".join(Fault), 76, break_on_hyphens=False)
    parser = _Parser(
        prog=prog,
        description="A simulated LLM service with Prefill/Decode disaggregation.",
        epilog=f"faults:\n{textwrap.indent(faults, '  ')}\n{_EXAMPLES.format(prog=prog)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    port = _checked(int, "a number from 0 (any free port) to 65535", lambda number: 0 <= number <= 65_535)
    count = _checked(int, "a whole number from 1", lambda number: number > 0)
    ratio = _checked(float, "a number from 0 to 1", lambda number: 0 <= number <= 1)
    scale = _checked(float, "a number above 0", lambda number: number > 0)
    role_chunk = _checked(RoleChunk, f"one of {', '.join(RoleChunk)}")
    fault = _checked(Fault, f"one of {', '.join(Fault)}")
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on [%(default)s]")
    add("--port", type=port, default=8000, help="0 takes a free one [%(default)s]")
    add("--model", default="qwen3.5-9b", help="the only model name accepted [%(default)s]")
    add("--profile", choices=list(PROFILES), default=QWEN.name, help="which service [%(default)s]")
    add("--time-scale", type=scale, default=1.0, metavar="S", help="multiplies every model time [1]")
    add("--seed", type=int, default=0, help="of jitter, faults and early ends [0]")
    add("--jitter", type=ratio, default=0.0, metavar="RATIO", dest="jitter_ratio",
        help="stretch steps by 1 +- RATIO at random [0]")  # fmt: skip
    add("--prefix-cache", action="store_true", help="prefill instances remember prompt prefixes")
    add("--api-key", metavar="KEY", help="refuse /v1 requests without it")
    add("--max-model-len", type=count, metavar="TOKENS", dest="max_model_len_tokens",
        help="prompt and output together [the profile's]")  # fmt: skip
    add("--no-tokenize", action="store_true", help="no /tokenize endpoint")
    add("--eos-probability", type=ratio, default=0.0, metavar="P", help="of ending after each token [0]")
    add("--role-chunk", type=role_chunk, choices=list(RoleChunk), default=RoleChunk.EARLY, help="[early]")
    add("--finish-carries-token", action="store_true", help="the last token has the finish_reason")
    add("--fault", type=fault, choices=list(Fault), metavar="NAME", help="make requests fail; names below")
    add("--fault-ratio", type=ratio, default=1.0, metavar="RATIO", help="share of requests it hits [1]")
    add("--exit-with-stdin", action="store_true", help="stop when stdin ends, as when a parent dies")
    add("--oracle", type=_checked(Limit.parse, LIMITS), metavar="LIMIT",
        help="print the capacity under this limit, computed in virtual time")  # fmt: skip
    add("--prompt-tokens", type=count, metavar="N", help="for --oracle [16, 850 and 6330]")
    add("--max-tokens", type=count, default=256, metavar="N", help="for --oracle [256]")
    return parser


def _checked(
    convert: Callable[[str], Any], accepted: str, valid: Callable[[Any], bool] = lambda _: True
) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        with suppress(ValueError):
            value = convert(text)
            if valid(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; give {accepted}")

    return read


if __name__ == "__main__":
    sys.exit(main())
