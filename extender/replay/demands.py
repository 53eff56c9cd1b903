"""Whether a placement meets the alignment that its pod demands.

The definition:
- A demand is met by what the kubelet's managers give to the pod: exclusive CPUs, pinned memory, and devices whose
  plugin reported NUMA nodes. It means the same on every node, whatever its policy and scope.
- A container that could have exclusive CPUs (Guaranteed, whole CPUs) must get them. At least one container must get
  something on NUMA nodes. Containers that run in the shared pool by their own request are not looked at.
- `single-numa-node`: one NUMA node has everything that the container gets. `same-socket`: one socket has it. With scope
  `pod` it is the same NUMA node, or socket, for all containers. A device that belongs to several NUMA nodes is local to
  each. A NUMA node without CPUs is on no socket.
- The exclusive CPUs that the NRI topology-aware policy grants count as well, and the memory that it pins with them. It
  and the kubelet both set the container's CPUs, so both placements together have to meet the demand.
- Named resources: only these of a container have to be together. Named memory has to be pinned.
- A container with keys of its own is checked alone, by these keys.
- `no-remote-memory`: the memory of each container with exclusive CPUs is pinned, to all NUMA nodes of these CPUs and to
  no others. Where no container has exclusive CPUs, some memory is pinned.
- Devices that DRA drivers have allocated count like those of plugins, and CPUs that the driver for CPUs has allocated
  like exclusive CPUs.
- On a machine with only one NUMA node, or socket, every placement meets the demand for one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from extender.kubelet.admission import Outcome
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.pod import PodRequest
from extender.kubelet.sets import iter_bits
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.replay.alignment_demand import (
    CPU,
    DEVICES,
    MEMORY,
    AlignmentDemand,
    ContainerDemand,
    Demand,
    DemandScope,
    MemoryDemand,
)
from extender.replay.creation import grants_of
from extender.replay.pod import ClaimedDevice, claimed_of


class Breach(Enum):
    """How a placement breaks a demand."""

    NUMA_NODES = "numa-nodes"
    """The container is on several NUMA nodes."""
    SOCKETS = "sockets"
    """The container is on several sockets."""
    REMOTE_MEMORY = "remote-memory"
    """Memory and CPUs of the container are on different NUMA nodes, or the memory is not pinned."""
    NOT_PLACED = "not-placed"
    """The kubelet does not place the container on particular NUMA nodes."""


class BrokenDemand(NamedTuple):
    """`container` None: the pod as a whole. `numa`: raw bits of the NUMA nodes that it is on, 0 if it is not placed."""

    breach: Breach
    container: str | None
    numa: int


class Held(NamedTuple):
    """What one container gets, as raw bits of NUMA nodes; `sockets` are those of the CPUs.

    `memory`: each block. `devices`: the resource of each device, "" for those of claims, and the NUMA nodes that it is
    local to; devices without any are left out.
    """

    cpus: int
    sockets: int
    memory: tuple[int, ...] = ()
    devices: tuple[tuple[str, int], ...] = ()

    @property
    def numa(self) -> int:
        """All NUMA nodes of it."""
        return reduce(or_, (*self.memory, *(local for _, local in self.devices)), self.cpus)

    def of(self, resources: tuple[str, ...] | None) -> "Held":
        """What the container has of these resources; None: everything that it has."""
        if resources is None:
            return self
        return Held(
            self.cpus if CPU in resources else 0,
            self.sockets if CPU in resources else 0,
            self.memory if MEMORY in resources else (),
            self.devices if DEVICES in resources else tuple(each for each in self.devices if each[0] in resources),
        )


NOTHING_HELD = Held(0, 0)


def broken_by_outcome(demand: Demand, kubelet: Kubelet, request: PodRequest, outcome: Outcome) -> BrokenDemand | None:
    """How the outcome breaks the pod's demand. None: it meets the demand, or the pod is not admitted."""
    verdict = outcome.verdict
    if not isinstance(verdict, Admitted):
        return None
    return broken_in_state(demand, kubelet.machine, request, outcome.state)


