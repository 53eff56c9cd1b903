"""Machine snapshots of the NRI recordings, see tests/vectors/nri/README.md."""

import lzma
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from extender.kubelet.sets import bits_of
from extender.nri.machine import DRAM, HBM, PMEM, MemoryNode, NriDevice, NriMachine
from extender.wire.errors import WireError
from extender.wire.nri_reports import MAX_CPUS, cpu_bits, cpus_of
from extender.wire.parsing import converted, load_json

MAX_MACHINES: Final = 10_000
_TYPES: Final = {"DRAM": DRAM, "PMEM": PMEM, "HBM": HBM}

_Id: TypeAlias = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
_Bytes: TypeAlias = Annotated[int, Meta(ge=0, lt=2**62)]


class _CPU(msgspec.Struct, array_like=True):
    """A row of `cpus`; its fields are the columns."""

    id: Annotated[int, Meta(ge=0, lt=MAX_CPUS)]
    package: _Id
    die: _Id
    cluster: _Id
    node: _Id
    core: _Id
    threads: str
    online: int
    isolated: int
    base_khz: Annotated[int, Meta(ge=0, lt=2**40)]
    min_khz: int
    max_khz: int
    epp: str
    kind: str
    caches: tuple[int, ...]


class _CacheRow(msgspec.Struct, array_like=True):
    """A row of `caches`; its fields are the columns."""

    level: _Id
    type: str
    id: _Id
    cpus: str
    bytes: int


class _Node(msgspec.Struct):
    id: int
    cpus: str
    mem: _Bytes
    type: str
    normal: bool
    dist: list[Annotated[int, Meta(ge=0, le=1_000_000)]]


class _SnapshotDevice(msgspec.Struct):
    t: str
    maj: int
    min: int
    path: str
    numa_node: int | None = None
    local_cpulist: str | None = None


class _Snapshot(msgspec.Struct):
    mem_total: Annotated[int, Meta(gt=0, lt=2**62)] = msgspec.field(name="memTotal")
    present: str
    isolated: str
    performance: str = msgspec.field(name="P")
    efficient: str = msgspec.field(name="E")
    cpu_cols: tuple[str, ...]
    cpus: list[_CPU]
    cache_cols: tuple[str, ...]
    caches: list[_CacheRow]
    nodes: Annotated[list[_Node], Meta(min_length=1, max_length=63)]
    devices: Annotated[list[_SnapshotDevice], Meta(max_length=4096)]


def read_machines(body: bytes) -> Mapping[str, object]:
    """The snapshots of a machines file by name, not yet validated. *body* may be compressed with xz.

    Raises:
        WireError: it is not a JSON object.
    """
    if body.startswith(b"\xfd7zXZ"):
        try:
            body = lzma.decompress(body)
        except lzma.LZMAError as error:
            raise WireError("", f"not an xz file: {error}") from None
    document = load_json(body)
    if not isinstance(document, dict) or len(document) > MAX_MACHINES:
        raise WireError("", f"an object with up to {MAX_MACHINES} machines is expected")
    return document


def machine_from_json(value: object, field: str) -> NriMachine:
    """The machine of one snapshot; raises WireError naming what is wrong below *field*."""
    snapshot = converted(value, _Snapshot, field)
    for name, columns, row in (("cpu_cols", snapshot.cpu_cols, _CPU), ("cache_cols", snapshot.cache_cols, _CacheRow)):
        if columns != row.__struct_fields__:
            raise WireError(f"{field}.{name}", f"the columns {', '.join(row.__struct_fields__)} are expected")
    nodes = []
    for position, node in enumerate(snapshot.nodes):
        where = f"{field}.nodes[{position}]"
        if node.id != position or len(node.dist) != len(snapshot.nodes) or node.type not in _TYPES:
            raise WireError(where, f"id {position}, a distance to each node and a type of {', '.join(_TYPES)} expected")
        if min(node.dist) != node.dist[position] or node.dist.count(node.dist[position]) > 1:
            raise WireError(f"{where}.dist", "the shortest distance is not the one to the node itself")
        cpus = cpu_bits(node.cpus, f"{where}.cpus")
        nodes.append(MemoryNode(node.id, cpus, node.mem, _TYPES[node.type], node.normal, tuple(node.dist)))
    online = [
        (cpu.id, cpu.package, cpu.die, cpu.cluster, cpu.node, cpu.threads, cpu.base_khz, cpu.epp, cpu.caches)
        for cpu in snapshot.cpus
        if cpu.online
    ]
    caches = [(cache.level, cache.id, cache.cpus) for cache in snapshot.caches]
    return NriMachine(
        cpus=cpus_of(online, caches, len(nodes), field),
        nodes=tuple(nodes),
        devices=tuple(NriDevice(d.t, d.maj, d.min, d.path, d.numa_node, d.local_cpulist) for d in snapshot.devices),
        present=bits_of(cpu.id for cpu in snapshot.cpus),
        isolated=cpu_bits(snapshot.isolated, f"{field}.isolated"),
        performance=cpu_bits(snapshot.performance, f"{field}.P"),
        efficient=cpu_bits(snapshot.efficient, f"{field}.E"),
        memory_total_bytes=snapshot.mem_total,
    )
