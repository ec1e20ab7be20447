"""Floors and audits; the right values were worked out by hand from the published figures."""

from __future__ import annotations

import json

import pytest

from pd_locust.errors import ConfigError
from pd_locust.plausibility import (
    Hardware,
    ModelShape,
    Publication,
    audit,
    tpot_floor_ms,
    transfer_floor_ms,
    ttft_floor_ms,
)

# Qwen3.5-9B as published: every fourth of 32 layers is full attention, the others are gated DeltaNet.
QWEN_CONFIG = {
    "text_config": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "intermediate_size": 12288,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "vocab_size": 248320,
        "dtype": "bfloat16",
    }
}
H100_BF16 = Hardware(flops_per_s=989e12, bytes_per_s=3.35e12, link_bits_per_s=400e9)
H100_FP8 = Hardware(flops_per_s=1979e12, bytes_per_s=3.35e12)

# The tables of the benchmark that this project makes reproducible, as published.
SINGLE_STREAM = """
model: config.json
gpu: {tflops: TFLOPS, bandwidth_gb_s: 3350}
rows:
- {name: short, prompt_tokens: 16, ttft_ms: 49.1, tpot_ms: 6.4, output_tok_s: 153.5, e2e_ms: 3340}
- {name: medium, prompt_tokens: 850, ttft_ms: 66.9, tpot_ms: 6.4, output_tok_s: 152.3, e2e_ms: 3360}
- {name: long, prompt_tokens: 6330, ttft_ms: 80.1, tpot_ms: 6.5, output_tok_s: 150.3, e2e_ms: 3410}
- {name: xlong, prompt_tokens: 20890, ttft_ms: 94.4, tpot_ms: 6.7, output_tok_s: 145.9, e2e_ms: 3510}
"""
AT_64 = """
rows:
- name: 1000 at 64
  concurrency: 64
  requests: 1000
  output_tok_s: 3400
  ttft_ms: {mean: 391.4, p50: 372.3, p95: 1092.9, p99: 1107.4}
  tpot_ms: {mean: 9.2, p50: 9.2, p95: 9.6, p99: 9.6}
  e2e_ms: {mean: 2730, p50: 2760, p95: 2760, p99: 2420}
"""
CAPACITY = """
model: config.json
gpu: {tflops: 989}
rows:
- {name: short, prompt_tokens: 16, concurrency: 179, ttft_ms: {mean: 278, p50: 285, p95: 373, p99: 382}}
- {name: medium, prompt_tokens: 850, concurrency: 127, ttft_ms: {mean: 300, p50: 357, p95: 408, p99: 417}}
- {name: long, prompt_tokens: 6330, concurrency: 72, ttft_ms: {mean: 492, p50: 200, p95: 1073, p99: 1093}}
"""


@pytest.fixture
def publication(tmp_path):
    def load(text):
        (tmp_path / "config.json").write_text(json.dumps(QWEN_CONFIG))
        path = tmp_path / "table.yaml"
        path.write_text(text)
        return Publication.load(path)

    return load


def test_a_hybrid_models_shape_follows_from_its_config():
    shape = ModelShape.from_config(QWEN_CONFIG)
    # MLP 32 x 3 x 4096 x 12288; attention 8 x 4096 x (2 x 4096 + 4096 + 2 x 1024); linear
    # 24 x 4096 x (2 x 2048 + 3 x 4096 + 2 x 32).
    assert shape.matmul_parameters == 4_831_838_208 + 469_762_048 + 1_616_904_192
    assert shape.head_parameters == 1_017_118_720
    assert shape.kv_bytes_per_token == 32 * 1024
    assert shape.state_bytes == 24 * 32 * 128 * 128 * 4


def test_a_dense_model_without_extras_is_worked_out():
    # Llama-2-7B: 6.74e9 weights, of which embedding and head are 131 M each.
    config = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "torch_dtype": "float16",
    }
    shape = ModelShape.from_config(config)
    assert shape.matmul_parameters == pytest.approx(6.738e9 - 2 * 131.1e6, rel=1e-3)
    assert shape.kv_bytes_per_token == 512 * 1024


def test_only_the_active_experts_of_a_mixture_count():
    # Qwen3-30B-A3B: 3.3e9 active weights with embedding and head, which are 311 M each.
    config = {
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "quantization_config": {"quant_method": "fp8"},
    }
    shape = ModelShape.from_config(config)
    assert shape.matmul_parameters == pytest.approx(3.35e9 - 2 * 311e6, rel=0.02)
    assert shape.weight_bytes == 1.0


@pytest.mark.parametrize("config", [{"hidden_size": 1}, {"kv_lora_rank": 512, "hidden_size": 7168}])
def test_an_architecture_that_is_not_worked_out_asks_for_numbers(config):
    with pytest.raises(ConfigError, match="give the numbers of a ModelShape"):
        ModelShape.from_config(config)


