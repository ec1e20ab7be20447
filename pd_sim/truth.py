"""What really happened to each request, stamped where it happened, for measuring the measurers."""

from __future__ import annotations

import json
from collections import OrderedDict


class Trace:
    """One request; *_ns are time.perf_counter_ns(), which all processes of a Linux machine share.

    Stamped when its first bytes had been read, and just before the writes that hold its first token, its last
    token and its end. A moment that has not come, or never did, is None.
    """

    __slots__ = (
        "cached_tokens",
        "done_ns",
        "first_token_ns",
        "last_token_ns",
        "prompt_tokens",
        "received_ns",
        "tokens",
    )

    def __init__(self, received_ns: int, prompt_tokens: int) -> None:
        self.received_ns = received_ns
        self.first_token_ns: int | None = None
        self.last_token_ns: int | None = None
        self.done_ns: int | None = None
        self.tokens = 0
        self.prompt_tokens = prompt_tokens
        self.cached_tokens: int | None = None


class Truth:
    """Traces by request id; of a repeated id the newest, and at most `capacity` of them, again the newest."""

    def __init__(self, capacity: int = 200_000) -> None:
        self._capacity = capacity
        self._traces: OrderedDict[str, Trace] = OrderedDict()

    def add(self, request_id: str, trace: Trace) -> None:
        """Remember one trace; it may still be filled in."""
        self._traces[request_id] = trace
        self._traces.move_to_end(request_id)
        if len(self._traces) > self._capacity:
            self._traces.popitem(last=False)

    def to_json(self, since_ns: int = 0) -> bytes:
        """Return `{request_id: {...}}` of the requests received at or after `since_ns`.

        This takes some microseconds a trace, during which every stream stands still.
        """
        fields = Trace.__slots__
        return json.dumps(
            {
                request_id: {field: getattr(trace, field) for field in fields}
                for request_id, trace in self._traces.items()
                if trace.received_ns >= since_ns
            }
        ).encode()

    def clear(self) -> None:
        """Forget everything."""
        self._traces.clear()
