"""Reads scripted arrivals through the hot loop, and says what of a record does not depend on time."""

from __future__ import annotations

from pd_locust.record import Part, RequestContext, RequestRecord
from pd_locust.wire.events import measure
from pd_locust.wire.replay import verdict

MS = 1_000_000
SENT_NS = 5_000 * MS
SEEN = RequestContext("r", 1, "stream", "short", 1, Part.SAMPLE, 0, 0, 0, 1)


def read(*arrivals, **options):
    """Record of a stream whose reads (bytes, or an exception) come so many ms after it was sent."""
    clock_ns = SENT_NS

    def chunks():
        nonlocal clock_ns
        for at_ms, arrival in arrivals:
            clock_ns = SENT_NS + round(at_ms * MS)
            if isinstance(arrival, Exception):
                raise arrival
            yield arrival

    timing = measure(chunks(), lambda: clock_ns, sent_ns=SENT_NS, **options)
    return RequestRecord.from_timing(SEEN, timing)


def judged(chunks):
    """Everything of the record that may not depend on how the bytes were cut."""
    timing = measure(chunks, lambda: SENT_NS, sent_ns=SENT_NS)
    return {**verdict(timing), "events": timing.events, "cached_tokens": timing.cached_tokens}
