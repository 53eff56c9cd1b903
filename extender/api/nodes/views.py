"""Converts records of nodes to replies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import convert
from msgspec.structs import asdict

from extender.api.nodes.models import (
    DeviceCount,
    DeviceView,
    HolderView,
    MemoryView,
    NodeDetail,
    NodeSummary,
    NUMANodeView,
    NUMASummary,
    ProblemView,
    SocketView,
)
from extender.cluster.node import NodeRecord
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import shown_numa_id
from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.state import CPUState, DeviceState, ManagerState, MemoryState
from extender.kubelet.verdict import Provider
from extender.questions.free_room import free_cpus, free_devices, numa_room
from extender.questions.nri_pools import numa_room_of, policy_free_cpus, pools_of
from extender.replay.creation import grant_count
from extender.scheduling.records.kubelet_rules import Behaviour
from extender.scheduling.records.unjudged import Note
from extender.wire.verdicts import memory_blocks

MAX_UID, MAX_UIDS = 64, 10
"""Limits on the characters of a UID in a text, and on the number of UIDs."""
SMALL_NODE: Final = 2000
"""CPUs, devices, pods, zones and problems together. Today's largest servers have 1,024 CPUs and 250 pods."""
_NO_POD: Final[tuple[None, None]] = (None, None)


def resource_policy_of(record: NodeRecord) -> str | None:
    """The name of the NRI policy that runs on the node; None if none is known to run."""
    if not record.node_class.has_nri:
        return None
    return str(record.observation.facts.get("resource_policy") or "topology-aware")


def kubelet_version_of(record: NodeRecord) -> str | None:
    """As the node reports it; None if it is not known."""
    version = record.observation.facts.get("kubelet_version")
    return version if isinstance(version, str) else None


def shown_state(record: NodeRecord) -> ManagerState | None:
    """What people see of the state. Nothing is free at a manager whose state is unknown: it is not taken for empty."""
    state, hidden = record.state, record.observation.hidden
    if state is None or not hidden:
        return state
    return replace(
        state,
        cpu=CPUState(default=0) if Provider.CPU in hidden else state.cpu,
        memory=MemoryState() if Provider.MEMORY in hidden else state.memory,
        devices=DeviceState() if Provider.DEVICE in hidden else state.devices,
    )


def summarize(record: NodeRecord, now: float, note: Note | None = None) -> NodeSummary:
    """The record as one entry of a list. *note*: why its class could not be judged for some pod."""
    observation, kubelet, state = record.observation, record.kubelet, shown_state(record)
    summary = NodeSummary(
        name=record.name,
        certainty=record.certainty,
        hidden=sorted(observation.hidden),
        heard_seconds_ago=round(max(0.0, now - record.heard_at), 3),
        boot_id=observation.boot_id,
        sequence=observation.sequence,
        observed_at=observation.observed_at,
        kubelet_version=kubelet_version_of(record),
        pods=pods if isinstance(pods := observation.facts.get("pod_count"), int) else None,
        problems=problem_count(record, note),
        resource_policy=resource_policy_of(record),
        pools=pools_of(record),
    )
    if kubelet is None or state is None:
        return summary
    free = free_devices(state.devices)
    summary.topology_policy, summary.topology_scope = kubelet.policy.value, kubelet.scope.value
    summary.cpu_policy = kubelet.config.cpu_manager_policy
    summary.memory_policy = kubelet.config.memory_manager_policy
    summary.numa_nodes, summary.cpus = len(kubelet.machine.numa_ids), kubelet.machine.num_cpus
    summary.free_cpus = free_cpu_count(record)
    summary.numa = numa_summaries(kubelet, state)
    summary.devices = {
        resource: DeviceCount(total=sum(d.healthy for d in devices.values()), free=len(free[resource]))
        for resource, devices in sorted(state.devices.devices.items())
    }
    return summary


def problem_count(record: NodeRecord, note: Note | None) -> int:
    """Warnings and errors that the node reports, plus those that the extender itself has found."""
    problems = record.observation.facts.get("problems")
    reported = sum(p["severity"] != "info" for p in problems) if isinstance(problems, list) else 0
    return (
        reported
        + (note is not None)
        + bool(record.unread)
        + record.observation.has_other_pools
        + (record.silent_since is not None)
    )


def numa_summaries(kubelet: Kubelet, state: ManagerState) -> list[NUMASummary]:
    """The NUMA nodes of a node, ascending by id."""
    machine, sockets = kubelet.machine, numa_sockets(kubelet)
    counted = {node.id: dict(node.amounts).get("memory") for node in state.memory.nodes}
    summaries: list[NUMASummary] = []
    for node, (free, free_bytes) in zip(machine.numa_nodes, free_by_numa(kubelet, state), strict=True):
        cpus, memory = machine.numa_cpus.get(node.id, 0), counted.get(node.id)
        summaries.append(
            NUMASummary(
                id=shown_numa_id(node.id),
                socket=sockets.get(node.id),
                cpus=cpus.bit_count(),
                reserved_cpus=(cpus & kubelet.reserved_cpus).bit_count(),
                free_cpus=free,
                memory_bytes=node.memory_bytes if memory is None else memory.allocatable,
                free_memory_bytes=free_bytes,
            )
        )
    return summaries


