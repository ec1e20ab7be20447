import http.client
import json

import pytest

from pd_sim.faults import Fault


def with_fault(fault):
    return {"x-sim-fault": fault, "x-request-id": fault}.items()


def test_an_error_before_the_first_token_comes_inside_a_200_stream(sim, parse_events, text_of):
    status, _, body = sim.chat(with_fault("error-before-first-token"))
    assert status == 200
    assert text_of(body) == ""
    assert parse_events(body)[-2]["error"]["code"] == 500
    assert parse_events(body)[-1] == "[DONE]"
    assert sim.get("/truth")["error-before-first-token"]["first_token_ns"] is None


def test_an_error_mid_stream_follows_half_of_the_tokens(sim, parse_events, text_of):
    _, _, body = sim.chat(with_fault("error-mid-stream"), max_tokens=8)
    assert len(text_of(body).split()) == 4
    assert parse_events(body)[-2]["error"]["code"] == 500
    truth = sim.get("/truth")["error-mid-stream"]
    assert truth["tokens"] == 4
    assert truth["first_token_ns"] < truth["last_token_ns"] < truth["done_ns"]


def test_a_cut_stream_ends_inside_the_chunked_body(sim):
    with pytest.raises(http.client.IncompleteRead) as cut:
        sim.chat(with_fault("cut-mid-stream"), max_tokens=8)
    assert cut.value.partial.count(b'"content":" ') == 4


def test_stalled_headers_send_nothing(sim):
    connection = sim.connect()
    connection.timeout = 0.2
    connection.request("POST", "/v1/chat/completions", "{}", dict(with_fault("stall-headers")))
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()


def test_a_stall_mid_stream_keeps_the_connection_and_frees_the_place(sim, body_of):
    connection = sim.connect()
    connection.request(
        "POST",
        "/v1/chat/completions",
        json.dumps(body_of(max_tokens=8)),
        dict(with_fault("stall-mid-stream")),
    )
    response = connection.getresponse()
    connection.sock.settimeout(0.3)
    received = b""
    while received.count(b'"content":" ') < 4:
        received += response.read1(65_536)
    with pytest.raises(TimeoutError):
        response.read1(65_536)
    assert received.count(b'"content":" ') == 4
    assert sim.metric("vllm:num_requests_running") == 0
    connection.close()


@pytest.mark.parametrize(
    ("fault", "status", "retry_after"), [("status-503", 503, None), ("status-429", 429, "1")]
)
def test_status_faults_are_errors_with_their_headers(sim, fault, status, retry_after):
    got, headers, body = sim.chat(with_fault(fault))
    assert (got, headers["retry-after"], json.loads(body)["error"]["code"]) == (status, retry_after, status)


def test_a_streaming_request_can_be_answered_with_plain_json(sim):
    _, headers, body = sim.chat(with_fault("not-streamed"))
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["usage"]["completion_tokens"] == 4


def test_pings_stand_between_the_tokens_and_change_nothing_else(sim, text_of):
    _, _, body = sim.chat(with_fault("ping"), max_tokens=4)
    assert body.count(b": ping\n\n") == 4
    assert len(text_of(body).split()) == 4


def test_a_burst_holds_every_token_back_to_the_end(sim, text_of):
    _, _, body = sim.chat(with_fault("burst"), max_tokens=20)
    truth = sim.get("/truth")["burst"]
    assert len(text_of(body).split()) == truth["tokens"] == 20
    assert truth["first_token_ns"] == truth["last_token_ns"]
    # The model's time of the last token: 4.91 + 19 x 0.64 ms.
    assert truth["first_token_ns"] - truth["received_ns"] > 16e6


def test_usage_can_be_withheld(sim, parse_events):
    _, _, body = sim.chat(with_fault("no-usage"))
    assert all("usage" not in found for found in parse_events(body)[:-1])


def test_a_lost_kv_transfer_is_an_abort_object_as_finish_reason(sim, parse_events, text_of):
    _, _, body = sim.chat(with_fault("kv-transfer"))
    reason = parse_events(body)[-2]["choices"][0]["finish_reason"]
    assert reason["type"] == "abort"
    assert "KVTransferError" in reason["message"]
    assert text_of(body) == ""


def test_an_unknown_fault_is_refused_with_the_names_there_are(sim):
    status, _, body = sim.chat({"x-sim-fault": "gremlin"}.items())
    assert status == 400
    assert all(fault in json.loads(body)["error"]["message"] for fault in Fault)


def test_a_fault_ratio_hits_that_share_of_the_requests(start):
    sim = start("--time-scale", "0.1", "--fault", "status-503", "--fault-ratio", "0.5", "--seed", "1")
    statuses = [sim.chat(max_tokens=1)[0] for _ in range(40)]
    assert 10 <= statuses.count(503) <= 30
    assert statuses.count(200) + statuses.count(503) == 40
