"""Writes docs/conformance.md: how every captured and every hand-made answer is read.

python tests/wire/make_conformance.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from wire.hand_made import HAND_MADE
from wire.reading import judged

from pd_locust.wire.replay import replay

ROOT = Path(__file__).resolve().parents[2]
STREAMS = ROOT / "tests" / "streams"
PAGE = ROOT / "docs" / "conformance.md"

_HEAD = """\
# Conformance

How `pd_locust.wire` reads {captured} answers of real servers and {made} made by hand; written by
`python tests/wire/make_conformance.py`, and a test fails when this page is out of step.

`expected` was written down by hand (`tests/streams/manifest.json`, `tests/wire/hand_made.py`); `result` is
what the code says. A success reads: number of output tokens and who counted them, number of events with text
and the index of the first one, finish_reason. A failure reads: category, then the same for what had come
before it. Those with status 200 are also read byte by byte, at random cuts and with other line ends in
`tests/wire/test_cuts.py`, with the same result.
"""
_TABLE = "| case | bytes | expected | result |\n|---|---|---|---|\n"


def page() -> str:
    """Return the whole page."""
    entries = json.loads((STREAMS / "manifest.json").read_text(encoding="utf-8"))
    lines = [_HEAD.format(captured=len(entries), made=len(HAND_MADE)), "\n## Captured\n\n", _TABLE]
    for entry in entries:
        raw = (STREAMS / entry["file"]).read_bytes()
        seen = {key: value for key, value in replay(raw).items() if key in entry}
        lines.append(_row(f"`{entry['file']}`", raw, entry, seen))
    lines += ["\n## Made by hand\n\n", _TABLE]
    for case in HAND_MADE:
        expected = {
            "category": case.category,
            "first_token_event": case.first,
            "text_chunks": case.chunks,
            "output_tokens": case.tokens,
            "tokens_source": case.source,
            "finish_reason": case.finish,
        }
        lines.append(_row(case.name, case.body, expected, judged([case.body])))
    return "".join(lines)


def _row(case: str, raw: bytes, expected: dict[str, object], seen: dict[str, object]) -> str:
    wanted, got = _told(expected), _told(seen)
    return f"| {case} | {len(raw):,} | {wanted} | {'as expected' if got == wanted else f'**{got}**'} |\n"


def _told(verdict: dict[str, object]) -> str:
    parts = [str(verdict["category"] or "success")]
    if verdict.get("output_tokens") is not None:
        parts.append(f"{verdict['output_tokens']} tokens by {verdict['tokens_source']}")
    if verdict.get("text_chunks"):
        parts.append(f"text in {verdict['text_chunks']} events from {verdict['first_token_event']}")
    if verdict.get("finish_reason"):
        parts.append(str(verdict["finish_reason"]))
    return ", ".join(parts)


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