def free_cpu_count(record: NodeRecord) -> int:
    """CPUs that a container can still get for itself, from the kubelet or from the NRI policy; 0 if it is not known."""
    kubelet, state = record.kubelet, shown_state(record)
    if kubelet is None or state is None:
        return 0
    free = free_cpus(kubelet, state).bit_count()
    if state.runtime is None:
        return free
    return min(free, policy_free_cpus(state)) if kubelet.cpu_static else policy_free_cpus(state)


def free_by_numa(kubelet: Kubelet, state: ManagerState) -> list[tuple[int, int | None]]:
    """For each NUMA node: the free CPUs, and the free memory in bytes; None if no manager counts memory."""
    free, machine, by_policy = free_cpus(kubelet, state), kubelet.machine, numa_room_of(state)
    counted = {node.id: dict(node.amounts).get("memory") for node in state.memory.nodes}
    rooms: list[tuple[int, int | None]] = []
    for node in machine.numa_nodes:
        cpus, memory = (machine.numa_cpus.get(node.id, 0) & free).bit_count(), counted.get(node.id)
        free_bytes = None if memory is None else memory.free
        room = by_policy.get(node.id)
        if room is not None:
            cpus = min(cpus, room[0]) if kubelet.cpu_static else room[0]
            free_bytes = room[1] if free_bytes is None else min(free_bytes, room[1])
        rooms.append((cpus, free_bytes))
    return rooms


def numa_sockets(kubelet: Kubelet) -> dict[int, int]:
    """The lowest socket of each NUMA node that has CPUs."""
    sockets: dict[int, int] = {}
    for cpu in kubelet.machine.cpus:
        sockets[cpu.numa] = min(cpu.socket, sockets.get(cpu.numa, cpu.socket))
    return sockets


def is_large(record: NodeRecord) -> bool:
    """Whether `describe` takes more than a few milliseconds."""
    facts, kubelet, state = record.observation.facts, record.kubelet, record.state
    lists = (facts.get("pods"), facts.get("problems"), facts.get("zones"))
    size = sum(len(each) for each in lists if isinstance(each, list))
    if kubelet is not None and state is not None:
        size += kubelet.machine.num_cpus + sum(map(len, state.devices.devices.values()))
        size += grant_count(state)
    return size > SMALL_NODE


def describe(
    record: NodeRecord, now: float, note: Note | None = None, behaviours: Sequence[Behaviour] = ()
) -> NodeDetail:
    """The record in full. *note* is what `summarize` takes. *behaviours* are what the audit found."""
    state, kubelet = shown_state(record), record.kubelet
    facts = record.observation.facts
    detail = NodeDetail(
        **asdict(summarize(record, now, note)),
        problem_list=[
            *convert(facts.get("problems", []), list[ProblemView]),
            *_own_problems(record, now, note, behaviours),
        ],
        behaves_as=[str(each.setting) for each in behaviours],
        pod_list=convert(facts.get("pods"), list[dict[str, Any]] | None),
        zones=convert(facts.get("zones", []), list[dict[str, Any]]),
    )
    detail.pools = pools_of(record, grants=True)
    if state is not None and kubelet is not None:
        detail.sockets, detail.topology = _sockets(kubelet), _topology(kubelet, state)
        detail.shared_cpus, detail.reserved_cpus = format_list(state.cpu.default), format_list(kubelet.reserved_cpus)
        detail.cpu_options = dict(kubelet.config.cpu_manager_policy_options)
        detail.topology_options = dict(kubelet.config.topology_manager_policy_options)
        detail.device_list, detail.holders = _device_list(state), _holders(state, pod_names(facts))
    return detail


def _own_problems(
    record: NodeRecord, now: float, note: Note | None, behaviours: Sequence[Behaviour]
) -> Iterator[ProblemView]:
    """What the extender itself has found."""
    if note is not None:
        yield ProblemView(source="extender", path="replay", reason=note.reason, severity="error")
    if record.silent_since is not None:
        reason = (
            f"the kubelet has not answered for {now - record.silent_since:.0f} s: the node counts as stale, and gets "
            "no pod that needs alignment; its log says why. If it runs, restart the exporter: it may have an old socket"
        )
        yield ProblemView(source="extender", path="podresources", reason=reason, severity="error")
    if record.unread:
        shown = ", ".join(uid[:MAX_UID] for uid in record.unread[:MAX_UIDS])
        reason = (
            f"what {len(record.unread)} pods on the node request cannot be read, and no report shows them: the node "
            f"counts as stale. UIDs: {shown}"
        )
        yield ProblemView(source="extender", path="pods", reason=reason, severity="warning")
    if record.observation.has_other_pools:
        reason = (
            "the plugin publishes other pools than the replayed policy would have: what it has granted does not count"
        )
        yield ProblemView(source="extender", path="nri", reason=reason, severity="warning")
    for behaviour in behaviours:
        yield ProblemView(source="audit", path="kubelet", reason=behaviour.sentence, severity="warning")


