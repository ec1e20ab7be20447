"""What one stream did, as facts: arrivals on a monotonic clock and what the server said of itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

MESSAGE_LIMIT = 200
_IDENTIFIERS = re.compile(
    r"\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?"  # timestamps
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # UUIDs
    r"|(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}"  # request ids, traces, hashes
    r"|0x[0-9a-fA-F]+"
    r"|\d{4,}"
)


class Category(StrEnum):
    """Why a request is not a success. The value stands in the records and in every report."""

    AUTH = "auth"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    RATE_LIMITED = "rate_limited"
    SERVER_TIMEOUT = "server_timeout"
    SERVER_ERROR = "server_error"
    STREAM_ERROR = "stream_error"
    KV_TRANSFER = "kv_transfer"
    ABORTED = "aborted"
    MALFORMED = "malformed"
    TRUNCATED = "truncated"
    NOT_STREAMED = "not_streamed"
    NO_TEXT = "no_text"
    NO_FIRST_TOKEN = "no_first_token"
    STALLED = "stalled"
    LOCAL_PROXY = "local_proxy"
    REFUSED = "refused"
    RESET = "reset"
    DNS = "dns"
    TLS = "tls"
    CONNECT_TIMEOUT = "connect_timeout"
    PROTOCOL = "protocol"

    @property
    def hint(self) -> str:
        """The likely cause and what to try, in one sentence."""
        return _HINTS[self]


@dataclass(frozen=True, slots=True)
class Failure:
    """One reason for one failed request; `message` is the server's own words, shortened to one line."""

    category: Category
    message: str

    def __str__(self) -> str:
        return f"{self.category}: {self.message}" if self.message else str(self.category)

    @property
    def group(self) -> str:
        """Text that is the same for the same cause: without request ids, timestamps and long numbers.

        Locust keys its failures table by this text; an id in it would make every failure a row of its own.
        """
        return _IDENTIFIERS.sub("…", str(self))


@dataclass(slots=True)
class StreamTiming:
    """Everything the reader of one answer saw. Times are nanoseconds of one monotonic clock.

    `text_ns` holds one arrival for each event that carried generated text: content, reasoning,
    completion text or tool-call arguments. Role-only events, empty deltas, usage and comments are not in it.
    `connect_ms` is set when a connection was opened for this request; `reconnected` when the server had
    closed the kept one and the request was sent again.
    """

    sent_ns: int
    connect_ms: float | None = None
    reconnected: bool = False
    text_ns: list[int] = field(default_factory=list)
    first_answer_ns: int | None = None
    end_ns: int | None = None
    events: int = 0
    first_text_event: int | None = None
    reads: int = 0
    body_bytes: int = 0
    status: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    failure: Failure | None = None
    keep_alive: bool = False
    retry_after_s: float | None = None


_HINTS = {
    Category.AUTH: "the key is missing or wrong for this base URL: check --pd-api-key (PD_API_KEY)",
    Category.NOT_FOUND: "the model ID or the path is unknown there: check --pd-model and the base URL; "
    "behind a PD router it may also mean that no worker of a role is registered",
    Category.REJECTED: "the server refuses this request: prompt longer than its context, or a field it does not "
    "know (try --pd-no-ignore-eos)",
    Category.RATE_LIMITED: "a quota or a gateway answers instead of the engine: raise the limit or lower --users",
    Category.SERVER_TIMEOUT: "a proxy on the way gave up waiting (408): its timeout is shorter than the queue",
    Category.SERVER_ERROR: "router or engine failed: read their logs; 502/503 from a PD router means that no "
    "healthy prefill or decode worker took the request",
    Category.STREAM_ERROR: "an error arrived inside a stream that had begun with status 200: read the engine's log",
    Category.KV_TRANSFER: "the KV cache did not reach the decode worker: check transfer backend, RDMA devices, "
    "bootstrap ports and timeouts on both roles",
    Category.ABORTED: "the engine gave the request up (preempted, filtered or out of KV space)",
    Category.MALFORMED: "an event is not JSON or not UTF-8: something on the way rewrites the stream",
    Category.TRUNCATED: "the body ended before the stream did: a worker died or a proxy cut the connection",
    Category.NOT_STREAMED: "the server answered in one piece although stream was asked for: check the path and "
    "any gateway that collects answers",
    Category.NO_TEXT: "tokens were counted but none carried text: a reasoning parser may hide them "
    "(try another thinking mode) or the output is all special tokens",
    Category.NO_FIRST_TOKEN: "nothing came within --pd-first-token-timeout: the prefill queue is too long or the "
    "KV transfer hangs",
    Category.STALLED: "the stream fell silent for --pd-idle-timeout: a decode worker hangs",
    Category.LOCAL_PROXY: "a proxy on this machine answered, not the PD service: stop the desktop proxy or unset "
    "HTTP_PROXY/HTTPS_PROXY, or set NO_PROXY for this host",
    Category.REFUSED: "nobody listens at that address and port: is the server up, is the port right",
    Category.RESET: "the server or something on the way closed the connection without an answer",
    Category.DNS: "the host name does not resolve from this machine",
    Category.TLS: "the TLS handshake failed: certificate not trusted here, or plain HTTP behind an https:// URL",
    Category.CONNECT_TIMEOUT: "the host does not answer on that port: firewall, wrong address or full backlog",
    Category.PROTOCOL: "the answer is not HTTP/1.x: wrong port, or https:// and http:// mixed up",
}
