"""NodeResourceTopology v1alpha2 objects: ours carry a whole report, others have counts per NUMA node.

Rules of this file
- The carried report is decompressed within a limit. The annotation is untrusted input like any other.
- Zones of type Node are NUMA nodes if their name is node-N. Zones of type NodeGroup are ours (devices of several
  nodes). All other zones belong to other models and are skipped.
- An object of the NRI topology-aware policy has the attribute `TopologyPolicy: topology-aware` and a zone for each
  pool, and no zone that is a NUMA node. Pools form one tree, children before their parent.
- A quantity that is not whole, or a duplicate zone, is an error: half an object would be misleading.
"""

import base64
import binascii
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from extender.kubelet.errors import UnknownVersionError
from extender.kubelet.rules import NEWEST_MINOR, Rules
from extender.kubelet.sets import MAX_NUMA_ID, iter_bits
from extender.nri.counts import NriCounts, PoolCounts
from extender.replay.counts import Counted, Counts, ZoneCounts
from extender.wire.errors import WireError, shown
from extender.wire.parsing import converted, ids_at, mapping, objects, parse_milli, parse_whole

POLICY_ATTRIBUTE: Final = "TopologyPolicy"
POLICY: Final = "topology-aware"
MAX_POOLS: Final = 1024
"""A pool is a package, a die, a NUMA node or an L3 cache. The largest recorded machine has 41."""
_KINDS: Final = frozenset({"virtual node", "socket", "die", "numa node", "L3 cache"})
_SETS: Final = {"memory set": "memory_nodes", "shared cpuset": "shared", "reserved cpuset": "reserved",
                "isolated cpuset": "isolated"}  # fmt: skip


def _pool(zone: "_Zone", field: str) -> PoolCounts:
    """The pool of one zone. Raises WireError."""
    if zone.type not in _KINDS:
        raise WireError(f"{field}.type", f"{shown(zone.type)} is not a kind of pool of the NRI topology-aware policy")
    resources = {each.name: each for each in zone.resources or ()}
    attributes = {each.name: each.value for each in zone.attributes or ()}
    if missing := {"cpu", "memory"} - resources.keys():
        raise WireError(f"{field}.resources", f"{', '.join(sorted(missing))}: missing")
    cpu, memory, where = resources["cpu"], resources["memory"], f"{field}.resources"
    return PoolCounts(
        name=zone.name,
        parent=zone.parent,
        kind=zone.type,
        capacity_millicpu=parse_milli(cpu.allocatable, f"{where}.cpu.capacity"),
        available_millicpu=_signed_milli(cpu.available, f"{where}.cpu.available"),
        capacity_memory_bytes=parse_milli(memory.allocatable, f"{where}.memory.capacity") // 1000,
        available_memory_bytes=_signed_milli(memory.available, f"{where}.memory.available") // 1000,
        **{to: ids_at(attributes.get(name, ""), f"{field}.attributes.{name}") for name, to in _SETS.items()},
    )


def _tree_of(pools: Iterable[PoolCounts]) -> tuple[PoolCounts, ...]:
    """*pools*, checked: names differ, parents come after their children, and only the last one has none.

    Raises: WireError: the pools are no such tree, or a pool has more than the pool above it.
    """
    found = tuple(pools)
    if not 0 < len(found) <= MAX_POOLS:
        raise WireError("zones", f"{len(found)} pools, where 1 to {MAX_POOLS} are expected")
    above: dict[str, PoolCounts] = {}
    for position, pool in reversed(list(enumerate(found))):
        where, is_root = f"zones[{position}]", position == len(found) - 1
        parent = above.get(pool.parent)
        if pool.name in above or (pool.parent != "" if is_root else parent is None):
            raise WireError(where, f"pool {shown(pool.name)}: its name or its parent is not that of a tree")
        if parent is not None and (
            pool.capacity_millicpu > parent.capacity_millicpu
            or pool.capacity_memory_bytes > parent.capacity_memory_bytes
        ):
            raise WireError(where, f"pool {shown(pool.name)} has more than its parent")
        if pool.available_millicpu > pool.capacity_millicpu or pool.available_memory_bytes > pool.capacity_memory_bytes:
            raise WireError(where, f"pool {shown(pool.name)} has more available than there is")
        above[pool.name] = pool
    return found


def _signed_milli(value: str | int, where: str) -> int:
    """A quantity that may be below zero: a drained pool with a container that requests no CPU shows -1m."""
    if isinstance(value, str) and value.startswith("-"):
        return -parse_milli(value[1:], where)
    return parse_milli(value, where)