def pod_names(facts: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """Namespace and name of the pods that the node lists, by UID."""
    pods = facts.get("pods")
    if not isinstance(pods, list):
        return {}
    return {pod["uid"]: (pod["namespace"], pod["name"]) for pod in pods if pod.get("uid")}


def _sockets(kubelet: Kubelet) -> list[SocketView]:
    by_socket: dict[int, set[int]] = {}
    for cpu in kubelet.machine.cpus:
        by_socket.setdefault(cpu.socket, set()).add(shown_numa_id(cpu.numa))
    return [SocketView(id=socket, numa=sorted(numa)) for socket, numa in sorted(by_socket.items())]


def _topology(kubelet: Kubelet, state: ManagerState) -> list[NUMANodeView]:
    machine, free, rooms = kubelet.machine, free_cpus(kubelet, state), numa_room(kubelet, state)
    counted = {node.id: node for node in state.memory.nodes}
    sockets = numa_sockets(kubelet)
    numa_of = {cpu.cpu: cpu.numa for cpu in machine.cpus}
    cores: dict[int, list[int]] = {}
    for first_cpu, core in machine.core_cpus.items():  # a core is on one NUMA node
        cores.setdefault(numa_of[first_cpu], []).append(core)
    caches = _l3_caches(kubelet)
    views: list[NUMANodeView] = []
    for node in machine.numa_nodes:
        cpus, memory, room = machine.numa_cpus.get(node.id, 0), counted.get(node.id), rooms[node.id]
        views.append(
            NUMANodeView(
                id=shown_numa_id(node.id),
                socket=sockets.get(node.id),
                cpus=format_list(cpus),
                cores=[list(iter_bits(core)) for core in cores.get(node.id, ())],
                reserved_cpus=format_list(cpus & kubelet.reserved_cpus),
                free_cpus=format_list(cpus & free),
                memory={name: MemoryView.filled(a) for name, a in (memory.amounts if memory is not None else ())},
                memory_bytes=node.memory_bytes,
                memory_group=list(iter_bits(memory.cells)) if memory is not None else [shown_numa_id(node.id)],
                distances=list(node.distances),
                l3_caches=[format_list(cache) for cache in caches.get(node.id, {}).values()],
                free_room=room,
            )
        )
    return views


def _l3_caches(kubelet: Kubelet) -> dict[int, dict[int, int]]:
    """CPUs, as raw bits, by NUMA node and L3 cache. CPUs with an unknown cache are left out."""
    caches: dict[int, dict[int, int]] = {}
    for cpu in kubelet.machine.cpus:
        if cpu.uncore_cache is not None:
            of_node = caches.setdefault(cpu.numa, {})
            of_node[cpu.uncore_cache] = of_node.get(cpu.uncore_cache, 0) | 1 << cpu.cpu
    return caches


def _device_list(state: ManagerState) -> dict[str, list[DeviceView]]:
    holder = {
        (resource, device_id): uid
        for uid, containers in state.devices.entries.items()
        for resources in containers.values()
        for resource, ids in resources.items()
        for device_id in ids
    }
    return {
        resource: [
            DeviceView(
                id=device_id,
                numa=None if device.numa is None else list(iter_bits(device.numa)),
                healthy=device.healthy,
                held_by=holder.get((resource, device_id)),
            )
            for device_id, device in sorted(devices.items())
        ]
        for resource, devices in sorted(state.devices.devices.items())
    }


def _holders(state: ManagerState, names: Mapping[str, tuple[str, str]]) -> list[HolderView]:
    """Every container with exclusive resources. Those of a pod as a whole (pod-level resources) have no container."""
    holders = []
    for uid in sorted(state.pod_uids | state.cpu.pod_entries.keys() | state.memory.pod_entries.keys()):
        cpus, memory = state.cpu.entries.get(uid, {}), state.memory.entries.get(uid, {})
        devices = state.devices.entries.get(uid, {})
        held = {name: (cpus.get(name, 0), memory.get(name, ())) for name in sorted({*cpus, *memory, *devices})}
        if uid in state.cpu.pod_entries or uid in state.memory.pod_entries:
            held = {"": (state.cpu.pod_entries.get(uid, 0), state.memory.pod_entries.get(uid, ())), **held}
        namespace, pod = names.get(uid, _NO_POD)
        holders += [
            HolderView(
                pod_uid=uid,
                namespace=namespace,
                pod=pod,
                container=name,
                cpus=format_list(own_cpus),
                memory=memory_blocks(blocks),
                devices={resource: sorted(ids) for resource, ids in sorted(devices.get(name, {}).items())},
            )
            for name, (own_cpus, blocks) in held.items()
        ]
    return holders
