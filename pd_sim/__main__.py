"""`python -m pd_sim`: serve a simulated LLM service, or ask the oracle about it."""

from __future__ import annotations

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
from contextlib import suppress
from typing import TYPE_CHECKING

from pd_sim import oracle
from pd_sim.connection import Connection
from pd_sim.faults import Fault
from pd_sim.limit import Limit
from pd_sim.profiles import PROFILES, QWEN
from pd_sim.replies import RoleChunk
from pd_sim.server import Settings, Simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EXAMPLES = """
examples:
  python -m pd_sim                                     the default deployment on port 8000
  python -m pd_sim --port 0 --time-scale 0.1           a free port, ten times faster
  python -m pd_sim --fault error-mid-stream --fault-ratio 0.05
  python -m pd_sim --oracle 'ttft_mean<=500ms'         its capacity at 16, 850 and 6330 prompt tokens
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM, SIGINT or, with --exit-with-stdin, the end of stdin; or answer --oracle."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.oracle is not None:
        try:
            limit = Limit.parse(options.oracle)
        except ValueError as error:
            print(f"--oracle {error}", file=sys.stderr)
            return 2
        print(json.dumps(_ask_oracle(options, limit), indent=2))
        return 0
    profile = PROFILES[options.profile]
    settings = Settings(
        profile=profile,
        model=options.model,
        time_scale=options.time_scale,
        seed=options.seed,
        jitter_ratio=options.jitter,
        prefix_cache=options.prefix_cache,
        api_key=options.api_key,
        max_model_len_tokens=options.max_model_len or profile.max_model_len_tokens,
        tokenize=not options.no_tokenize,
        eos_probability=options.eos_probability,
        role_chunk=options.role_chunk,
        finish_carries_token=options.finish_carries_token,
        fault=options.fault,
        fault_ratio=options.fault_ratio,
    )
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, options.host, options.port, options.exit_with_stdin))
    except OSError as error:
        print(f"cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 1


async def _serve(settings: Settings, host: str, port: int, exit_with_stdin: bool) -> int:
    loop = asyncio.get_running_loop()
    # asyncio, unlike uvloop, complains of every write to a client that has just gone.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    simulator = Simulator(settings, loop)
    server = await loop.create_server(lambda: Connection(simulator.serve), host, port, backlog=1024)
    if exit_with_stdin:
        threading.Thread(target=_await_stdin_end, args=(loop, stop), daemon=True).start()
    # A full collection over the streams would stall them all; nothing here makes many cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    address, actual_port = server.sockets[0].getsockname()[:2]
    print(
        f"pd_sim ready http://{address}:{actual_port} "
        f"model={settings.model} profile={settings.profile.name} pairs={settings.profile.pairs}",
        flush=True,
    )
    await stop.wait()
    # Streams in progress are cut: whoever stops a simulator does not wait for its tokens.
    server.close()
    simulator.close()
    return 0


def _await_stdin_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # os.read, not sys.stdin: a daemon thread inside a buffered read aborts the interpreter's shutdown.
    with suppress(OSError):  # no stdin at all has ended, too
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


def _ask_oracle(options: argparse.Namespace, limit: Limit) -> dict[str, object]:
    tiers = [options.prompt_tokens] if options.prompt_tokens else [16, 850, 6330]
    answers = [
        oracle.answer(
            PROFILES[options.profile],
            prompt_tokens,
            options.max_tokens,
            limit,
            seed=options.seed,
            jitter_ratio=options.jitter,
        )
        for prompt_tokens in tiers
    ]
    heading = {"limit": options.oracle, "profile": options.profile}
    return {**heading, **answers[0]} if options.prompt_tokens else {**heading, "tiers": answers}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pd_sim",
        description="A simulated LLM service with Prefill/Decode disaggregation.",
        epilog=f"faults:\n{_fault_names()}\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on [%(default)s]")
    add("--port", type=int, default=8000, help="0 takes a free one [%(default)s]")
    add("--model", default="qwen3.5-9b", help="the only model name accepted [%(default)s]")
    add("--profile", choices=list(PROFILES), default=QWEN.name, help="which service [%(default)s]")
    add("--time-scale", type=_positive, default=1.0, metavar="S", help="multiplies every model time [1]")
    add("--seed", type=int, default=0, help="of jitter, faults and early ends [0]")
    add(
        "--jitter",
        type=_ratio,
        default=0.0,
        metavar="RATIO",
        help="stretch steps by 1 +- RATIO at random [0]",
    )
    add("--prefix-cache", action="store_true", help="prefill instances remember prompt prefixes")
    add("--api-key", metavar="KEY", help="refuse /v1 requests without it")
    add("--max-model-len", type=int, metavar="TOKENS", help="prompt and output together [the profile's]")
    add("--no-tokenize", action="store_true", help="no /tokenize endpoint")
    add("--eos-probability", type=_ratio, default=0.0, metavar="P", help="of ending after each token [0]")
    add("--role-chunk", type=RoleChunk, choices=list(RoleChunk), default=RoleChunk.EARLY, help="[early]")
    add("--finish-carries-token", action="store_true", help="the last token has the finish_reason")
    add("--fault", type=Fault, choices=list(Fault), metavar="NAME", help="make requests fail; names below")
    add("--fault-ratio", type=_ratio, default=1.0, metavar="RATIO", help="share of requests it hits [1]")
    add("--exit-with-stdin", action="store_true", help="stop when stdin ends, as when a parent dies")
    add("--oracle", metavar="LIMIT", help="print the capacity under this limit, computed in virtual time")
    add("--prompt-tokens", type=int, metavar="N", help="for --oracle [16, 850 and 6330]")
    add("--max-tokens", type=int, default=256, metavar="N", help="for --oracle [256]")
    return parser


def _fault_names() -> str:
    return textwrap.fill(
        ", ".join(Fault), 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be between 0 and 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
