"""Deployments as typed facts: read from files and labels, compared, and checked against each other."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from pd_locust.deployment import (
    Deployment,
    Difference,
    Mismatch,
    Role,
    differences,
    facts_of,
    load_role,
    mismatches,
    not_as_declared,
)
from pd_locust.errors import ConfigError

PREFILL = """
model: Qwen3.5-9B
role: prefill
tensor_parallel_size: 1
pipeline_parallel_size: 1
instances: 8
gpus: 8
gpu_type: H100
host: 10.0.0.3
engine: vllm
version: 0.32.0
dtype: bfloat16
block_size: 64
kv_transfer:
  backend: mooncake
  rdma_device: mlx5_0
  listen_port: 8998
  peer_address: 10.0.0.4:8999
max_batch_size: 32
max_seq_len: 32768
gpu_memory_utilization: 0.9
"""
DECODE = (
    PREFILL.replace("role: prefill", "role: decode")
    .replace("host: 10.0.0.3", "host: 10.0.0.4")
    .replace("8998", "PORT")
    .replace("10.0.0.4:8999", "10.0.0.3:8998")
    .replace("PORT", "8999")
)


def role(text, **changes):
    """The facts of a file with some top-level or `kv_transfer` keys changed; None removes a key."""
    document = yaml.safe_load(text)
    for key, value in changes.items():
        place = document["kv_transfer"] if key in document["kv_transfer"] else document
        place[key] = value
    return facts_of(document, "test.yaml")


def test_a_file_is_read_into_typed_facts(tmp_path):
    path = tmp_path / "prefill_config.yaml"
    path.write_text(PREFILL)
    facts = load_role(path)
    assert facts.role is Role.PREFILL
    assert (facts.model, facts.instances, facts.gpu_count, facts.max_seq_len) == ("Qwen3.5-9B", 8, 8, 32768)
    assert (facts.kv_backend, facts.rdma_device, facts.listen_port) == ("mooncake", "mlx5_0", 8998)
    assert facts.peer_address == "10.0.0.4:8999"
    assert facts.gpu_memory_utilization == 0.9


def test_a_key_without_a_meaning_here_is_kept_as_text_and_compared():
    facts = facts_of({"role": "decode", "quantization": "fp8", "env": {"UCX_TLS": "rc"}}, "d.yaml")
    assert facts.other == (("env.UCX_TLS", "rc"), ("quantization", "fp8"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("role: both", "role is 'both'; expected prefill or decode"),
        ("model: m", "role is None; expected prefill or decode"),
        ("{role: decode, tensor_parallel_size: 0}", "tensor_parallel_size is 0; expected a whole number"),
        ("{role: decode, instances: true}", "instances is True; expected a whole number from 1 on"),
        ("{role: decode, max_seq_len: 32k}", "max_seq_len is '32k'; expected a whole number from 1 on"),
        ("{role: decode, gpu_memory_utilization: 90}", "gpu_memory_utilization is 90; expected a share"),
        (
            "{role: decode, kv_transfer: {peer_address: 'h:99999'}}",
            "peer_address is 'h:99999'; expected HOST",
        ),
        ("{role: decode, model: [a]}", "model is ['a']; expected a single value"),
        ("- role", "expected keys such as role"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_the_key_and_what_is_accepted(tmp_path, text, said):
    path = tmp_path / "decode_config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_role(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_role(tmp_path / "absent.yaml")


def test_short_labels_make_a_deployment():
    deployment = Deployment.from_labels({"prefill": "4x2", "decode": "12", "engine": "sglang", "run": "7"})
    assert deployment.topology == "4P12D"
    assert (deployment.prefill.gpu_count, deployment.decode.gpu_count, deployment.gpu_count) == (8, 12, 20)
    assert deployment.prefill.engine == deployment.decode.engine == "sglang"


def test_labels_without_roles_are_no_deployment():
    assert Deployment.from_labels({"pairs": "8", "tp": "1"}) is None


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"prefill": "4x1"}, "label decode: missing beside prefill"),
        ({"prefill": "4x1", "decode": "0x1"}, "label decode=0x1: expected INSTANCESxTP"),
        ({"prefill": "four", "decode": "1"}, "label prefill=four"),
    ],
)
def test_labels_that_are_no_shape_are_refused(labels, said):
    with pytest.raises(ConfigError, match=said):
        Deployment.from_labels(labels)


def test_a_deployment_survives_json():
    deployment = Deployment(role(PREFILL, quantization="fp8"), role(DECODE))
    assert Deployment.from_json(json.loads(json.dumps(deployment.to_json()))) == deployment


def test_gpus_are_those_that_the_instances_need_unless_they_are_given():
    facts = facts_of(
        {"role": "decode", "instances": 3, "tensor_parallel_size": 2, "data_parallel_size": 2}, "d"
    )
    assert facts.gpu_count == 12
    assert replace(facts, gpus=16).gpu_count == 16


def test_differences_begin_with_the_topology():
    one = Deployment(role(PREFILL), role(DECODE))
    other = Deployment(role(PREFILL, tensor_parallel_size=2), role(DECODE, instances=12, quantization="fp8"))
    assert differences(one, one) == []
    assert differences(one, other) == [
        Difference(None, "topology", "8P8D", "8P12D"),
        Difference(Role.PREFILL, "tensor_parallel_size", 1, 2),
        Difference(Role.DECODE, "quantization", None, "fp8"),
    ]


def test_a_deployment_differs_from_one_that_nobody_described():
    deployment = Deployment(role(PREFILL), role(DECODE))
    assert differences(None, deployment) == [Difference(None, "deployment", None, "8P8D")]
    assert differences(None, None) == []


def test_the_good_pair_has_no_mismatch():
    assert mismatches(role(PREFILL), role(DECODE)) == []


def test_nothing_is_concluded_from_facts_that_one_side_does_not_give():
    bare = {name: facts_of({"role": name}, name) for name in ("prefill", "decode")}
    assert mismatches(bare["prefill"], bare["decode"]) == []
    assert mismatches(role(PREFILL), bare["decode"]) == []


@pytest.mark.parametrize(
    ("prefill", "decode", "found"),
    [
        ({}, {"model": "Qwen3-8B"}, ("unlike-model", None, {"prefill": "Qwen3.5-9B", "decode": "Qwen3-8B"})),
        ({"engine": "sglang"}, {}, ("unlike-engine", None, {"prefill": "sglang", "decode": "vllm"})),
        ({}, {"version": "0.31.0"}, ("unlike-version", None, {"prefill": "0.32.0", "decode": "0.31.0"})),
        ({}, {"dtype": "float16"}, ("unlike-dtype", None, {"prefill": "bfloat16", "decode": "float16"})),
        ({"block_size": 16}, {}, ("unlike-block-size", None, {"prefill": 16, "decode": 64})),
        ({}, {"backend": "nixl"}, ("unlike-kv-backend", None, {"prefill": "mooncake", "decode": "nixl"})),
        (
            {},
            {"tensor_parallel_size": 2, "gpus": 16},
            ("unlike-tensor-parallel-size", None, {"prefill": 1, "decode": 2}),
        ),
        ({}, {"max_seq_len": 16384}, ("decode-shorter", "decode", {"prefill": 32768, "decode": 16384})),
        ({"rdma_device": None}, {}, ("no-rdma-device", "prefill", {"backend": "mooncake"})),
        ({}, {"rdma_device": "tcp"}, ("kv-over-tcp", "decode", {"backend": "mooncake"})),
        ({"gpus": 4}, {}, ("too-few-gpus", "prefill", {"gpus": 4, "needed": 8})),
        (
            {"peer_address": "127.0.0.1:8999"},
            {},
            ("peer-loopback", "prefill", {"peer_address": "127.0.0.1:8999"}),
        ),
        (
            {},
            {"peer_address": "localhost:8998"},
            ("peer-loopback", "decode", {"peer_address": "localhost:8998"}),
        ),
        (
            {},
            {"peer_address": "0.0.0.0:8998"},
            ("peer-unspecified", "decode", {"peer_address": "0.0.0.0:8998"}),
        ),
        (
            {"peer_address": "10.0.0.4:8998"},
            {},
            ("peer-port", "prefill", {"peer_address": "10.0.0.4:8998", "port": 8999}),
        ),
        (
            {"peer_address": "10.0.0.5:8999"},
            {},
            ("peer-host", "prefill", {"peer_address": "10.0.0.5:8999", "host": "10.0.0.4"}),
        ),
    ],
)
def test_a_pair_with_one_mistake_has_just_that_mismatch(prefill, decode, found):
    assert mismatches(role(PREFILL, **prefill), role(DECODE, **decode)) == [Mismatch(*found)]


def test_the_tcp_backend_on_both_sides_is_found_on_both():
    found = mismatches(role(PREFILL, backend="mooncake_tcp"), role(DECODE, backend="mooncake_tcp"))
    assert [(one.code, one.role) for one in found] == [("kv-over-tcp", "prefill"), ("kv-over-tcp", "decode")]


def test_the_same_role_twice_is_the_only_thing_said():
    assert mismatches(role(PREFILL), role(PREFILL, model="other")) == [
        Mismatch("same-role", Role.PREFILL, {"role": "prefill"})
    ]


def test_two_roles_on_one_host_need_two_ports_and_may_meet_on_loopback():
    one_host = {"host": "H100-003", "peer_address": "127.0.0.1"}
    found = mismatches(role(PREFILL, **one_host), role(DECODE, **one_host, listen_port=8998))
    assert found == [Mismatch("port-shared", None, {"host": "H100-003", "port": 8998})]


def test_loopback_is_wrong_when_the_other_side_is_reached_over_the_network():
    found = mismatches(role(PREFILL, host=None, peer_address="[::1]:8999"), role(DECODE, host=None))
    assert [one.code for one in found] == ["peer-loopback"]


def test_what_runs_is_held_against_what_was_declared():
    running = facts_of({"role": "decode", "model": "Qwen3.5-9B", "max_seq_len": 8192}, "server_info")
    assert not_as_declared(role(DECODE), running) == [
        Mismatch("not-as-declared", Role.DECODE, {"fact": "max_seq_len", "declared": 32768, "running": 8192})
    ]
