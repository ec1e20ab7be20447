"""What arithmetic forbids: floors from a model's shape and a GPU's speed, and tables that contradict themselves.

TTFT is at least the time of the prompt's multiplications, 2 operations a weight and token. TPOT is at least the
time to read every weight that a token uses once. Both ignore attention, communication and launch overheads, so
they are floors at any efficiency. Little's law (N = X x R) holds for every closed loop in a steady state.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from pd_locust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BYTES_BY_DTYPE = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
_LITTLE_LIMIT = 0.1
"""Tables are rounded and mean output lengths are not exact: a smaller residual proves nothing."""
_WAVE_LIMIT = 0.05
_P99_NEEDS = 100


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What bounds a model's speed.

    `matmul_parameters` are the weights that one token is multiplied with, embedding and output head excluded; of a
    mixture of experts the active ones. `head_parameters` are those of the output head, used once an output token.
    `kv_bytes_per_token` and `state_bytes` (per request, of recurrent layers) are what a KV transfer moves.
    """

    matmul_parameters: float
    head_parameters: float = 0.0
    weight_bytes: float = 2.0
    kv_bytes_per_token: float = 0.0
    state_bytes: float = 0.0

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str = "config.json") -> ModelShape:
        """Work a Hugging Face `config.json` out: gated MLP, grouped attention, linear-attention layers, experts.

        Raises ConfigError for an architecture that it cannot work out.
        """
        config = config.get("text_config") or config
        if "kv_lora_rank" in config:
            raise ConfigError(
                f"{where}: latent attention is not worked out; give the numbers of a ModelShape"
            )
        try:
            return _shape_of(config)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{where}: {error} is missing; give the numbers of a ModelShape") from None


@dataclass(frozen=True, slots=True)
class Hardware:
    """Peak speeds of one GPU, dense, at the precision that the model runs in; and GPUs an instance of each role."""

    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    link_bits_per_s: float | None = None
    prefill_gpus: int = 1
    decode_gpus: int = 1


def ttft_floor_ms(shape: ModelShape, hardware: Hardware, computed_tokens: float) -> float | None:
    """Compute floor of a prompt of which `computed_tokens` came from no cache."""
    if hardware.flops_per_s is None:
        return None
    operations = 2 * shape.matmul_parameters * computed_tokens + 2 * shape.head_parameters
    return operations / (hardware.flops_per_s * hardware.prefill_gpus) * 1000


def tpot_floor_ms(shape: ModelShape, hardware: Hardware, context_tokens: float = 0) -> float | None:
    """Bandwidth floor of a decode step: the weights and the KV cache of one request are read once."""
    if hardware.bytes_per_s is None:
        return None
    weights = (shape.matmul_parameters + shape.head_parameters) * shape.weight_bytes
    moved = weights + shape.kv_bytes_per_token * context_tokens + shape.state_bytes
    return moved / (hardware.bytes_per_s * hardware.decode_gpus) * 1000


def transfer_floor_ms(shape: ModelShape, hardware: Hardware, prompt_tokens: float) -> float | None:
    """Wire time of one prompt's KV cache over one link."""
    if hardware.link_bits_per_s is None:
        return None
    return (
        (shape.kv_bytes_per_token * prompt_tokens + shape.state_bytes) * 8 / hardware.link_bits_per_s * 1000
    )


def _shape_of(config: Mapping[str, Any]) -> ModelShape:
    hidden = config["hidden_size"]
    layers = config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    interval = config.get("full_attention_interval")
    kinds = config.get("layer_types") or [
        "linear_attention" if interval and (layer + 1) % interval else "full_attention"
        for layer in range(layers)
    ]
    linear_layers = kinds.count("linear_attention")
    attention_layers = layers - linear_layers
    gate = 2 if config.get("attn_output_gate") else 1
    attention = hidden * head_dim * (heads * (1 + gate) + 2 * kv_heads)
    linear = state_elements = 0
    if linear_layers:
        keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        value_heads = config["linear_num_value_heads"]
        values = value_heads * config["linear_value_head_dim"]
        # Queries, keys, values, output gate, two scalars a head, and the way back.
        linear = hidden * (2 * keys + 3 * values + 2 * value_heads)
        state_elements = values * config["linear_key_head_dim"]
    weight_bytes = _weight_bytes(config)
    kv_bytes = _BYTES_BY_DTYPE.get(str(config.get("torch_dtype") or config.get("dtype") or "bfloat16"), 2.0)
    return ModelShape(
        matmul_parameters=attention_layers * attention
        + linear_layers * linear
        + layers * _mlp(config, hidden),
        head_parameters=hidden * config["vocab_size"],
        weight_bytes=weight_bytes,
        kv_bytes_per_token=attention_layers * 2 * kv_heads * head_dim * kv_bytes,
        # The recurrence is kept in float32.
        state_bytes=linear_layers * state_elements * 4,
    )


