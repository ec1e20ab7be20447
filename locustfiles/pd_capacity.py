r"""How many concurrent users before the limit is passed, tier by tier: a search that finds it by itself.

    locust -f locustfiles/pd_capacity.py --headless --csv reports/capacity
    locust -f locustfiles/pd_capacity.py --headless --csv reports/capacity --host https://example.com/api \
        --pd-tiers short,medium,long --pd-slo 'ttft_mean<=500ms'
"""

from locust import events

from pd_locust.load.options import add_capacity_arguments
from pd_locust.load.plugin import register
from pd_locust.load.shapes import CapacityShape
from pd_locust.load.users import StreamUser

register(events, phases=add_capacity_arguments)


class CapacityUser(StreamUser):
    """Sends what the level asks for."""


class Capacity(CapacityShape):
    """Doubles, closes in and confirms; see --pd-start, --pd-max-users and --pd-slo."""
