"""A service that answers as a test says: the answers that no well-behaved simulator gives."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def sse(*events):
    lines = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return "".join(f"data: {line}\n\n" for line in lines)


def chunk(finish_reason=None, **delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def tokens(count, field="content"):
    """A whole stream of `count` tokens in one body."""
    usage = {"prompt_tokens": 20, "completion_tokens": count, "total_tokens": 20 + count}
    texts = [chunk(**{field: f" {number}"}) for number in range(count)]
    return sse(
        chunk(role="assistant", content=""),
        *texts,
        chunk("length"),
        {"choices": [], "usage": usage},
        "[DONE]",
    )


class Answer:
    def __init__(self, status=200, body="", content_type="text/event-stream", **headers):
        self.status = status
        self.body = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.headers = {"Content-Type": content_type, **headers}

    @classmethod
    def json(cls, document, status=200):
        return cls(status, document, "application/json")


def model_list(*ids):
    return Answer.json({"object": "list", "data": [{"id": name, "object": "model"} for name in ids]})


class Scripted:
    """Answers GET /v1/models by `models`, and every chat request by `chat(body)`; 404 elsewhere."""

    def __init__(self, chat, models=None, root="/v1", tls=None):
        self.asked = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.answer(models if models is not None and self.path == f"{root}/models" else None)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                script.asked.append((dict(self.headers), body))
                self.answer(chat(body) if self.path == f"{root}/chat/completions" else None)

            def answer(self, answer):
                answer = answer or Answer.json({"detail": "Not Found"}, 404)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None
        if tls is not None:
            # The handshake belongs to the connection's own thread, not to accept().
            self.server.socket = tls.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server.server_port}"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
