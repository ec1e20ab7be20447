# ruff: noqa: D101, D102 - as it is commonly written
"""FastHttpUser with iter_lines, as it is commonly written."""

import json
import sys
import time
from pathlib import Path

from locust import FastHttpUser, constant, task

sys.path.insert(0, str(Path(__file__).parent))

from finite import BODY, ROUNDS, next_id, note


class ChatUser(FastHttpUser):
    wait_time = constant(0)

    def on_start(self) -> None:
        self.left = ROUNDS

    @task
    def chat(self) -> None:
        request_id = next_id()
        first_s = last_s = 0.0
        tokens = 0
        sent_s = time.perf_counter()
        headers = {"x-request-id": request_id}
        for line in self.client.iter_lines("/v1/chat/completions", method="POST", json=BODY, headers=headers):
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            choices = json.loads(line[6:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                last_s = time.perf_counter()
                first_s = first_s or last_s
                tokens += 1
        note(self.environment, request_id, sent_s, (first_s, last_s, tokens))
        self.left -= 1
        if not self.left:
            self.stop()
