# ruff: noqa: D101, D102 - as it is commonly written
"""HttpUser with sseclient-py, as it is commonly written."""

import json
import sys
import time
from pathlib import Path

import sseclient
from locust import HttpUser, constant, task

sys.path.insert(0, str(Path(__file__).parent))

from finite import BODY, ROUNDS, next_id, note


class ChatUser(HttpUser):
    wait_time = constant(0)

    def on_start(self) -> None:
        self.left = ROUNDS

    @task
    def chat(self) -> None:
        request_id = next_id()
        first_s = last_s = 0.0
        tokens = 0
        sent_s = time.perf_counter()
        with self.client.post(
            "/v1/chat/completions",
            json=BODY,
            headers={"x-request-id": request_id},
            stream=True,
            catch_response=True,
        ) as response:
            for event in sseclient.SSEClient(response).events():
                if event.data == "[DONE]":
                    continue
                choices = json.loads(event.data)["choices"]
                if choices and choices[0]["delta"].get("content"):
                    last_s = time.perf_counter()
                    first_s = first_s or last_s
                    tokens += 1
            response.success()
        note(self.environment, request_id, sent_s, (first_s, last_s, tokens))
        self.left -= 1
        if not self.left:
            self.stop()
