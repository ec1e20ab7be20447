"""A disaggregated deployment as typed facts: instances, parallelism, GPUs, engine and KV transfer of each role.

Facts come from `prefill_config.yaml` and `decode_config.yaml`, from short labels (`prefill=4x1 decode=12x1`) or
from running instances. What is not known is None, and nothing is concluded from it.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from pd_locust.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SHAPE = re.compile(r"([1-9]\d*)(?:x([1-9]\d*))?")
_SHAPE_FORM = "INSTANCESxTP, such as 4x1"


class Role(StrEnum):
    """What an instance does."""

    PREFILL = "prefill"
    DECODE = "decode"

    @property
    def other(self) -> Role:
        """The role at the other end of the KV transfer."""
        return Role.DECODE if self is Role.PREFILL else Role.PREFILL


def _count(value: object) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | str)
        or not str(value).isdecimal()
        or not int(value)
    ):
        raise ValueError("a whole number from 1 on")
    return int(value)


def _ratio(value: object) -> float:
    try:
        ratio = float(str(value))
    except ValueError:
        ratio = math.nan
    if not 0 < ratio <= 1:
        raise ValueError("a share of 1, such as 0.9")
    return ratio


def _text(value: object) -> str:
    if isinstance(value, dict | list) or value is None or not str(value).strip():
        raise ValueError("a single value")
    return str(value).strip()


def _address(value: object) -> str:
    address = _text(value)
    try:
        host, _ = _split(address)
    except ValueError:
        host = ""
    if not host:
        raise ValueError("HOST:PORT")
    return address


def _key(name: str, read: Callable[[object], Any] = _text) -> Any:
    """Declare a fact: its key in YAML (`kv_transfer.` means inside that mapping) and how its value is read."""
    return field(default=None, metadata={"key": name, "read": read})


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """Instances of one role, all alike. `gpus` counts those of the whole role.

    `max_batch_size` counts requests and `max_seq_len` tokens, as in the files; `other` holds keys that have no
    meaning here and are compared as text.
    """

    role: Role
    model: str | None = _key("model")
    engine: str | None = _key("engine")
    version: str | None = _key("version")
    instances: int | None = _key("instances", _count)
    tensor_parallel_size: int | None = _key("tensor_parallel_size", _count)
    pipeline_parallel_size: int | None = _key("pipeline_parallel_size", _count)
    data_parallel_size: int | None = _key("data_parallel_size", _count)
    gpus: int | None = _key("gpus", _count)
    gpu_type: str | None = _key("gpu_type")
    host: str | None = _key("host")
    dtype: str | None = _key("dtype")
    kv_cache_dtype: str | None = _key("kv_cache_dtype")
    block_size: int | None = _key("block_size", _count)
    kv_backend: str | None = _key("kv_transfer.backend")
    rdma_device: str | None = _key("kv_transfer.rdma_device")
    listen_port: int | None = _key("kv_transfer.listen_port", _count)
    peer_address: str | None = _key("kv_transfer.peer_address", _address)
    max_batch_size: int | None = _key("max_batch_size", _count)
    max_seq_len: int | None = _key("max_seq_len", _count)
    gpu_memory_utilization: float | None = _key("gpu_memory_utilization", _ratio)
    other: tuple[tuple[str, str], ...] = ()

    @property
    def gpus_per_instance(self) -> int:
        """TP x PP x DP; each is 1 where nothing is said."""
        sizes = (self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size)
        return math.prod(size or 1 for size in sizes)

    @property
    def gpu_count(self) -> int:
        """GPUs of the role: as given, else those that its instances need."""
        return self.gpus or (self.instances or 1) * self.gpus_per_instance

    def known(self) -> Iterator[tuple[str, Any]]:
        """Facts that are known, by name."""
        for fact in _FACTS:
            if (value := getattr(self, fact.name)) is not None:
                yield fact.name, value
        yield from self.other


_FACTS = tuple(one for one in fields(RoleFacts) if "key" in one.metadata)
_BY_KEY = {fact.metadata["key"]: fact for fact in _FACTS}


def facts_of(document: Mapping[str, Any], where: str, role: Role | None = None) -> RoleFacts:
    """Read one role's mapping, with the keys of its YAML file. Raises ConfigError naming `where` and the key."""
    flat: dict[str, object] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": one for inner, one in value.items()}
        else:
            flat[str(key)] = value
    given = flat.pop("role", None)
    try:
        role = Role(str(given)) if given is not None else role
    except ValueError:
        role = None
    if role is None:
        raise ConfigError(f"{where}: role is {given!r}; expected prefill or decode")
    values: dict[str, Any] = {}
    other: list[tuple[str, str]] = []
    for key, value in flat.items():
        fact = _BY_KEY.get(key)
        if fact is None:
            other.append((key, str(value)))
        elif value not in (None, ""):
            try:
                values[fact.name] = fact.metadata["read"](value)
            except ValueError as error:
                raise ConfigError(f"{where}: {key} is {value!r}; expected {error}") from None
    return RoleFacts(role, **values, other=tuple(sorted(other)))


