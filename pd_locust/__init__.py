"""Locust grown a sense for tokens: TTFT, TPOT and TTFT-bounded capacity of PD-disaggregated LLM servers.

A map of the rooms; importing this patches, registers and loads nothing.

    Tier -> Prompt -> ChatRequest -> StreamTiming -> RequestRecord -> Plateau -> tables

    pd_locust/*.py      the spine: what is measured and how it is judged; pure
    pd_locust/wire      bytes in, StreamTiming out
    pd_locust/load      Locust users, events, shapes, records
    pd_locust/check     preflight and prompt fitting, over requests
    pd_locust/analysis  pandas: from CSV to tables and reports
    pd_locust/draw      charts as values, and as SVG
    pd_locust/cli.py    the pd-locust command
    pd_sim              a simulated PD service that shares no code with the rest
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - costs 20 ms, and only --version asks

        return version("pd-locust")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
