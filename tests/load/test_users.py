from __future__ import annotations

from types import SimpleNamespace

from wire.reading import SEEN

from pd_locust.endpoint import secrets_of
from pd_locust.load.users import StreamUser
from pd_locust.stream import Category, Failure, StreamTiming


def test_a_key_that_the_service_repeats_is_in_no_record():
    user = StreamUser.__new__(StreamUser)
    health = SimpleNamespace(cpu_share=None, loop_lag_ms=lambda _ns: None)
    secrets = secrets_of("sk-secret-1234", {"X-Key": "another secret"})
    user.session = SimpleNamespace(health=health, secrets=secrets)
    failure = Failure(Category.AUTH, "HTTP 401: invalid key sk-secret-1234 (another secret)")
    record = user._record(SEEN, StreamTiming(0, end_ns=1, failure=failure), cut=False)

    assert record.message == "HTTP 401: invalid key *** (***)"