def load_role(path: str | Path) -> RoleFacts:
    """Read `prefill_config.yaml` or `decode_config.yaml`. Raises ConfigError that says what is wrong where."""
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected keys such as role, model, tensor_parallel_size and kv_transfer")
    return facts_of(document, str(path))


class Difference(NamedTuple):
    """One fact that is not the same in two deployments; None is unknown. `role` None: the deployment's own."""

    role: Role | None
    fact: str
    old: Any
    new: Any


class Mismatch(NamedTuple):
    """One contradiction: its code, the role it is about (None: both) and the values that show it."""

    code: str
    role: Role | None
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deployment:
    """x prefill and y decode instances. Any prefill instance may serve any decode instance."""

    prefill: RoleFacts
    decode: RoleFacts

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> Deployment | None:
        """Read labels such as `prefill=4x1 decode=12x1 engine=vllm`; None without `prefill` or `decode`.

        Names of facts (`model`, `engine`, `version`, `kv_backend`, `gpu_type`, ...) describe both roles. Raises
        ConfigError for a shape that is not INSTANCESxTP, and when one of the two roles is missing.
        """
        shapes = {role: labels[role] for role in Role if role in labels}
        if not shapes:
            return None
        common: dict[str, Any] = {name: labels[name] for name in _SHARED if name in labels}
        roles = [_role_of_label(role, shapes.get(role), common) for role in Role]
        return cls(*roles)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Deployment:
        """Inverse of `to_json`; KeyError, TypeError or ValueError for anything else."""
        roles = [
            RoleFacts(
                **{
                    **document[role],
                    "role": role,
                    "other": tuple(map(tuple, document[role].get("other", ()))),
                }
            )
            for role in Role
        ]
        return cls(*roles)

    def to_json(self) -> dict[str, Any]:
        """Plain data with stable keys; what is not known is left out."""
        documents = {role: asdict(self.of(role)) for role in Role}
        return {
            "topology": self.topology,
            **{
                str(role): {key: value for key, value in facts.items() if value not in (None, ())}
                for role, facts in documents.items()
            },
        }

    def of(self, role: Role) -> RoleFacts:
        """The facts of one role."""
        return self.prefill if role is Role.PREFILL else self.decode

    @property
    def topology(self) -> str:
        """xPyD, such as `4P12D`; a role whose instances are not counted has one."""
        return f"{self.prefill.instances or 1}P{self.decode.instances or 1}D"

    @property
    def gpu_count(self) -> int:
        """GPUs of both roles."""
        return self.prefill.gpu_count + self.decode.gpu_count


_SHARED = ("model", "engine", "version", "gpu_type", "dtype", "kv_cache_dtype", "kv_backend", "rdma_device")


def _role_of_label(role: Role, shape: str | None, common: Mapping[str, Any]) -> RoleFacts:
    if shape is None:
        raise ConfigError(f"label {role}: missing beside {role.other}; expected {role}={_SHAPE_FORM}")
    match = _SHAPE.fullmatch(shape.strip())
    if match is None:
        raise ConfigError(f"label {role}={shape}: expected {_SHAPE_FORM}")
    return RoleFacts(role, instances=int(match[1]), tensor_parallel_size=int(match[2] or 1), **common)


def differences(old: Deployment | None, new: Deployment | None) -> list[Difference]:
    """List what differs, the topology first; a fact that only one of them knows differs."""
    if old is None or new is None:
        if old is new:
            return []
        return [Difference(None, "deployment", old and old.topology, new and new.topology)]
    found = []
    if old.topology != new.topology:
        found.append(Difference(None, "topology", old.topology, new.topology))
    for role in Role:
        before, after = dict(old.of(role).known()), dict(new.of(role).known())
        found += [
            Difference(role, name, before.get(name), after.get(name))
            for name in {**before, **after}
            if name != "instances" and before.get(name) != after.get(name)
        ]
    return found


