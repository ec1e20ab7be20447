"""When each request was received and answered, stamped by the server: the truth for a client's numbers."""

import json
from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class RequestTruth:
    """One request; *_ns are time.perf_counter_ns(), which all processes of a Linux machine share.

    Stamped when its first bytes had been read, and just before the writes that hold its first token, its last
    token and its end. A moment that has not come, or never did, is None.
    """

    received_ns: int
    prompt_tokens: int
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    done_ns: int | None = None
    tokens: int = 0
    cached_tokens: int | None = None


class Truth:
    """Requests by id; of a repeated id the newest, and at most `capacity` of them, again the newest."""

    def __init__(self, capacity: int = 200_000) -> None:
        self._capacity = capacity
        self._requests: OrderedDict[str, RequestTruth] = OrderedDict()

    def add(self, request_id: str, request: RequestTruth) -> None:
        """Keep one request; it may still be filled in."""
        self._requests[request_id] = request
        self._requests.move_to_end(request_id)
        if len(self._requests) > self._capacity:
            self._requests.popitem(last=False)

    def to_json(self, since_ns: int = 0) -> bytes:
        """Return `{request_id: {...}}` of the requests received at or after `since_ns`.

        This takes some microseconds a request, during which every stream stands still.
        """
        fields = RequestTruth.__slots__
        return json.dumps(
            {
                request_id: {field: getattr(request, field) for field in fields}
                for request_id, request in self._requests.items()
                if request.received_ns >= since_ns
            }
        ).encode()

    def clear(self) -> None:
        self._requests.clear()