REPORT: Final = "numa-extender/report"
CONFIRMED_AT: Final = "numa-extender/confirmed-at"
REFRESH_SECONDS: Final = "numa-extender/refresh-seconds"
OURS: Final = "numa-node-exporter"
"""The field manager of our exporter, and its name as a publisher."""
DEFAULT_REFRESH_SECONDS: Final = 600.0
MAX_REFRESH_SECONDS: Final = 86_400.0
_ZONE: Final = re.compile(r"node-(0|[1-9][0-9]{0,5})\Z", re.ASCII)
_GROUP: Final = re.compile(r"node(-(0|[1-9][0-9]{0,5})){2,16}\Z", re.ASCII)
_GZIP: Final = 16 + zlib.MAX_WBITS
_XZ_MAGIC: Final = b"\xfd7zXZ\x00"
_XZ_MEMORY: Final = 32 << 20
"""Memory limit of a decompressor; ours need 1 MiB."""


class _Pair(msgspec.Struct):
    name: str
    value: str


class _Resource(msgspec.Struct):
    name: str
    allocatable: str | int
    available: str | int


class _Zone(msgspec.Struct):
    name: str
    type: str
    parent: str = ""
    resources: list[_Resource] | None = None
    attributes: list[_Pair] | None = None


class _NRTObject(msgspec.Struct):
    zones: Annotated[list[_Zone], Meta(max_length=4096)]
    attributes: list[_Pair] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The parts of one object that are kept.

    `owner_uid`: the UID of the Node that owns it; `carried`: the compressed report; each is empty if there is none.
    `confirmed_at` is the writer's time, for comparing only; the next confirmation is due within `refresh_seconds`.
    `zones` and `attributes` are the object's, if it carries no report. `pools`: of the NRI topology-aware policy, the
    root last; its plugin overwrites the zones of an object that carries a report.
    """

    node_name: str
    publisher: str
    owner_uid: str
    carried: str
    confirmed_at: str
    refresh_seconds: float
    zones: tuple[ZoneCounts, ...]
    allocatable_cpus: int
    attributes: tuple[tuple[str, str], ...]
    pools: tuple[PoolCounts, ...] = ()


def published_from_json(value: Mapping[str, object]) -> Published:
    """Read an object. Raises WireError."""
    metadata = mapping(value.get("metadata"))
    texts = {k: v for k, v in mapping(metadata.get("annotations")).items() if isinstance(v, str)}
    parsed = converted(value, _NRTObject, "")
    carried = texts.get(REPORT, "")
    zones = () if carried else tuple(sorted(_zones(parsed.zones), key=lambda zone: zone.numa))
    attributes = tuple((each.name, each.value) for each in parsed.attributes or ())
    return Published(
        node_name=str(metadata.get("name") or ""),
        publisher=_publisher(metadata.get("managedFields")),
        owner_uid=_owner(metadata.get("ownerReferences")),
        carried=carried,
        confirmed_at=texts.get(CONFIRMED_AT, ""),
        refresh_seconds=_seconds(texts.get(REFRESH_SECONDS, "")),
        zones=zones,
        allocatable_cpus=0 if carried else _allocatable_cpus(parsed.zones),
        attributes=() if carried else attributes,
        pools=_tree(parsed.zones, is_extra=bool(carried)) if (POLICY_ATTRIBUTE, POLICY) in attributes else (),
    )


def unpack_report(published: Published, most: int) -> bytes:
    """The JSON of the carried report, at most *most* bytes. Raises WireError."""
    field = f"metadata.annotations[{REPORT}]"
    try:
        packed = base64.b64decode(published.carried, validate=True)
        is_xz = packed.startswith(_XZ_MAGIC)
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY) if is_xz else zlib.decompressobj(_GZIP)
        body = unpacker.decompress(packed, most + 1)
    except (binascii.Error, ValueError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise WireError(field, f"not gzip or xz in base64: {error}") from None
    if len(body) > most:
        raise WireError(field, f"unpacks to more than {most} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise WireError(field, "the compressed data is truncated, or has trailing bytes")
    return body


def counted(published: Published, version_of: Callable[[str], str]) -> Counted:
    """The counts in an object without a report. *version_of*: the kubelet version of a node, "" if unknown.

    Raises:
        WireError: no zone is a NUMA node or a pool, so that there are no counts.
    """
    if not published.pools and not any(len(zone.numa) == 1 for zone in published.zones):
        raise WireError("zones", "none is a NUMA node (type Node, called node-N)")
    attributes: dict[str, str] = {}
    for name, value in published.attributes:
        attributes.setdefault(name, value)
    cpu_policy = attributes.get("cpuManagerPolicy")
    version = version_of(published.node_name)
    counts = Counts(
        rules=_rules(version),
        policy=attributes.get("topologyManagerPolicy", ""),
        scope=attributes.get("topologyManagerScope", ""),
        cpu_static=published.allocatable_cpus > 0 if cpu_policy is None else cpu_policy == "static",
        devices_current=published.publisher == OURS,
        zones=published.zones,
        publisher=published.publisher,
        nri=NriCounts(published.pools) if published.pools else None,
    )
    return Counted(node_name=published.node_name, counts=counts, facts=_facts(published, attributes, version))


def _facts(published: Published, attributes: Mapping[str, str], version: str) -> dict[str, object]:
    """The facts, in the form of a report's."""
    zones = [
        {
            "name": "node-" + "-".join(map(str, zone.numa)),
            "numa": list(zone.numa),
            "available": ({} if zone.cpus is None else {"cpu": zone.cpus}) | dict(zone.devices),
        }
        for zone in published.zones
    ]
    zones += [
        {
            "name": pool.name,
            "parent": pool.parent,
            "numa": list(iter_bits(pool.memory_nodes)),
            "available": {"cpu": pool.available_millicpu / 1000, "memory": pool.available_memory_bytes},
        }
        for pool in published.pools
    ]
    what = "pool of the NRI topology-aware policy" if published.pools else "NUMA node"
    reason = f"only counts per {what} are known, published by {published.publisher or 'an unnamed program'}"
    problem = {"source": "extender", "path": "NodeResourceTopology", "reason": reason, "severity": "warning"}
    return {
        "kubelet_version": version or None,
        "pods": None,
        "zones": [],
        "counts": zones,
        "attributes": dict(attributes),
        "problems": [problem],
    }


