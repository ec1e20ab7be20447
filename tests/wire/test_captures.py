"""Answers of real servers come out as the manifest says, whole and however their bytes are cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pd_locust.errors import StreamError
from pd_locust.wire.replay import replay

STREAMS = Path(__file__).parents[1] / "streams"
MANIFEST = json.loads((STREAMS / "manifest.json").read_text())


@pytest.mark.parametrize("expected", MANIFEST, ids=lambda entry: entry["file"])
def test_a_captured_answer_is_read_as_the_manifest_says(expected):
    verdict = replay((STREAMS / expected["file"]).read_bytes())
    assert {key: verdict[key] for key in expected if key != "file"} == {
        key: value for key, value in expected.items() if key != "file"
    }


def test_every_capture_of_a_chat_answer_is_in_the_manifest():
    files = {str(path.relative_to(STREAMS)) for path in STREAMS.rglob("*.http") if path.name != "models.http"}
    assert files == {entry["file"] for entry in MANIFEST}
    assert len(MANIFEST) == 114


def test_every_failed_capture_carries_the_words_of_the_server_or_of_the_reader():
    for entry in MANIFEST:
        message = replay((STREAMS / entry["file"]).read_bytes())["message"]
        assert bool(message) is (entry["outcome"] == "failure"), entry["file"]
        assert len(message or "") <= 200 + len("HTTP 503: ")


def test_bytes_without_a_status_line_are_refused():
    with pytest.raises(StreamError, match="curl -sSN -i --raw"):
        replay(b'data: {"choices": []}\n\n')