def broken_in_state(demand: Demand, machine: Machine, request: PodRequest, state: ManagerState) -> BrokenDemand | None:
    """How the resources of the pod in *state* break its demand; None: they meet it. The pod is on the node."""
    uid = request.uid
    cpus, memory = state.cpu.entries.get(uid, {}), state.memory.entries.get(uid, {})
    devices = state.devices.entries.get(uid, {})
    granted = grants_of(state)
    pinned = {} if granted is None else granted.pinned(uid)
    held, claimed = {}, claimed_of(request)
    for container in request.containers:
        name = container.name
        exclusive, nodes = pinned.get(name, (0, 0))
        blocks = [block.mask for block in memory.get(name, ())]
        placed = Held(
            *_of_cpus(machine, cpus.get(name, 0) | exclusive),
            tuple([*blocks, nodes] if nodes else blocks),
            tuple(_local_nodes(devices.get(name, {}), state)),
        )
        held[name] = with_claimed(machine, placed, claimed.get(name, ()))
    of_pod = tuple([block.mask for block in state.memory.pod_entries.get(uid, ())])
    shared = Held(*_of_cpus(machine, state.cpu.pod_entries.get(uid, 0)), of_pod)
    return broken_by(demand, machine, request, held, shared)


def broken_by(
    demand: Demand, machine: Machine, request: PodRequest, held: Mapping[str, Held], shared: Held = NOTHING_HELD
) -> BrokenDemand | None:
    """How *held*, by container, breaks the demand. *shared*: CPUs that the pod has for several containers."""
    of_pod = [(None, shared)] if shared.numa or request.pod_level is not None else []
    parts = [
        _CheckedPart(name, want, needs, each.of(want.resources), each, together=not demand.is_own(name or ""))
        for name, each in [*held.items(), *of_pod]
        if any(needs := _needs(want := demand.of(name or ""), machine))
    ]
    if not parts:
        return None
    together = demand.scope is DemandScope.POD
    return (
        _unplaced(request, parts)
        or _unpinned(parts, shared)
        or _split(_numa_parts, Breach.NUMA_NODES, machine, [p for p in parts if p.needs.node], together=together)
        or _split(_socket_parts, Breach.SOCKETS, machine, [p for p in parts if p.needs.socket], together=together)
        or _remote([p for p in parts if p.needs.local_memory], shared)
    )


def broken_by_claims(demand: Demand, machine: Machine, request: PodRequest) -> BrokenDemand | None:
    """How a pod that gets only devices of DRA drivers breaks *demand*; None if it does not."""
    claimed = claimed_of(request)
    held = {c.name: with_claimed(machine, NOTHING_HELD, claimed.get(c.name, ())) for c in request.containers}
    return broken_by(demand, machine, request, held)


def with_claimed(machine: Machine, held: Held, claimed: Iterable[ClaimedDevice]) -> Held:
    """What a container holds, with the devices of its claims."""
    for each in claimed:
        if each.is_cpus:
            sockets = held.sockets | machine.socket_bits_in_numa(each.numa)
            held = held._replace(cpus=held.cpus | each.numa, sockets=sockets)
        else:
            held = held._replace(devices=(*held.devices, ("", each.numa)))
    return held


def is_always_met(demand: Demand, machine: Machine) -> bool:
    """Whether every placement on the machine meets the demand."""
    return not demand.fault and not any(any(_needs(each, machine)) for each in demand.parts)


class _Needs(NamedTuple):
    """What to check."""

    node: bool
    socket: bool
    local_memory: bool


class _CheckedPart(NamedTuple):
    """A container for which something is to be checked; `name` None: what the pod has for several containers.

    `held`: all that it holds; `covered`: its part that must be together. `together`: whether it is checked with the
    others in scope `pod`.
    """

    name: str | None
    want: ContainerDemand
    needs: _Needs
    covered: Held
    held: Held
    together: bool

    def wants(self, resource: str) -> bool:
        """Whether the container must get the resource on NUMA nodes, if it is eligible for it."""
        return self.needs.local_memory or self.want.resources is None or resource in self.want.resources


def _needs(want: ContainerDemand, machine: Machine) -> _Needs:
    has_nodes = len(machine.numa_ids) > 1
    return _Needs(
        has_nodes and want.alignment is AlignmentDemand.SINGLE_NUMA_NODE,
        len(machine.socket_cpus) > 1 and want.alignment is AlignmentDemand.SAME_SOCKET,
        has_nodes and want.memory is MemoryDemand.NO_REMOTE_MEMORY,
    )


