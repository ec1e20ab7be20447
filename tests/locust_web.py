"""Locust's web UI as people start it, on a free loopback port."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import requests
from locust_process import STREAM, Run, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass
class LocustWeb:
    """`url` ends without a slash and holds the base path."""

    url: str
    prefix: Path
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(
            self.url + path, timeout=30, headers=self.headers, allow_redirects=False, **options
        )

    def live(self, **query: str) -> dict[str, Any]:
        return self.get("/pd/live", params=query).json()

    def tier(self, name: str) -> dict[str, Any] | None:
        return next((tier for tier in self.live()["tiers"] if tier["tier"] == name), None)

    def swarm(self, **form: str) -> None:
        fields = {"user_count": "4", "spawn_rate": "4", "pd_api_key": "", "pd_model": "", **form}
        answer = requests.post(f"{self.url}/swarm", data=fields, timeout=10, headers=self.headers)
        assert answer.json()["success"], answer.text

    def stop(self) -> None:
        assert requests.post(f"{self.url}/stop", timeout=60, headers=self.headers).ok
        wait_for(lambda: self.live()["state"] in {"stopped", "ready"})

    def records(self) -> list[dict[str, str]]:
        return Run(self.prefix, 0, "").records()


def wait_for(condition: Callable[[], Any], limit_s: float = 40) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


@contextmanager
def locust_web(
    prefix: Path,
    *options: str,
    locustfile: Path = STREAM,
    base_path: str = "",
    headers: dict[str, str] | None = None,
) -> Iterator[LocustWeb]:
    port = free_port()
    command = [
        sys.executable, "-m", "locust", "-f", str(locustfile), "--web-host", "127.0.0.1", "--web-port", str(port),
        "--csv", str(prefix), *(["--web-base-path", base_path] if base_path else []), *options,
    ]  # fmt: skip
    web = LocustWeb(f"http://127.0.0.1:{port}{base_path}", prefix, headers or {})
    with prefix.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=prefix.parent)
        try:
            wait_for(lambda: process.poll() is not None or _answers(web))
            assert process.poll() is None, prefix.with_suffix(".log").read_text()
            yield web
        finally:
            # A master that is killed leaves its workers behind.
            process.terminate()
            try:
                process.wait(timeout=30)
            finally:
                process.kill()


def _answers(web: LocustWeb) -> bool:
    try:
        return web.get("/").status_code < 500
    except requests.ConnectionError:
        return False
