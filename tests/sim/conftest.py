import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pd_sim.server

_ROOT = Path(pd_sim.server.__file__).parents[1]


class Simulator:
    """A simulator in a process of its own, and a client that knows nothing but sockets and http.client."""

    def __init__(self, *options):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pd_sim", "--port", "0", "--exit-with-stdin", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
        self.ready_line = self.process.stdout.readline()
        if " ready " not in self.ready_line:
            pytest.fail(f"the simulator did not start: {self.process.stderr.read()}")
        self.port = int(self.ready_line.split(" model=")[0].rpartition(":")[2])

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def send(self, method, path, body=None, headers=()):
        """Return (status, headers, body) of one request on a connection of its own."""
        connection = self.connect()
        try:
            if isinstance(body, dict):
                body = json.dumps(body)
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def get(self, path):
        return json.loads(self.send("GET", path)[2])

    def chat(self, headers=(), **fields):
        return self.send("POST", "/v1/chat/completions", chat_body(**fields), headers)

    def raw_chat(self, request_id="raw", **fields):
        """Return a socket on which one chat request has just been sent."""
        link = self.socket()
        link.sendall(http_request(json.dumps(chat_body(**fields)), request_id))
        return link

    def metric(self, name):
        page = self.send("GET", "/metrics")[2].decode()
        (value,) = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(f"{name}{{")]
        return float(value)

    def settled(self, name, value):
        """Wait until a gauge reads `value`."""
        deadline_s = time.monotonic() + 10
        while self.metric(name) != value:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.01)
        return True

    def stop(self):
        """Send SIGTERM and return (exit status, rest of stdout, stderr)."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err

    def close(self):
        if self.process.poll() is None:
            self.stop()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


def chat_body(words=7, **fields):
    body = {"messages": [{"role": "user", "content": " ".join(["word"] * words)}], "max_tokens": 4}
    return {**body, "stream": True, "stream_options": {"include_usage": True}, **fields}


def http_request(body, request_id="raw"):
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nx-request-id: {request_id}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def stream_events(body):
    """Return the JSON of every event, with [DONE] and comments as text."""
    found = []
    for block in body.decode().removesuffix("\n\n").split("\n\n"):
        data = block.removeprefix("data: ")
        found.append(json.loads(data) if data.startswith("{") else data)
    return found


def stream_text(body):
    chunks = [found for found in stream_events(body) if isinstance(found, dict)]
    return "".join(
        chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk.get("choices")
    )


@pytest.fixture(scope="session")
def parse_events():
    return stream_events


@pytest.fixture(scope="session")
def text_of():
    return stream_text


@pytest.fixture(scope="session")
def raw_request():
    return http_request


@pytest.fixture(scope="session")
def body_of():
    return chat_body


@pytest.fixture(scope="session")
def sim():
    """The default deployment, ten times faster."""
    simulator = Simulator("--time-scale", "0.1")
    yield simulator
    simulator.close()


@pytest.fixture
def start():
    """Start further simulators with options of their own."""
    with contextlib.ExitStack() as stack:

        def start_one(*options):
            simulator = Simulator(*options)
            stack.callback(simulator.close)
            return simulator

        yield start_one