def _of_cpus(machine: Machine, cpus: int) -> tuple[int, int]:
    """The NUMA nodes and the sockets of *cpus*; sockets by position, as in `Machine.numa_sockets`."""
    sockets = sum(1 << i for i, of_socket in enumerate(machine.socket_cpus.values()) if of_socket & cpus)
    return machine.numa_bits_of_cpus(cpus), sockets


def _local_nodes(taken: Mapping[str, frozenset[str]], state: ManagerState) -> Iterator[tuple[str, int]]:
    for resource, ids in taken.items():
        known = state.devices.devices.get(resource, {})
        yield from ((resource, numa) for each in ids if each in known and (numa := known[each].numa))


def _unplaced(request: PodRequest, parts: Sequence[_CheckedPart]) -> BrokenDemand | None:
    looked_at = {part.name: part for part in parts}
    for container in request.containers:
        part = looked_at.get(container.name)
        if part is not None and container.cpus and part.wants(CPU) and not part.held.cpus:
            return BrokenDemand(Breach.NOT_PLACED, container.name, 0)
    of_pod = looked_at.get(None)
    lacks_shared = of_pod is not None and request.pod_level is not None and request.pod_level.cpus
    if lacks_shared and of_pod is not None and of_pod.wants(CPU) and not of_pod.held.cpus:
        return BrokenDemand(Breach.NOT_PLACED, None, 0)
    if any(part.covered.numa or (part.needs.local_memory and part.held.numa) for part in parts):
        return None
    return BrokenDemand(Breach.NOT_PLACED, None, 0)


def _unpinned(parts: Sequence[_CheckedPart], shared: Held) -> BrokenDemand | None:
    """The first container whose demand names memory, and whose memory is not pinned."""
    for part in parts:
        is_named = part.want.resources is not None and MEMORY in part.want.resources
        memory = part.held.memory or shared.memory
        if is_named and (part.covered.cpus or part.covered.devices) and not memory:
            return BrokenDemand(Breach.REMOTE_MEMORY, part.name, part.covered.numa)
    return None


def _split(
    whole_on: Callable[[Machine, Held], Iterator[int]],
    breach: Breach,
    machine: Machine,
    parts: Sequence[_CheckedPart],
    *,
    together: bool,
) -> BrokenDemand | None:
    """The first container for which no place has all parts. *whole_on*: the places that have all of each part."""
    common_to_all, numa = -1, 0
    for part in parts:
        common = reduce(and_, whole_on(machine, part.covered), -1)
        if not common:
            return BrokenDemand(breach, part.name, part.covered.numa)
        if part.together:
            common_to_all &= common
            numa |= part.covered.numa
    return BrokenDemand(breach, None, numa) if together and not common_to_all else None


def _numa_parts(_machine: Machine, held: Held) -> Iterator[int]:
    """The NUMA nodes that have all of each part: none if CPUs or a block of memory are on several."""
    for mask in (held.cpus, *held.memory):
        if mask:
            yield mask if mask.bit_count() == 1 else 0
    yield from (local for _, local in held.devices)


def _socket_parts(machine: Machine, held: Held) -> Iterator[int]:
    """The sockets that have all of each part."""
    if held.sockets:
        yield held.sockets if held.sockets.bit_count() == 1 else 0
    for block in held.memory:
        yield reduce(and_, (machine.numa_sockets.get(numa, 0) for numa in iter_bits(block)), -1)
    yield from (machine.socket_bits_in_numa(local) for _, local in held.devices)


def _remote(parts: Sequence[_CheckedPart], shared: Held) -> BrokenDemand | None:
    """The first container with exclusive CPUs whose memory is not on all their NUMA nodes, and only there."""
    for name, held in ((part.name, part.held) for part in parts):
        memory = held.memory or shared.memory
        if held.cpus and reduce(or_, memory, 0) != held.cpus:
            return BrokenDemand(Breach.REMOTE_MEMORY, name, held.numa)
    if parts and not any(part.held.cpus or part.held.memory for part in parts):
        return BrokenDemand(Breach.NOT_PLACED, None, 0)
    return None
