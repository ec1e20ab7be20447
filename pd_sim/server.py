"""A model of an LLM service behind real sockets, speaking the OpenAI chat-completions protocol."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import parse_qs

from pd_sim import chat_body
from pd_sim.faults import IN_STREAM, Fault, FaultyStreamReply, error_of
from pd_sim.http_protocol import HttpError, HttpProtocol, HttpRequest
from pd_sim.metrics import CONTENT_TYPE, Metrics
from pd_sim.pd_service import new_service
from pd_sim.profiles import LinearProfile, Profile
from pd_sim.replies import JsonReply, Reply, ReplyForm, RoleChunk, StreamReply
from pd_sim.service import Job
from pd_sim.timerfd import Timer
from pd_sim.tokens import TEMPLATE_TOKENS, block_hashes, count_tokens
from pd_sim.truth import RequestTruth, Truth


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    """How one server behaves; `time_scale` multiplies every model time."""

    profile: Profile
    model: str
    time_scale: float = 1.0
    seed: int = 0
    jitter_ratio: float = 0.0
    prefix_cache: bool = False
    api_key: str | None = None
    max_model_len_tokens: int = 65_536
    no_tokenize: bool = False
    eos_probability: float = 0.0
    role_chunk: RoleChunk = RoleChunk.EARLY
    finish_carries_token: bool = False
    fault: Fault | None = None
    fault_ratio: float = 1.0


class Simulator:
    """Every request is a job of the model; one timer, set to the model's next event, drives all streams."""

    def __init__(self, options: SimulatorOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._service = new_service(
            options.profile,
            prefix_cache=options.prefix_cache,
            jitter_ratio=options.jitter_ratio,
            seed=options.seed,
        )
        self._random = random.Random(options.seed)  # noqa: S311 - repeatable, not secret
        self._timer = Timer(loop, self._deliver)
        self._start_s = time.perf_counter()
        self._replies: dict[int, tuple[Reply, RequestTruth, str]] = {}
        self._jobs_made = 0
        self._truth = Truth()
        self._metrics = Metrics(
            options.model,
            "local_compute" if isinstance(options.profile, LinearProfile) else "external_kv_transfer",
        )
        self._routes: dict[str, dict[str, Callable[[HttpProtocol, HttpRequest], None]]] = {
            "/v1/chat/completions": {"POST": self._chat},
            "/v1/models": {"GET": self._models},
            "/health": {"GET": lambda connection, _: connection.reply(200, b"", "text/plain")},
            "/metrics": {"GET": self._show_metrics},
            "/truth": {"GET": self._show_truth, "DELETE": self._clear_truth},
        }
        if not options.no_tokenize:
            self._routes["/tokenize"] = {"POST": self._tokenize}

    def serve(self, connection: HttpProtocol, request: HttpRequest) -> None:
        """Answer one request, now or token by token."""
        try:
            handler = self._handler(request)
            self._check_key(request)
            handler(connection, request)
        except HttpError as error:
            connection.refuse(error)

    def close(self) -> None:
        self._timer.close()

    def _handler(self, request: HttpRequest) -> Callable[[HttpProtocol, HttpRequest], None]:
        # By the end of the path: gateways put prefixes such as /api before it.
        for path, handlers in self._routes.items():
            if request.path.endswith(path):
                if request.method not in handlers:
                    raise HttpError(405, f"use {' or '.join(handlers)} here", {"Allow": ", ".join(handlers)})
                return handlers[request.method]
        raise HttpError(404, f"there is nothing at {request.path}")

    def _check_key(self, request: HttpRequest) -> None:
        key = self._options.api_key
        guarded = "/v1/" in request.path
        if key is not None and guarded and request.headers.get("authorization") != f"Bearer {key}":
            raise HttpError(401, "the API key is missing or wrong")

    def _chat(self, connection: HttpProtocol, request: HttpRequest) -> None:
        options, fault = self._options, self._fault_of(request)
        if (injected := error_of(fault)) is not None:
            raise injected
        if fault is Fault.STALL_HEADERS:
            return
        asked = chat_body.parse_chat(request.body, options.model, options.max_model_len_tokens)
        output_tokens = self._output_tokens(asked)
        hashes: tuple[int, ...] = ()
        if options.prefix_cache:
            hashes = block_hashes(asked.text, options.profile.cache_block_tokens)
        self._jobs_made += 1
        job = Job(self._jobs_made, asked.prompt_tokens, output_tokens, hashes)
        try:
            # At the moment it was read: parsing must not add to the model's time.
            self._service.arrive(self._model_s(request.complete_ns / 1e9), job)
        except ValueError as error:
            raise HttpError(400, str(error)) from error
        form = ReplyForm(
            request_id=request.headers.get("x-request-id") or uuid.uuid4().hex,
            model=options.model,
            finish_reason="stop" if output_tokens < asked.max_tokens else "length",
            include_usage=asked.include_usage and fault is not Fault.NO_USAGE,
            role_chunk=options.role_chunk,
            finish_carries_token=options.finish_carries_token,
        )
        truth = RequestTruth(request.received_ns, asked.prompt_tokens)
        connection.on_lost = abandon = partial(self._abandon, job.key)
        reply: Reply
        if not asked.stream or fault is Fault.NOT_STREAMED:
            reply = JsonReply(form, connection, truth)
        elif fault in IN_STREAM:
            reply = FaultyStreamReply(
                form, connection, truth, fault=fault, output_tokens=output_tokens, abandon=abandon
            )
        else:
            reply = StreamReply(form, connection, truth)
        self._truth.add(form.request_id, truth)
        self._replies[job.key] = (reply, truth, form.finish_reason)
        self._metrics.prompt_tokens += asked.prompt_tokens
        reply.begin()
        self._set_timer()

    def _fault_of(self, request: HttpRequest) -> Fault | None:
        name = request.headers.get("x-sim-fault")
        if name is not None:
            try:
                return Fault(name)
            except ValueError:
                raise HttpError(400, f"x-sim-fault: {name} is none of {', '.join(Fault)}") from None
        if self._options.fault is not None and self._random.random() < self._options.fault_ratio:
            return self._options.fault
        return None

    def _output_tokens(self, asked: chat_body.ChatBody) -> int:
        if asked.ignore_eos or not self._options.eos_probability:
            return asked.max_tokens
        tokens = 1
        while tokens < asked.max_tokens and self._random.random() >= self._options.eos_probability:
            tokens += 1
        return tokens

    def _deliver(self) -> None:
        emissions = self._service.advance(self._model_s(time.perf_counter()))
        replies = self._replies
        metrics = self._metrics
        for key, tokens, final, _, cached_tokens in emissions:
            pending = replies.get(key)
            if pending is None:
                continue
            reply, truth, finish_reason = pending
            first = not truth.tokens
            reply.emit(tokens, cached_tokens, final=final)
            if first and truth.first_token_ns is not None:
                metrics.ttft.observe((truth.first_token_ns - truth.received_ns) / 1e9)
            if final and key in replies:
                del replies[key]
                metrics.finished[finish_reason] += 1
                metrics.cached_tokens += cached_tokens or 0
        if emissions:
            metrics.generation_tokens += len(emissions)
            # From the oldest token of this round to its last write, so an upper bound for each.
            lateness_s = time.perf_counter() - self._start_s - emissions[0].due_s * self._options.time_scale
            metrics.lateness.observe(lateness_s, len(emissions))
        self._set_timer()

    def _abandon(self, key: int) -> None:
        if self._replies.pop(key, None) is not None:
            self._service.cancel(self._model_s(time.perf_counter()), key)
            self._set_timer()

    def _set_timer(self) -> None:
        due_s = self._service.next_event_s()
        self._timer.set(None if due_s is None else self._start_s + due_s * self._options.time_scale)

    def _model_s(self, perf_counter_s: float) -> float:
        return (perf_counter_s - self._start_s) / self._options.time_scale

    def _models(self, connection: HttpProtocol, _: HttpRequest) -> None:
        card = {
            "id": self._options.model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "pd_sim",
            "max_model_len": self._options.max_model_len_tokens,
        }
        _reply_json(connection, {"object": "list", "data": [card]})

    def _tokenize(self, connection: HttpProtocol, request: HttpRequest) -> None:
        fields = chat_body.parse_object(request.body)
        chat_body.check_model(fields, self._options.model)
        prompt = fields.get("prompt")
        if isinstance(prompt, str):
            count = count_tokens(prompt)
        else:
            count = TEMPLATE_TOKENS + sum(map(count_tokens, chat_body.message_texts(fields)))
        # There is no vocabulary: the ids say only how many there are.
        tokens = {"count": count, "tokens": list(range(count)), "token_strs": None}
        _reply_json(connection, {**tokens, "max_model_len": self._options.max_model_len_tokens})

    def _show_metrics(self, connection: HttpProtocol, _: HttpRequest) -> None:
        connection.reply(200, self._metrics.render(self._service), CONTENT_TYPE)

    def _show_truth(self, connection: HttpProtocol, request: HttpRequest) -> None:
        since = parse_qs(request.query).get("since", ["0"])[0]
        if not since.isdecimal():
            raise HttpError(400, "since must be a perf_counter_ns() value")
        connection.reply(200, self._truth.to_json(int(since)), "application/json")

    def _clear_truth(self, connection: HttpProtocol, _: HttpRequest) -> None:
        self._truth.clear()
        _reply_json(connection, {})


def _reply_json(connection: HttpProtocol, answer: object) -> None:
    connection.reply(200, json.dumps(answer).encode(), "application/json")
