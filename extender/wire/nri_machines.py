"""Machine snapshots of the NRI recordings, see tests/vectors/nri/README.md."""

import lzma
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from pydantic import Field, TypeAdapter

from extender.kubelet.sets import parse_list
from extender.nri.machine import CPU, DRAM, HBM, PMEM, Cache, MemoryNode, NriDevice, NriMachine
from extender.wire.errors import WireError
from extender.wire.validation import Document, load_json, parse_object

MAX_MACHINES: Final = 10_000
_TYPES: Final = {"DRAM": DRAM, "PMEM": PMEM, "HBM": HBM}
_CPU_COLUMNS: Final = (
    "id", "package", "die", "cluster", "node", "core", "threads", "online", "isolated", "base_khz", "min_khz",
    "max_khz", "epp", "kind", "caches",
)  # fmt: skip
_CACHE_COLUMNS: Final = ("level", "type", "id", "cpus", "bytes")

_Id: TypeAlias = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_Bytes: TypeAlias = Annotated[int, Field(ge=0, lt=2**62)]


class _Node(Document):
    id: Annotated[int, Field(ge=0, le=62)]
    cpus: str
    mem: _Bytes
    type: str
    normal: bool
    dist: list[Annotated[int, Field(ge=0, le=1_000_000)]]


class _Device(Document):
    t: str
    maj: int
    min: int
    path: str
    numa_node: int | None = None
    local_cpulist: str | None = None


class _Snapshot(Document):
    mem_total: Annotated[int, Field(alias="memTotal", gt=0, lt=2**62)]
    present: str
    isolated: str
    performance: str = Field(alias="P")
    efficient: str = Field(alias="E")
    cpu_cols: list[str]
    cpus: Annotated[list[list[object]], Field(max_length=8192)]
    cache_cols: list[str]
    caches: Annotated[list[list[object]], Field(max_length=65_536)]
    nodes: Annotated[list[_Node], Field(min_length=1, max_length=63)]
    devices: Annotated[list[_Device], Field(max_length=4096)]


_SNAPSHOT: Final = TypeAdapter(_Snapshot)
_INT: Final = TypeAdapter(_Id)
_KHZ: Final = TypeAdapter(Annotated[int, Field(ge=0, lt=2**40)])
_TEXT: Final = TypeAdapter(str)
_INDEXES: Final = TypeAdapter(list[int])


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
    snapshot = parse_object(_SNAPSHOT, value, field)
    online, kinds = _cpus(snapshot, field)
    count = len(snapshot.nodes)
    nodes = []
    for position, node in enumerate(snapshot.nodes):
        where = f"{field}.nodes[{position}]"
        if node.id != position or len(node.dist) != count or node.type not in _TYPES:
            raise WireError(where, f"id {position}, {count} distances and a type of {', '.join(_TYPES)} are expected")
        if min(node.dist) != node.dist[position] or node.dist.count(node.dist[position]) > 1:
            raise WireError(f"{where}.dist", "the shortest distance is not the one to the node itself")
        cpus = _list(node.cpus, f"{where}.cpus")
        nodes.append(MemoryNode(node.id, cpus, node.mem, _TYPES[node.type], node.normal, tuple(node.dist)))
    if any(cpu.node >= count for cpu in online):
        raise WireError(f"{field}.cpus", "a CPU is on a NUMA node that is not among the nodes")
    return NriMachine(
        cpus=online,
        nodes=tuple(nodes),
        devices=tuple(NriDevice(d.t, d.maj, d.min, d.path, d.numa_node, d.local_cpulist) for d in snapshot.devices),
        present=kinds["present"],
        isolated=_list(snapshot.isolated, f"{field}.isolated"),
        performance=_list(snapshot.performance, f"{field}.P"),
        efficient=_list(snapshot.efficient, f"{field}.E"),
        memory_total_bytes=snapshot.mem_total,
    )


def _cpus(snapshot: _Snapshot, field: str) -> tuple[tuple[CPU, ...], dict[str, int]]:
    caches = []
    for position, row in enumerate(snapshot.caches):
        where = f"{field}.caches[{position}]"
        cells = _cells(snapshot.cache_cols, row, _CACHE_COLUMNS, where)
        level, id_ = (parse_object(_INT, cells[name], f"{where}.{name}") for name in ("level", "id"))
        cpus = _list(parse_object(_TEXT, cells["cpus"], f"{where}.cpus"), f"{where}.cpus")
        caches.append(Cache(level, id_, cpus))
    online, present = [], 0
    for position, row in enumerate(snapshot.cpus):
        where = f"{field}.cpus[{position}]"
        cells = _cells(snapshot.cpu_cols, row, _CPU_COLUMNS, where)
        id_ = parse_object(_INT, cells["id"], f"{where}.id")
        if id_ < 0:
            raise WireError(f"{where}.id", "a CPU id is not negative")
        present |= 1 << id_
        if cells["online"]:
            online.append(_cpu(id_, cells, caches, where))
    if not online:
        raise WireError(f"{field}.cpus", "at least one CPU must be online")
    online.sort(key=lambda cpu: cpu.id)
    known = sum(1 << cpu.id for cpu in online)
    if len(online) != known.bit_count() or any(cpu.threads & ~known for cpu in online):
        raise WireError(f"{field}.cpus", "a CPU is listed twice, or has a thread that is not online")
    return tuple(online), {"present": present}


def _cpu(id_: int, cells: Mapping[str, object], caches: list[Cache], where: str) -> CPU:
    package, die, cluster, node = (
        parse_object(_INT, cells[name], f"{where}.{name}") for name in ("package", "die", "cluster", "node")
    )
    indexes = parse_object(_INDEXES, cells["caches"], f"{where}.caches")
    threads = _list(parse_object(_TEXT, cells["threads"], f"{where}.threads"), f"{where}.threads")
    if not all(0 <= i < len(caches) for i in indexes) or not threads >> id_ & 1 or node < 0:
        raise WireError(where, "caches must be in the table, the CPU among its threads, and its node known")
    return CPU(
        id=id_,
        package=package,
        die=die,
        cluster=cluster,
        node=node,
        threads=threads,
        base_khz=parse_object(_KHZ, cells["base_khz"], f"{where}.base_khz"),
        epp=parse_object(_TEXT, cells["epp"], f"{where}.epp"),
        caches=tuple(caches[i] for i in indexes),
    )


def _cells(columns: list[str], row: list[object], known: tuple[str, ...], where: str) -> dict[str, object]:
    if len(columns) != len(row) or not set(known) <= set(columns):
        raise WireError(where, f"the columns {', '.join(known)} are expected")
    return dict(zip(columns, row, strict=True))


def _list(text: str, where: str) -> int:
    try:
        return parse_list(text)
    except ValueError as error:
        raise WireError(where, str(error)) from None