def test_floors_are_those_of_the_arithmetic():
    shape = ModelShape(6.9e9, kv_bytes_per_token=32 * 1024, state_bytes=50e6)
    assert ttft_floor_ms(shape, H100_BF16, 20_890) == pytest.approx(291.5, abs=0.1)
    assert ttft_floor_ms(shape, H100_FP8, 6_330) == pytest.approx(44.1, abs=0.1)
    assert ttft_floor_ms(shape, Hardware(989e12, prefill_gpus=2), 20_890) == pytest.approx(145.7, abs=0.1)
    assert tpot_floor_ms(shape, H100_BF16) == pytest.approx((13.8e9 + 50e6) / 3.35e12 * 1000)
    assert transfer_floor_ms(shape, H100_BF16, 20_890) == pytest.approx(14.7, abs=0.1)


def test_without_a_speed_there_is_no_floor():
    shape = ModelShape(6.9e9)
    assert ttft_floor_ms(shape, Hardware(), 16) is None
    assert tpot_floor_ms(shape, Hardware()) is None
    assert transfer_floor_ms(shape, Hardware(), 16) is None


def test_the_published_single_streams_are_impossible_at_6330_and_20890_tokens_in_bf16(publication):
    found = audit(publication(SINGLE_STREAM.replace("TFLOPS", "989")))
    assert [(one.code, one.where, one.impossible) for one in found] == [
        ("ttft-under-floor", "long", True),
        ("ttft-under-floor", "xlong", True),
    ]
    assert found[1].values["floor_ms"] == pytest.approx(292.3, abs=0.1)


def test_in_fp8_only_20890_tokens_are_impossible(publication):
    found = audit(publication(SINGLE_STREAM.replace("TFLOPS", "1979")))
    assert [(one.code, one.where) for one in found] == [("ttft-under-floor", "xlong")]


def test_cached_tokens_need_no_computing(publication):
    table = SINGLE_STREAM.replace("TFLOPS", "1979").replace("20890", "20890, cached_tokens: 20864")
    assert audit(publication(table)) == []


def test_the_published_run_at_64_contradicts_itself(publication):
    found = {one.code: one for one in audit(publication(AT_64))}
    assert set(found) == {"percentile-order", "little", "first-wave"}
    assert found["percentile-order"].values == {
        "metric": "e2e",
        "lower": "p95",
        "higher": "p99",
        "lower_ms": 2760,
        "higher_ms": 2420,
    }
    little = found["little"].values
    assert little["requests_per_s"] == pytest.approx(23.44, abs=0.01)
    # (2730 - 391.4) / 9.2 + 1 output tokens a request, so 6,000 tok/s.
    assert little["output_tokens"] == pytest.approx(255.2, abs=0.1)
    assert little["expected_tok_s"] == pytest.approx(5982, abs=1)
    assert not found["first-wave"].impossible
    assert found["first-wave"].values["share"] == 0.064


def test_the_published_capacities_are_possible(publication):
    assert audit(publication(CAPACITY)) == []


def test_a_p99_of_a_handful_is_doubted(publication):
    rows = "rows: [{requests: 60, concurrency: 1, ttft_ms: {p50: 10, p99: 20}}]"
    assert [(one.code, one.where) for one in audit(publication(rows))] == [("few-samples", "row 1")]


def test_a_tpot_below_the_time_to_read_the_weights_is_impossible(publication):
    rows = "model: {matmul_parameters: 6.9e9}\ngpu: {bandwidth_gb_s: 3350}\nrows: [{tpot_ms: 4.0}, {tpot_ms: 4.2}]"
    assert [(one.code, one.where) for one in audit(publication(rows))] == [("tpot-under-floor", "row 1")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows: []", "expected rows, a list such as"),
        ("rows: [{ttft: 3}]", "row 1: expected a mapping with keys of cached_tokens"),
        ("rows: [{ttft_ms: fast}]", "row 1: ttft_ms is 'fast'; expected a number from 0 on"),
        ("rows: [{ttft_ms: {median: 3}}]", "row 1: ttft_ms: expected a mapping with keys of max, mean"),
        (
            "rows: [{tpot_ms: 1}]\nmodel: {layers: 3}",
            "model: expected a mapping with keys of head_parameters",
        ),
        ("rows: [{tpot_ms: 1}]\nmodel: {weight_bytes: 1}", "model: matmul_parameters is missing"),
        ("rows: [{tpot_ms: 1}]\nmodel: absent.json", "absent.json: No such file"),
        ("rows: [{tpot_ms: 1}]\nmodel: table.yaml", "table.yaml is not JSON"),
        ("rows: [{tpot_ms: 1}]\ngpu: {tflops: 0}", "gpu: tflops is 0"),
        ("rows: [", "is not YAML"),
        ("- 1", "expected a mapping with keys of gpu, model, rows"),
    ],
)
def test_a_table_that_is_not_understood_is_refused_with_what_is_accepted(publication, text, said):
    with pytest.raises(ConfigError) as error:
        publication(text)
    assert said in str(error.value)