def _rules(version: str) -> Rules:
    try:
        return Rules.of(version, {}, {})
    except UnknownVersionError:
        return Rules.of(f"v1.{NEWEST_MINOR}.0", {}, {})


def _publisher(managed: object) -> str:
    """The last field manager that applied or updated the object's content. Empty if none is named."""
    names = [
        str(each.get("manager") or "")
        for each in objects(managed)
        if not isinstance(fields := each.get("fieldsV1"), dict) or "f:zones" in fields
    ]
    return names[-1] if names else ""


def _owner(references: object) -> str:
    return next((str(each.get("uid") or "") for each in objects(references) if each.get("kind") == "Node"), "")


def _zones(zones: list[_Zone]) -> Iterator[ZoneCounts]:
    seen: set[tuple[int, ...]] = set()
    for i, zone in enumerate(zones):
        numa = _numa(zone)
        if numa is None:
            continue
        if numa in seen or max(numa) > MAX_NUMA_ID:
            raise WireError(f"zones[{i}].name", f"{shown(zone.name)} is a duplicate, or above {MAX_NUMA_ID}")
        seen.add(numa)
        amounts = {
            resource.name: parse_whole(resource.available, f"zones[{i}].resources.{resource.name}.available")
            for resource in zone.resources or ()
        }
        yield ZoneCounts(
            numa=numa,
            cpus=amounts.get("cpu"),
            devices=tuple(sorted((name, amount) for name, amount in amounts.items() if "/" in name)),
        )


def _tree(zones: list[_Zone], *, is_extra: bool) -> tuple[PoolCounts, ...]:
    """The pools. *is_extra*: the object carries a report, which counts whatever the zones are."""
    try:
        return _tree_of(_pool(zone, f"zones[{i}]") for i, zone in enumerate(zones))
    except WireError:
        if is_extra:
            return ()
        raise


def _numa(zone: _Zone) -> tuple[int, ...] | None:
    """The NUMA nodes of a zone. None for a zone of another model."""
    pattern = {"Node": _ZONE, "NodeGroup": _GROUP}.get(zone.type)
    if pattern is None or not pattern.match(zone.name):
        return None
    return tuple(int(text) for text in zone.name.split("-")[1:])


def _allocatable_cpus(zones: list[_Zone]) -> int:
    return sum(
        parse_whole(resource.allocatable, f"zones[{i}].resources.cpu.allocatable")
        for i, zone in enumerate(zones)
        if _numa(zone) is not None
        for resource in zone.resources or ()
        if resource.name == "cpu"
    )


def _seconds(text: str) -> float:
    """Seconds until the next confirmation. The default if the text is not valid."""
    whole = float(text) if text.isascii() and text.isdecimal() and len(text) < 9 else DEFAULT_REFRESH_SECONDS
    return min(whole, MAX_REFRESH_SECONDS)
