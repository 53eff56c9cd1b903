"""The section `nri` of a report: a node that runs the NRI topology-aware policy, as the replay sees it.

Rules of this file
- A section of an unknown version is left out, and `problems` says so. The rest of the report counts.
- The rules that are replayed are those of plugin v0.14. An older plugin decides otherwise on some machines, so nothing
  is certain where the plugin is older, or where its release is not known. The same holds for a configuration with an
  option that is not known here, or that the plugin has not confirmed.
- A section that contradicts itself is refused with the report (`WireError`), as any other part.
- What the plugin concludes from sysfs is concluded here (`pkg/sysfs/system.go` discoverNodes, checkCoreKinds). Where it
  stops, the machine is None and the reason a problem: such a plugin manages no container.
- Verdicts need the machine, the configuration and the grants. Otherwise `UnknownPolicyError` says what is missing or
  impossible, and pods get no verdict of the policy on that node.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from extender.kubelet.budget import Shared
from extender.kubelet.errors import FieldError
from extender.kubelet.sets import format_list, parse_list
from extender.nri.affinity import KUBELET_LABELS
from extender.nri.books import Grant
from extender.nri.config import PolicyConfig, PolicyStartError
from extender.nri.cpu_allocator import discover
from extender.nri.events import set_up
from extender.nri.machine import CPU, DRAM, HBM, PMEM, Cache, MemoryNode, NriMachine
from extender.nri.objects import QoS
from extender.nri.observed import NO_POOL, ObservedGrant, ObservedGrantError, observe
from extender.nri.requests import CPUType
from extender.nri.state import NriPolicy, NriState
from extender.replay.creation import NriRuntime
from extender.wire.errors import CapError, WireError, problem, shown
from extender.wire.known_fields import NRI_OPTIONS, unknown_fields
from extender.wire.nri_scenarios import config_from_json
from extender.wire.parsing import ids_at
from node_exporter.report import (
    Problem,
    ReportedNriCache,
    ReportedNriCpu,
    ReportedNriGrant,
    ReportedNriMachine,
    ReportedNriPolicy,
)

MAX_SHOWN: Final = 5
POLICY: Final = "topology-aware"
NRI: Final = "nri"
KNOWN_RELEASE: Final = (0, 14)
"""The release of the plugin whose decisions were recorded. From it on a grant in the state file names a CPU class."""
_FIELD_OF_RELEASE: Final = "CPUClass"
_SHOWN_DOUBTS: Final = 8
MAX_CPUS: Final = 4096
MAX_CACHES: Final = 16_384
MAX_NODES: Final = 63
MAX_CACHES_A_CPU: Final = 32
MAX_CONFIG_BYTES: Final = 64 << 10
"""The largest configuration in JSON. A real one has a few hundred."""
MAX_GRANTS: Final = 2_000
"""Containers that the policy manages: 25 ms of the event loop for each new report. A node has 110 pods by default."""
cpu_bits: Final = partial(ids_at, most=MAX_CPUS - 1)
"""The CPUs of a list at a path; raises WireError."""


@dataclass(frozen=True, slots=True)
class NriFacts:
    """What a report says of the policy on its node.

    `machine` None: the plugin does not start there. `config` None: not known. `grants` None: not known; then only
    counts of a NodeResourceTopology object can say what is free. `faults`: (path, reason) for people. `policy`: the
    name of the NRI policy. `doubts`: why the plugin may decide otherwise than the replay, for people.
    """

    machine: NriMachine | None
    config: PolicyConfig | None
    grants: tuple[ReportedNriGrant, ...] | None
    faults: tuple[tuple[str, str], ...]
    policy: str = POLICY
    doubts: tuple[str, ...] = ()


class _DiscoveryError(Exception):
    """The plugin stops at these facts."""


def read_nri(policy: ReportedNriPolicy, known: NriPolicy | None = None) -> tuple[NriFacts | None, list[Problem]]:
    """The facts of the section *policy*, None if it is too large, and its problems. Raises WireError.

    *known*: the policy of an earlier report, if all but the grants is equal; saves most of the work.
    """
    try:
        facts = nri_facts(policy, known)
    except CapError as cap:
        reason = f"too large for a node: {cap.reason}: the NRI policy is not known"
        return None, [problem(cap.field, reason, "error")]
    return facts, [problem(path, reason) for path, reason in facts.faults]


def nri_facts(policy: ReportedNriPolicy, known: NriPolicy | None = None) -> NriFacts:
    """The facts of the section *policy*; raises WireError, and CapError for a part larger than any real node has."""
    faults: list[tuple[str, str]] = []
    machine = None if known is None else known.setup.topology.machine
    if machine is None and policy.machine is not None:
        try:
            machine = nri_machine(policy.machine)
        except _DiscoveryError as error:
            faults.append((f"{NRI}.machine", f"the plugin does not start here: {error}"))
    config = None if known is None else known.setup.config
    if config is None and policy.config is not None:
        if (size := len(msgspec.json.encode(policy.config))) > MAX_CONFIG_BYTES:
            raise CapError(f"{NRI}.config", f"{size} bytes, more than {MAX_CONFIG_BYTES}")
        try:
            config = config_from_json(policy.config, f"{NRI}.config")
        except WireError as error:
            faults.append((error.field, f"the configuration is not understood: {error.reason}"))
    if policy.config_status == "Failure":
        faults.append((f"{NRI}.config", "the plugin refused this configuration; what it runs with is not known"))
        config = None
    if policy.grants is not None and len(policy.grants) > MAX_GRANTS:
        raise CapError(f"{NRI}.grants", f"{len(policy.grants)} grants, more than {MAX_GRANTS}")
    for position, grant in enumerate(policy.grants or ()):
        cpu_bits(grant.exclusive, f"{NRI}.grants[{position}].exclusive")
        for name, value, end in (
            ("millicpu", grant.millicpu, 2**31),
            ("memory_nodes", grant.memory_nodes, 2**64),
            ("memory_types", grant.memory_types, 16),
            ("memory_bytes", grant.memory_bytes, 2**62),
        ):
            if not 0 <= value < end:
                raise WireError(f"{NRI}.grants[{position}].{name}", f"{value} is outside 0..{end - 1}")
    doubts = _doubts(policy)
    faults += [(NRI, f"{doubt}: no verdict of the NRI policy is certain") for doubt in doubts]
    return NriFacts(
        policy=policy.policy[:64],
        doubts=doubts,
        machine=machine,
        config=config,
        grants=None if policy.grants is None else tuple(policy.grants),
        faults=tuple(faults),
    )


def _doubts(policy: ReportedNriPolicy) -> tuple[str, ...]:
    """Why the plugin may decide otherwise than the replay; see the rules of this file."""
    if policy.policy != POLICY:
        return ()
    unknown = [each.path for each in islice(unknown_fields(policy.config, NRI_OPTIONS), MAX_SHOWN)]
    found = [_doubt_of_release(policy), *(shown(doubt) for doubt in policy.doubts[:_SHOWN_DOUBTS])]
    if unknown:
        found.append(f"its configuration has options that are not known: {', '.join(map(shown, unknown))}")
    return tuple(filter(None, found))


def _doubt_of_release(policy: ReportedNriPolicy) -> str:
    """The grants in the state file show what runs; the tag of an image only what was pulled last."""
    wanted = f"v{KNOWN_RELEASE[0]}.{KNOWN_RELEASE[1]}"
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})", policy.release)
    release = (int(match[1]), int(match[2])) if match else None
    if policy.grant_fields and _FIELD_OF_RELEASE not in policy.grant_fields:
        return f"the plugin is older than {wanted}, whose decisions are replayed"
    if release is None:
        return "" if policy.grant_fields else f"it is not known whether the plugin is {wanted}: it has no grant yet"
    if release > KNOWN_RELEASE or (release < KNOWN_RELEASE and not policy.grant_fields):
        return f"the plugin is {shown(policy.release)}, and the decisions of {wanted} are replayed"
    return ""


def nri_machine(reported: ReportedNriMachine) -> NriMachine:
    """The machine that the plugin makes of these facts.

    Raises: WireError: the facts contradict each other. CapError: there are more of them than any real node has.
    _DiscoveryError: the plugin does not start on such a machine.
    """
    where = f"{NRI}.machine"
    for name, found, most in (
        ("cpus", len(reported.cpus), MAX_CPUS),
        ("caches", len(reported.caches), MAX_CACHES),
        ("nodes", len(reported.nodes), MAX_NODES),
    ):
        if found > most:
            raise CapError(f"{where}.{name}", f"{found} of them, more than {most}")
    if reported.memory_total <= 0:
        raise WireError(f"{where}.memory_total", f"{reported.memory_total} bytes is not a size")
    nodes = _nodes(reported)
    cpus = cpus_of(reported.cpus, reported.caches, len(nodes), where)
    online = sum(1 << cpu.id for cpu in cpus)
    performance, efficient = _core_kinds(reported, cpus, online)
    if not reported.nodes:
        nodes = (replace(nodes[0], cpus=online),)
    return NriMachine(
        cpus=cpus,
        nodes=nodes,
        devices=(),
        present=cpu_bits(reported.present, f"{where}.present"),
        isolated=cpu_bits(reported.isolated, f"{where}.isolated"),
        performance=performance,
        efficient=efficient,
        memory_total_bytes=reported.memory_total,
    )


def cpus_of(
    rows: Sequence[ReportedNriCpu], caches: Sequence[ReportedNriCache], node_count: int, where: str
) -> tuple[CPU, ...]:
    """The online CPUs of a machine that is at *where*, by id; raises WireError."""
    shared = tuple(
        Cache(level, id_, cpu_bits(cpus, f"{where}.caches[{position}]"))
        for position, (level, id_, cpus) in enumerate(caches)
    )
    found: dict[int, CPU] = {}
    for position, row in enumerate(rows):
        id_, package, die, cluster, node, threads, base_khz, epp, indexes = row
        field = f"{where}.cpus[{position}]"
        if not 0 <= id_ < MAX_CPUS or id_ in found:
            raise WireError(field, f"CPU {id_} is listed twice, or is not an id below {MAX_CPUS}")
        if not 0 <= node < node_count or not all(0 <= i < len(shared) for i in indexes):
            raise WireError(field, "its NUMA node and its caches must be listed")
        if len(indexes) > MAX_CACHES_A_CPU or len(set(indexes)) != len(indexes):
            raise WireError(field, f"{len(indexes)} caches, more than {MAX_CACHES_A_CPU}, or the CPU names one twice")
        core = cpu_bits(threads, field)
        if not core >> id_ & 1:
            raise WireError(field, "the CPU is not among the threads of its core")
        found[id_] = CPU(id_, package, die, cluster, node, core, base_khz, epp, tuple(shared[i] for i in indexes))
    if not found:
        raise WireError(f"{where}.cpus", "at least one CPU must be online")
    online = sum(1 << id_ for id_ in found)
    # The kernel lists only online threads in core_cpus_list; anything else comes from a moment between two states.
    if any(cpu.threads & ~online for cpu in found.values()):
        raise WireError(f"{where}.cpus", "a CPU has a thread that is not online")
    return tuple(found[id_] for id_ in sorted(found))


def _nodes(reported: ReportedNriMachine) -> tuple[MemoryNode, ...]:
    """The nodes with their types of memory and symmetric distances (`system.go` discoverNodes)."""
    where = f"{NRI}.machine.nodes"
    nodes = reported.nodes
    if not nodes:
        return (MemoryNode(0, 0, reported.memory_total, DRAM, is_normal=True, distances=(10,)),)
    sets = [cpu_bits(node.cpus, f"{where}[{i}].cpus") for i, node in enumerate(nodes)]
    if any(node.id != i or len(node.distances) != len(nodes) for i, node in enumerate(nodes)):
        raise _DiscoveryError("the ids of the NUMA nodes have gaps, or a node has too few distances")
    if any(node.memory < 0 for node in nodes):
        raise WireError(where, "a size of memory is negative")
    with_cpus = [i for i, cpus in enumerate(sets) if cpus]
    special = [i for i, node in enumerate(nodes) if node.has_memory and not sets[i]]
    average = 0
    if special and with_cpus:
        count = len(with_cpus) - sum(node.is_online and not node.has_memory for node in nodes)
        average = sum(nodes[i].memory for i in with_cpus) // count if count > 0 else 0
        if not average:
            raise _DiscoveryError("there is no DRAM to tell other types of memory from")
    distances = [list(node.distances) for node in nodes]
    for i in range(len(nodes)):
        for j in range(i):
            if distances[i][j] != distances[j][i]:
                distances[i][j] = distances[j][i] = (distances[i][j] + distances[j][i]) // 2
    result = []
    for i, node in enumerate(nodes):
        if i not in special and not sets[i]:
            raise _DiscoveryError(f"NUMA node {i} has neither CPUs nor memory")
        if min(distances[i]) != distances[i][i] or distances[i].count(distances[i][i]) > 1:
            raise _DiscoveryError(f"NUMA node {i} has another node as close as itself")
        type_ = DRAM if i not in special else HBM if node.memory < average else PMEM
        result.append(MemoryNode(i, sets[i], node.memory, type_, node.has_normal_memory, tuple(distances[i])))
    return tuple(result)


def _core_kinds(reported: ReportedNriMachine, cpus: tuple[CPU, ...], online: int) -> tuple[int, int]:
    """(performance, efficient) CPUs (`system.go` discoverCPUs, checkCoreKinds)."""
    where = f"{NRI}.machine"
    performance = online if reported.performance is None else cpu_bits(reported.performance, f"{where}.performance")
    efficient = 0 if reported.efficient is None else cpu_bits(reported.efficient, f"{where}.efficient")
    if not performance and not efficient:
        return online, 0
    if not performance or not efficient:
        given = sum(1 << cpu.id for cpu in cpus if cpu.threads & (performance | efficient))
        performance, efficient = (given, online & ~given) if performance else (online & ~given, given)
    if performance & efficient:
        raise _DiscoveryError(f"CPUs {format_list(performance & efficient)} are of both core kinds")
    if online & ~(performance | efficient):
        raise _DiscoveryError("a CPU is of no core kind")
    if any(cpu.threads & ~kind for kind in (performance, efficient) for cpu in cpus if kind >> cpu.id & 1):
        raise _DiscoveryError("a core has threads of both core kinds")
    return performance, efficient


_POLICIES: Final = Shared[str, NriRuntime]()
"""Policies by the digest of machine and configuration, so that equal nodes share one."""
MAX_POOLS: Final = 512
"""Limit on pools, because each container is compared at every pool. The largest recorded machine has 41."""


class UnknownPolicyError(FieldError):
    """`field`: the part of the report; `reason`: what is missing there, or why it cannot be."""


def nri_policy(facts: NriFacts) -> NriRuntime:
    """The policy with the machine and the configuration of *facts*; raises UnknownPolicyError."""
    if facts.policy != POLICY:
        raise UnknownPolicyError(f"{NRI}.policy", f"the node runs {shown(facts.policy)}, which is not replayed")
    for name, part in (("machine", facts.machine), ("config", facts.config)):
        if part is None:
            raise UnknownPolicyError(f"{NRI}.{name}", "not known")
    assert facts.machine is not None
    assert facts.config is not None
    try:
        policy = _policy(facts.machine, facts.config, facts.doubts)
    except PolicyStartError as error:
        raise UnknownPolicyError(f"{NRI}.config", f"the plugin does not start with it: {error}") from None
    if (pools := len(policy.setup.tree.pools)) > MAX_POOLS:
        raise UnknownPolicyError(f"{NRI}.machine", f"{pools} pools, more than {MAX_POOLS}")
    return policy


def nri_state(policy: NriPolicy, grants: Sequence[ReportedNriGrant] | None) -> NriState:
    """What the policy has granted; raises UnknownPolicyError."""
    if grants is None:
        raise UnknownPolicyError(f"{NRI}.grants", "not known")
    try:
        return NriState(observe(policy.setup, map(_observed, grants)))
    except ObservedGrantError as error:
        raise UnknownPolicyError(f"{NRI}.grants", str(error)) from None


def _policy(machine: NriMachine, config: PolicyConfig, doubts: tuple[str, ...]) -> NriRuntime:
    digest = _digest_of(machine, config, doubts)
    return _POLICIES.of(digest, lambda: NriRuntime(set_up(discover(machine), config), digest, doubts))


def _digest_of(machine: NriMachine, config: PolicyConfig, doubts: tuple[str, ...]) -> str:
    """SHA-256, equal for equal parameters. A cache is hashed once, even if many CPUs share it."""
    numbers: dict[Cache, int] = {}
    caches = [[numbers.setdefault(cache, len(numbers)) for cache in cpu.caches] for cpu in machine.cpus]
    bare = replace(machine, cpus=tuple(replace(cpu, caches=()) for cpu in machine.cpus))
    return hashlib.sha256(repr((bare, caches, list(numbers), config, doubts)).encode()).hexdigest()


def _observed(grant: ReportedNriGrant) -> ObservedGrant:
    return ObservedGrant(
        grant=Grant(
            container=grant.container_id,
            pool=NO_POOL,
            cpu_type=CPUType(grant.cpu_type),
            exclusive=parse_list(grant.exclusive),
            portion=grant.millicpu,
            memory_nodes=grant.memory_nodes,
            memory_types=grant.memory_types,
            memory_bytes=grant.memory_bytes,
        ),
        pod_uid=grant.pod_uid,
        namespace=grant.namespace,
        pod_name=grant.pod,
        container=grant.container,
        qos=QoS(grant.qos),
        requests_cpu=grant.requests_cpu,
        pool=grant.pool,
        pod_labels=_labels(grant.pod_labels),
        labels=_labels(grant.labels),
    )


def _labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels without those that a kubelet sets. These contain ids, so that no two nodes would be equal."""
    return tuple(sorted((key, text) for key, text in labels.items() if not key.startswith(KUBELET_LABELS)))