def _mlp(config: Mapping[str, Any], hidden: int) -> int:
    experts = config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts")
    if not experts:
        return 3 * hidden * int(config["intermediate_size"])
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    shared = config.get("shared_expert_intermediate_size") or width * (config.get("n_shared_experts") or 0)
    return 3 * hidden * int(width * config["num_experts_per_tok"] + shared) + hidden * int(experts)


def _weight_bytes(config: Mapping[str, Any]) -> float:
    quantization = config.get("quantization_config") or {}
    method = str(quantization.get("quant_method") or "")
    bits = quantization.get("bits") or quantization.get("w_bit")
    if bits:
        return float(bits) / 8
    if method.startswith("fp8"):
        return 1.0
    return _BYTES_BY_DTYPE.get(str(config.get("torch_dtype") or config.get("dtype") or "bfloat16"), 2.0)


class Implausible(NamedTuple):
    """One thing that cannot be (`impossible`) or that does not mean what it says; `values` hold the arithmetic."""

    code: str
    impossible: bool
    where: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a published table. Latencies map a statistic (mean, p50, p95, p99, max) to milliseconds."""

    name: str
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    output_tokens: float | None = None
    concurrency: float | None = None
    requests: float | None = None
    output_tok_s: float | None = None
    ttft_ms: Mapping[str, float] | None = None
    tpot_ms: Mapping[str, float] | None = None
    e2e_ms: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """A table with what its numbers were taken on; without model or hardware there are no floors."""

    rows: tuple[Row, ...]
    shape: ModelShape | None = None
    hardware: Hardware = Hardware()

    @classmethod
    def load(cls, path: str | Path) -> Publication:
        """Read a TABLE.yaml. Raises ConfigError naming the file, the place and what is accepted."""
        path = Path(path)
        document = _mapping(_read(path, yaml.safe_load, "YAML"), {"model", "gpu", "rows"}, str(path))
        rows = document.get("rows")
        if not isinstance(rows, list) or not rows:
            raise ConfigError(
                f"{path}: expected rows, a list such as '- {{prompt_tokens: 850, ttft_ms: 66.9}}'"
            )
        return cls(
            rows=tuple(_row(row, f"{path}, row {place}") for place, row in enumerate(rows, 1)),
            shape=_model(document.get("model"), path),
            hardware=_hardware(document.get("gpu"), path),
        )


def audit(publication: Publication) -> list[Implausible]:
    """Judge every row for itself."""
    found: list[Implausible] = []
    for row in publication.rows:
        if publication.shape is not None:
            found += _under_floors(row, publication.shape, publication.hardware)
        found += _order(row)
        found += _little(row)
        found += _sample(row)
    return found


_STATISTICS = ("min", "p50", "p90", "p95", "p99", "max")


def _under_floors(row: Row, shape: ModelShape, hardware: Hardware) -> Iterator[Implausible]:
    if row.ttft_ms and row.prompt_tokens is not None:
        computed = row.prompt_tokens - (row.cached_tokens or 0)
        yield from _under("ttft-under-floor", row, row.ttft_ms, ttft_floor_ms(shape, hardware, computed))
    if row.tpot_ms:
        floor_ms = tpot_floor_ms(shape, hardware, row.prompt_tokens or 0)
        yield from _under("tpot-under-floor", row, row.tpot_ms, floor_ms)


def _under(
    code: str, row: Row, latency_ms: Mapping[str, float], floor_ms: float | None
) -> Iterator[Implausible]:
    statistic = min(latency_ms, key=lambda name: latency_ms[name])
    if floor_ms is not None and latency_ms[statistic] < floor_ms:
        values = {
            "statistic": statistic,
            "value_ms": latency_ms[statistic],
            "floor_ms": floor_ms,
            "prompt_tokens": row.prompt_tokens,
        }
        yield Implausible(code, True, row.name, values)


def _order(row: Row) -> Iterator[Implausible]:
    for metric in ("ttft", "tpot", "e2e"):
        latency_ms = getattr(row, f"{metric}_ms") or {}
        ranked = [name for name in _STATISTICS if name in latency_ms]
        for lower, higher in pairwise(ranked):
            if latency_ms[lower] > latency_ms[higher]:
                values = {"metric": metric, "lower": lower, "higher": higher}
                yield Implausible(
                    "percentile-order",
                    True,
                    row.name,
                    {**values, "lower_ms": latency_ms[lower], "higher_ms": latency_ms[higher]},
                )


def _little(row: Row) -> Iterator[Implausible]:
    """Hold the token rate against concurrency, latency and output length, the latter from the row's own TPOT."""
    e2e_ms = (row.e2e_ms or {}).get("mean")
    if e2e_ms is None or row.output_tok_s is None:
        return
    output_tokens = row.output_tokens
    ttft_ms, tpot_ms = (row.ttft_ms or {}).get("mean"), (row.tpot_ms or {}).get("mean")
    if output_tokens is None and ttft_ms is not None and tpot_ms:
        output_tokens = (e2e_ms - ttft_ms) / tpot_ms + 1
    if output_tokens is None:
        return
    requests_per_s = (row.concurrency or 1) / (e2e_ms / 1000)
    expected_tok_s = requests_per_s * output_tokens
    residual = row.output_tok_s / expected_tok_s - 1
    if abs(residual) > _LITTLE_LIMIT:
        values = {
            "requests_per_s": requests_per_s,
            "output_tokens": output_tokens,
            "expected_tok_s": expected_tok_s,
            "output_tok_s": row.output_tok_s,
            "residual": residual,
        }
        yield Implausible("little", True, row.name, values)


