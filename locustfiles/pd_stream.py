"""Stream chat completions, one User class a prompt-length tier.

locust -f locustfiles/pd_stream.py                                  web UI, simulated service
locust -f locustfiles/pd_stream.py --host https://example.com/api   web UI, yours
locust -f locustfiles/pd_stream.py --headless --users 179 --run-time 2m --csv reports/run
"""

from locust import events

from pd_locust.load.plugin import register
from pd_locust.load.users import StreamUser

register(events)


class ShortUser(StreamUser):
    """16 prompt tokens: little more than the chat template."""

    tier = "short"


class MediumUser(StreamUser):
    """850 prompt tokens."""

    tier = "medium"


class LongUser(StreamUser):
    """6,330 prompt tokens."""

    tier = "long"


class XlongUser(StreamUser):
    """20,890 prompt tokens; only when chosen with --pd-tiers, by name or in the class picker."""

    tier = "xlong"
