"""The protocol of locustfiles/pd_benchmark.py with the herd that we never send: all users start in one instant."""

from locust import events

from pd_locust.load.options import add_benchmark_arguments
from pd_locust.load.plugin import register
from pd_locust.load.session import Session
from pd_locust.load.shapes import BenchmarkShape
from pd_locust.load.users import StreamUser
from pd_locust.ramp import Latencies

Latencies.with_ramp = lambda _self, phase: phase
Session.stagger = lambda _self, _number: None
register(events, phases=add_benchmark_arguments)


class BenchmarkUser(StreamUser):
    """Sends what the phase asks for."""


class Benchmark(BenchmarkShape):
    """The run at a fixed concurrency and nothing else."""

    def tick(self) -> tuple[int, float] | None:
        """Ask for all users of a phase at once."""
        users = super().tick()
        return users and (users[0], 10_000)
