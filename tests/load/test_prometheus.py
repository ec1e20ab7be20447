from pd_locust.load.prometheus import exposition

ABSENT = {"mean": None, "p50": None, "p95": None, "p99": None}
WINDOW = {
    "ttft_ms": {"mean": 210.5, "p50": 200.0, "p95": 300.0, "p99": 412.0},
    "tpot_ms": ABSENT,
    "requests_per_s": 12.5,
    "output_tokens_per_s": None,
    "goodput_per_s": 0.0,
}
SHOWN = {
    "users": 64,
    "client": {"loop_lag_p99_ms": 2.5, "cpu_share": 0.31},
    "tiers": [
        {"tier": "short", "in_flight": 60, "finished": 100, "failed": 3, "cut": 2, "window": WINDOW},
        {"tier": 'a "b"\\', "in_flight": 4, "finished": 0, "failed": 0, "cut": 0, "window": None},
    ],
}
METRICS = r"""# TYPE pd_locust_users gauge
pd_locust_users 64
# TYPE pd_locust_in_flight gauge
pd_locust_in_flight{tier="short"} 60
pd_locust_in_flight{tier="a \"b\"\\"} 4
# TYPE pd_locust_requests_total counter
pd_locust_requests_total{tier="short",outcome="success"} 97
pd_locust_requests_total{tier="short",outcome="failure"} 3
pd_locust_requests_total{tier="short",outcome="cut"} 2
pd_locust_requests_total{tier="a \"b\"\\",outcome="success"} 0
pd_locust_requests_total{tier="a \"b\"\\",outcome="failure"} 0
pd_locust_requests_total{tier="a \"b\"\\",outcome="cut"} 0
# TYPE pd_locust_ttft_seconds gauge
pd_locust_ttft_seconds{tier="short",quantile="0.5"} 0.2
pd_locust_ttft_seconds{tier="short",quantile="0.95"} 0.3
pd_locust_ttft_seconds{tier="short",quantile="0.99"} 0.412
# TYPE pd_locust_ttft_mean_seconds gauge
pd_locust_ttft_mean_seconds{tier="short"} 0.2105
# TYPE pd_locust_requests_per_second gauge
pd_locust_requests_per_second{tier="short"} 12.5
# TYPE pd_locust_goodput_per_second gauge
pd_locust_goodput_per_second{tier="short"} 0.0
# TYPE pd_locust_client_loop_lag_seconds gauge
pd_locust_client_loop_lag_seconds{quantile="0.99"} 0.0025
# TYPE pd_locust_client_cpu_share gauge
pd_locust_client_cpu_share 0.31
"""


def test_metrics_have_base_units_and_no_line_for_what_is_absent():
    assert exposition(SHOWN) == METRICS


def test_before_the_first_request_there_are_metrics_of_the_generator_only():
    idle = {"users": 0, "tiers": [], "client": {"loop_lag_p99_ms": None, "cpu_share": None}}
    assert exposition(idle) == "# TYPE pd_locust_users gauge\npd_locust_users 0\n"