def _sample(row: Row) -> Iterator[Implausible]:
    latencies = [latency_ms for latency_ms in (row.ttft_ms, row.tpot_ms, row.e2e_ms) if latency_ms]
    if row.requests is None or not any("p99" in latency_ms for latency_ms in latencies):
        return
    if row.requests < _P99_NEEDS:
        yield Implausible("few-samples", False, row.name, {"requests": row.requests, "needed": _P99_NEEDS})
    elif row.concurrency is not None and row.concurrency / row.requests > _WAVE_LIMIT:
        share = row.concurrency / row.requests
        yield Implausible("first-wave", False, row.name, {"share": share, "concurrency": row.concurrency})


def _read(path: Path, parse: Any, kind: str) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, yaml.YAMLError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path} is not {kind}: {str(error).splitlines()[0]}") from error


def _mapping(value: object, accepted: set[str], where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) - accepted:
        raise ConfigError(f"{where}: expected a mapping with keys of {', '.join(sorted(accepted))}")
    return value


def _number(value: object, where: str) -> float:
    try:
        # PyYAML reads 6.9e9 as text: YAML 1.1 wants a sign in the exponent.
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ConfigError(f"{where} is {value!r}; expected a number from 0 on")
    return number


def _row(value: object, where: str) -> Row:
    row = _mapping(value, {one.name for one in fields(Row)}, where)
    read: dict[str, Any] = {"name": str(row.get("name") or where.rpartition(", ")[2])}
    for key, cell in row.items():
        if key.endswith("_ms"):
            cells = (
                _mapping(cell, {"mean", *_STATISTICS}, f"{where}: {key}")
                if isinstance(cell, dict)
                else {"mean": cell}
            )
            read[key] = {name: _number(one, f"{where}: {key}") for name, one in cells.items()}
        elif key != "name":
            read[key] = _number(cell, f"{where}: {key}")
    return Row(**read)


def _model(value: object, path: Path) -> ModelShape | None:
    if value is None:
        return None
    if isinstance(value, str):
        config_path = path.parent / value
        config = _read(config_path, json.loads, "JSON")
        if not isinstance(config, dict):
            raise ConfigError(f"{config_path}: expected the model's config.json")
        return ModelShape.from_config(config, str(config_path))
    numbers = _mapping(value, {one.name for one in fields(ModelShape)}, f"{path}: model")
    if "matmul_parameters" not in numbers:
        raise ConfigError(f"{path}: model: matmul_parameters is missing")
    return ModelShape(**{name: _number(one, f"{path}: model: {name}") for name, one in numbers.items()})


_GPU_UNITS = {
    "tflops": ("flops_per_s", 1e12),
    "bandwidth_gb_s": ("bytes_per_s", 1e9),
    "link_gbit_s": ("link_bits_per_s", 1e9),
}


def _hardware(value: object, path: Path) -> Hardware:
    given = _mapping(value or {}, {*_GPU_UNITS, "prefill_gpus", "decode_gpus"}, f"{path}: gpu")
    read: dict[str, Any] = {}
    for key, cell in given.items():
        name, unit = _GPU_UNITS.get(key, (key, 1))
        number = _number(cell, f"{path}: gpu: {key}") * unit
        if not number:
            raise ConfigError(f"{path}: gpu: {key} is 0")
        read[name] = number
    return Hardware(**read)
