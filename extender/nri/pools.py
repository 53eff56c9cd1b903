"""The tree of pools that the policy builds from a machine.

Mirrors: `policy/pools.go` (buildRootPool, buildSocketPool, buildDiePool, buildNumaNodePool, buildL3CachePool,
enumeratePools, getCpuSupply, getMemSupply). Why the policy prefers one pool to another is in the order in which it
compares.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from extender.kubelet.sets import iter_bits
from extender.nri.config import LEVELS, CPUShare
from extender.nri.machine import DRAM, HBM, PMEM, NriMachine, Package


class PoolKind(Enum):
    """Kinds of pools. The values are those of NodeResourceTopology zones."""

    VIRTUAL = "virtual node"
    SOCKET = "socket"
    DIE = "die"
    NUMA = "numa node"
    L3 = "L3 cache"

    @property
    def level(self) -> int:
        """The topology level of the kind (`policy/node.go` TopologyLevel)."""
        return _LEVEL_OF[self]


_LEVEL_OF = dict(zip(PoolKind, LEVELS.values(), strict=False))


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool. `id`: its position in `PoolTree.pools`; `parent`: -1 for the root.

    `isolated`, `reserved`, `sharable`: its CPUs without any grant. `dram`, `pmem`, `hbm`: its memory nodes.
    `sysfs_id`: id of the package, die, NUMA node or cache. `hint_cpus`: compared with the CPUs in hints.
    `ancestors`: nearest first; `subtree`: the pool's own id last, children before parents.
    """

    id: int
    name: str
    kind: PoolKind
    parent: int
    depth: int
    sysfs_id: int
    package: int
    hint_cpus: int
    isolated: int
    reserved: int
    sharable: int
    dram: int
    pmem: int
    hbm: int
    ancestors: tuple[int, ...]
    subtree: tuple[int, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether the pool has no children."""
        return len(self.subtree) == 1

    @property
    def memory_types(self) -> int:
        """The types of memory that the pool has."""
        return (DRAM if self.dram else 0) | (PMEM if self.pmem else 0) | (HBM if self.hbm else 0)

    def memory_nodes(self, types: int) -> int:
        """The pool's memory nodes of *types* (`policy/node.go` GetMemset)."""
        return (
            (self.dram if types & DRAM else 0) | (self.pmem if types & PMEM else 0) | (self.hbm if types & HBM else 0)
        )


@dataclass(frozen=True, slots=True)
class PoolTree:
    """All pools, children before parents; the last one is the root."""

    pools: tuple[Pool, ...]

    @property
    def root(self) -> Pool:
        """The root pool."""
        return self.pools[-1]

    def by_name(self, name: str) -> Pool | None:
        """The pool *name*; the plugin keeps the last one built under a name."""
        return next((pool for pool in reversed(self.pools) if pool.name == name), None)

    def existing_level(self, wanted: int) -> int:
        """The level used for *wanted* on this machine (`topology-aware-policy.go` findExistingTopologyLevel)."""
        return next((p.kind.level for p in self.pools if p.kind.level <= wanted), PoolKind.SOCKET.level)


@dataclass(slots=True)
class _Draft:
    name: str
    kind: PoolKind
    parent: "_Draft | None"
    sysfs_id: int
    package: int
    cpus: int
    hint_cpus: int
    children: "list[_Draft]" = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.parent.children.append(self)


def build_pools(machine: NriMachine, share: CPUShare) -> PoolTree:
    """The pools of *machine*, with its CPUs divided by *share*."""
    root = None
    if len(machine.packages) > 1:
        cpus = machine.present
        root = _Draft("root", PoolKind.VIRTUAL, None, -1, -1, cpus, cpus)
    sockets = [_draft_socket(machine, package, root) for package in machine.packages.values()]
    return _enumerate(machine, share, root or sockets[0])


def _draft_socket(machine: NriMachine, package: Package, root: _Draft | None) -> _Draft:
    cpus = package.cpus
    socket = _Draft(f"socket #{package.id}", PoolKind.SOCKET, root, package.id, package.id, cpus, cpus)
    if len(package.die_cpus) > 1 and any(len(clusters) > 1 for clusters in package.die_clusters.values()):
        for die, die_cpus in package.die_cpus.items():
            name = f"die #{package.id}/{die}"
            draft = _Draft(name, PoolKind.DIE, socket, die, package.id, die_cpus, cpus)
            _draft_below(machine, package, draft, package.die_nodes[die])
    else:
        _draft_below(machine, package, socket, package.node_ids)
    return socket


def _draft_below(machine: NriMachine, package: Package, parent: _Draft, node_ids: tuple[int, ...]) -> None:
    if len(node_ids) <= 1:
        _draft_l3(package, parent)
        return
    for id_ in node_ids:
        node = machine.nodes[id_]
        if node.memory_bytes:
            draft = _Draft(f"NUMA node #{id_}", PoolKind.NUMA, parent, id_, package.id, node.cpus, node.cpus)
            _draft_l3(package, draft)


def _draft_l3(package: Package, parent: _Draft) -> None:
    inside = {id_: cpus for id_, cpus in package.l3_cpus.items() if not cpus & ~parent.cpus}
    if len(inside) > 1:
        for id_, cpus in inside.items():
            _Draft(f"{parent.name}/L3 cache #{id_}", PoolKind.L3, parent, id_, package.id, cpus, cpus)


def _enumerate(machine: NriMachine, share: CPUShare, root: _Draft) -> PoolTree:
    """Number the drafts, children before parents. The tree is at most five levels deep."""
    order: list[_Draft] = []
    stack = [root]
    while stack:
        draft = stack.pop()
        order.append(draft)
        stack += draft.children
    order.reverse()
    id_of = {id(draft): number for number, draft in enumerate(order)}
    ancestors: dict[int, tuple[int, ...]] = {}
    for draft in reversed(order):
        parent = draft.parent
        ancestors[id(draft)] = () if parent is None else (id_of[id(parent)], *ancestors[id(parent)])
    subtrees: dict[int, tuple[int, ...]] = {}
    pools = []
    for number, draft in enumerate(order):
        below = [i for child in draft.children for i in subtrees[id(child)]]
        subtrees[id(draft)] = (*below, number)
        pools.append(_pool(machine, share, draft, number, ancestors[id(draft)], subtrees[id(draft)]))
    return PoolTree(tuple(pools))


def _pool(
    machine: NriMachine,
    share: CPUShare,
    draft: _Draft,
    number: int,
    ancestors: tuple[int, ...],
    subtree: tuple[int, ...],
) -> Pool:
    allowed = draft.cpus & share.allowed
    nodes = machine.memory_nodes if not ancestors else _memory_of(machine, draft.cpus)
    of_type = {t: sum(1 << i for i in iter_bits(nodes) if machine.nodes[i].type == t) for t in (DRAM, PMEM, HBM)}
    return Pool(
        id=number,
        name=draft.name,
        kind=draft.kind,
        parent=ancestors[0] if ancestors else -1,
        depth=len(ancestors),
        sysfs_id=draft.sysfs_id,
        package=draft.package,
        hint_cpus=draft.hint_cpus,
        isolated=allowed & share.isolated,
        reserved=allowed & share.reserved,
        sharable=allowed & ~share.isolated & ~share.reserved,
        dram=of_type[DRAM],
        pmem=of_type[PMEM],
        hbm=of_type[HBM],
        ancestors=ancestors,
        subtree=subtree,
    )


def _memory_of(machine: NriMachine, cpus: int) -> int:
    """The nodes of *cpus* and the memory-only nodes closest to one of them (`pools.go` getClosestSpecialMem)."""
    nodes = sum(1 << node.id for node in machine.nodes if node.cpus & cpus)
    with_cpus = sum(1 << node.id for node in machine.nodes if node.type == DRAM and node.cpus)
    for special in machine.nodes:
        if special.type == DRAM or special.cpus or not special.memory_bytes:
            continue
        nearest: dict[int, int] = {}
        for id_, distance in enumerate(special.distances):
            if id_ != special.id and with_cpus >> id_ & 1:
                nearest[distance] = nearest.get(distance, 0) | 1 << id_
        if nearest and nearest[min(nearest)] & nodes:
            nodes |= 1 << special.id
    return nodes


class PoolRule(Enum):
    """Why a pool comes after the one that is used, in the order of comparison. `sentence`: what people read."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Self:  # noqa: D102 - of every Enum with attributes
        rule = object.__new__(cls)
        rule._value_ = value
        rule.sentence = sentence
        return rule

    USED = "", ""
    CPU = "too-little-cpu", "not enough CPU"
    ISOLATED = "too-few-isolated-cpus", "not enough isolated CPUs"
    AFFINITY = "affinity", "less affinity to other containers"
    HINTS = "hints", "farther from the devices"
    NO_MEMORY = "no-memory", "no memory for it"
    MEMORY_TYPES = "memory-types", "memory of other types"
    MEMORY_SIZE = "memory-size", "less memory in all"
    CPU_LIMIT = "cpu-limit", "less CPU left than its limit"
    BURST_LEVEL = "burst-level", "not the level of unlimitedBurstable"
    MEMORY_NODES = "memory-nodes", "memory of more NUMA nodes"
    CPU_PRIORITY = "cpu-priority", "too few CPUs of its priority"
    DEPTH = "depth", "a wider pool"
    ISOLATED_LEFT = "isolated-left", "fewer isolated CPUs left"
    CPU_LEFT = "cpu-left", "less CPU left"
    CONTAINERS = "containers", "more containers there"
    ID = "id", "equal, and later in the order"
