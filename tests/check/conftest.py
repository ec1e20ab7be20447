"""The services to check, and the command as people run it."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from check.scripted import Scripted
from locust_process import running_simulator

from pd_locust.check.preflight import Timeouts, preflight
from pd_locust.endpoint import Endpoint

ROOT = Path(__file__).resolve().parents[2]
PROXY_VARIABLES = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}


@pytest.fixture
def scripted():
    """Start scripted services; all of them end with the test."""
    with ExitStack() as stack:

        def start(chat, **options):
            service = Scripted(chat, **options)
            stack.callback(service.close)
            return service

        yield start


@pytest.fixture
def simulator():
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(running_simulator("--time-scale", "0.2", *options))


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in list(os.environ):
        if name.upper() in PROXY_VARIABLES or name.startswith(("PD_", "OPENAI_")):
            monkeypatch.delenv(name)


@pytest.fixture
def check():
    def run(url, **options):
        options = {"timeouts": Timeouts(connect_s=2, first_token_s=5, idle_s=2), **options}
        return preflight(Endpoint.parse(url), **options)

    return run


@pytest.fixture
def run_check(tmp_path):
    """Run `pd-locust check` in a process of its own."""

    def run(*options, **env):
        return subprocess.run(
            [sys.executable, "-m", "pd_locust.cli", "check", *options],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )

    return run


@pytest.fixture(scope="session")
def self_signed(tmp_path_factory):
    """A context for a server, and the path of its certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec",
               "-pkeyopt", "ec_paramgen_curve:prime256v1",
               "-subj", "/CN=llm.test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
               "-keyout", str(key), "-out", str(certificate)]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