_MUST_AGREE = (
    "model",
    "engine",
    "version",
    "dtype",
    "kv_cache_dtype",
    "block_size",
    "kv_backend",
    "tensor_parallel_size",
)
_TCP_BACKENDS = frozenset({"mooncake_tcp", "tcp"})
_RDMA_BACKENDS = frozenset({"mooncake", "mooncakeconnector", "mori"})


def mismatches(prefill: RoleFacts, decode: RoleFacts) -> list[Mismatch]:
    """Find what keeps a prefill and a decode configuration from working, or from being fast, together.

    Nothing is said of facts that one side does not give.
    """
    if prefill.role is decode.role:
        return [Mismatch("same-role", prefill.role, {"role": str(prefill.role)})]
    return [*_between(prefill, decode), *_of_one(prefill, decode), *_of_one(decode, prefill)]


def not_as_declared(declared: RoleFacts, running: RoleFacts) -> list[Mismatch]:
    """List the facts of a file that the running instance contradicts."""
    runs = dict(running.known())
    return [
        Mismatch("not-as-declared", declared.role, {"fact": name, "declared": value, "running": runs[name]})
        for name, value in declared.known()
        if name in runs and runs[name] != value
    ]


def _between(prefill: RoleFacts, decode: RoleFacts) -> Iterator[Mismatch]:
    for name in _MUST_AGREE:
        values = {"prefill": getattr(prefill, name), "decode": getattr(decode, name)}
        if None not in values.values() and values["prefill"] != values["decode"]:
            yield Mismatch(f"unlike-{name.replace('_', '-')}", None, values)
    if decode.max_seq_len and prefill.max_seq_len and decode.max_seq_len < prefill.max_seq_len:
        yield Mismatch(
            "decode-shorter", Role.DECODE, {"prefill": prefill.max_seq_len, "decode": decode.max_seq_len}
        )
    same_host = prefill.host is not None and prefill.host == decode.host
    if same_host and prefill.listen_port is not None and prefill.listen_port == decode.listen_port:
        yield Mismatch("port-shared", None, {"host": prefill.host, "port": prefill.listen_port})


def _of_one(facts: RoleFacts, peer: RoleFacts) -> Iterator[Mismatch]:
    backend = (facts.kv_backend or "").lower()
    if backend in _TCP_BACKENDS or (facts.rdma_device or "").lower() == "tcp":
        yield Mismatch("kv-over-tcp", facts.role, {"backend": facts.kv_backend})
    elif backend in _RDMA_BACKENDS and facts.rdma_device is None:
        yield Mismatch("no-rdma-device", facts.role, {"backend": facts.kv_backend})
    needed = (facts.instances or 1) * facts.gpus_per_instance
    if facts.gpus is not None and facts.gpus < needed:
        yield Mismatch("too-few-gpus", facts.role, {"gpus": facts.gpus, "needed": needed})
    if facts.peer_address is not None:
        yield from _of_peer(facts, peer, facts.peer_address)


def _of_peer(facts: RoleFacts, peer: RoleFacts, address: str) -> Iterator[Mismatch]:
    host, port = _split(address)
    values = {"peer_address": address}
    if _is_ip(host) and ip_address(host).is_unspecified:
        yield Mismatch("peer-unspecified", facts.role, values)
    elif _is_loopback(host):
        peers_view = _split(peer.peer_address)[0] if peer.peer_address else None
        apart = facts.host and peer.host and facts.host != peer.host
        if apart or (peers_view and not _is_loopback(peers_view)):
            yield Mismatch("peer-loopback", facts.role, values)
    elif peer.host and _is_ip(host) is _is_ip(peer.host) and host != peer.host:
        yield Mismatch("peer-host", facts.role, {**values, "host": peer.host})
    if port is not None and peer.listen_port is not None and port != peer.listen_port:
        yield Mismatch("peer-port", facts.role, {**values, "port": peer.listen_port})


def _split(address: str) -> tuple[str, int | None]:
    parts = urlsplit(address if "//" in address else f"//{address}")
    return parts.hostname or "", parts.port


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_ip(host) and ip_address(host).is_loopback)
