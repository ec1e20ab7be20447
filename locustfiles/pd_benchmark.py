"""The whole protocol: single stream per tier, exactly 1000 requests at 64, a sweep of concurrency per tier.

locust -f locustfiles/pd_benchmark.py --headless --csv reports/benchmark
locust -f locustfiles/pd_benchmark.py --headless --csv reports/mine --host https://example.com/api
"""

from locust import events

from pd_locust.load.options import add_benchmark_arguments
from pd_locust.load.plugin import register
from pd_locust.load.shapes import BenchmarkShape
from pd_locust.load.users import StreamUser

register(events, phases=add_benchmark_arguments)


class BenchmarkUser(StreamUser):
    """Sends what the phase asks for."""


class Benchmark(BenchmarkShape):
    """Phases in order; see --pd-single-requests, --pd-requests and --pd-levels."""
