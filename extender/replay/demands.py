"""Whether a placement meets the alignment that its pod demands.

The definition:
- A demand is met by what the kubelet's managers give to the pod: exclusive CPUs, pinned memory, and devices whose
  plugin reported NUMA nodes. It means the same on every node, whatever its policy and scope.
- A container that could have exclusive CPUs (Guaranteed, whole CPUs) must get them. At least one container must get
  something on NUMA nodes. Containers that run in the shared pool by their own request are not looked at.
- `single-numa-node`: one NUMA node has everything that the container gets. `same-socket`: one socket has it. With scope
  `pod` it is the same NUMA node, or socket, for all containers. A device that belongs to several NUMA nodes is local to
  each. A NUMA node without CPUs is on no socket.
- Where the NRI topology-aware policy runs, the exclusive CPUs that it grants count as well, and the memory that it pins
  with them. It and the kubelet both set the container's CPUs, so both placements together have to meet the demand.
- `no-remote-memory`: the memory of each container with exclusive CPUs is pinned, to NUMA nodes of these CPUs.
- Where a machine has only one NUMA node, or one socket, every placement meets the demand for it.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import reduce
from operator import and_
from typing import NamedTuple

from extender.replay.admission import Outcome
from extender.replay.demand import AlignmentDemand, Demand, DemandScope, MemoryDemand
from extender.replay.kubelet import Kubelet
from extender.replay.machine import Machine
from extender.replay.pod import PodRequest
from extender.replay.sets import iter_bits
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted


class Breach(Enum):
    """How a placement breaks a demand."""

    NUMA_NODES = "numa-nodes"
    """It is on several NUMA nodes."""
    SOCKETS = "sockets"
    """It is on several sockets."""
    REMOTE_MEMORY = "remote-memory"
    """Memory is on a NUMA node without CPUs of the container, or is not pinned."""
    NOT_PLACED = "not-placed"
    """The kubelet does not place it on particular NUMA nodes."""


class BrokenDemand(NamedTuple):
    """`container` None: the pod as a whole. `numa`: raw bits of the NUMA nodes that it is on, 0 if it is not placed."""

    breach: Breach
    container: str | None
    numa: int


class Held(NamedTuple):
    """What one container gets, as raw bits of NUMA nodes; `sockets` are those of the CPUs.

    `memory`: each block. `devices`: the NUMA nodes that each device is local to; devices without any are left out.
    """

    cpus: int
    sockets: int
    memory: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()

    @property
    def numa(self) -> int:
        """All NUMA nodes of it."""
        bits = self.cpus
        for each in (*self.memory, *self.devices):
            bits |= each
        return bits


NOTHING_HELD = Held(0, 0)


def broken_by_outcome(demand: Demand, kubelet: Kubelet, request: PodRequest, outcome: Outcome) -> BrokenDemand | None:
    """How the outcome breaks the pod's demand. None: it meets the demand, or the pod is not admitted."""
    verdict = outcome.verdict
    if not isinstance(verdict, Admitted):
        return None
    return broken_in_state(demand, kubelet.machine, request, outcome.state)


def broken_in_state(
    demand: Demand,
    machine: Machine,
    request: PodRequest,
    state: ManagerState,
) -> BrokenDemand | None:
    """How the resources of the pod in *state* break its demand; None: they meet it. The pod is on the node."""
    uid = request.uid
    cpus, memory = state.cpu.entries.get(uid, {}), state.memory.entries.get(uid, {})
    devices = state.devices.entries.get(uid, {})
    pinned = {} if state.nri is None else state.nri.pinned(uid)
    held = {}
    for container in request.containers:
        name = container.name
        exclusive, nodes = pinned.get(name, (0, 0))
        blocks = [block.mask for block in memory.get(name, ())]
        held[name] = Held(
            *_of_cpus(machine, cpus.get(name, 0) | exclusive),
            tuple([*blocks, nodes] if nodes else blocks),
            (*_local_nodes(devices.get(name, {}), state), *request.claimed.get(name, ())),
        )
    of_pod = tuple([block.mask for block in state.memory.pod_entries.get(uid, ())])
    shared = Held(*_of_cpus(machine, state.cpu.pod_entries.get(uid, 0)), of_pod)
    return broken_by(demand, machine, request, held, shared)


def broken_by(
    demand: Demand, machine: Machine, request: PodRequest, held: Mapping[str, Held], shared: Held = NOTHING_HELD
) -> BrokenDemand | None:
    """How *held*, by container, breaks the demand. *shared*: CPUs that the pod has for several containers."""
    needs_one_node, needs_one_socket, needs_local_memory = _needs(demand, machine)
    if not (needs_one_node or needs_one_socket or needs_local_memory):
        return None
    together = demand.scope is DemandScope.POD
    found = _unplaced(request, held, shared)
    if needs_one_node:
        found = found or _split(_numa_parts, Breach.NUMA_NODES, machine, held, shared, together=together)
    if needs_one_socket:
        found = found or _split(_socket_parts, Breach.SOCKETS, machine, held, shared, together=together)
    return found or (_remote(held, shared) if needs_local_memory else None)


def is_always_met(demand: Demand, machine: Machine) -> bool:
    """Whether every placement on the machine meets the demand."""
    return not demand.fault and not any(_needs(demand, machine))


def _needs(demand: Demand, machine: Machine) -> tuple[bool, bool, bool]:
    """Whether to check for one NUMA node, for one socket, and for local memory."""
    has_nodes = len(machine.numa_ids) > 1
    return (
        has_nodes and demand.alignment is AlignmentDemand.SINGLE_NUMA_NODE,
        len(machine.socket_cpus) > 1 and demand.alignment is AlignmentDemand.SAME_SOCKET,
        has_nodes and demand.memory is MemoryDemand.NO_REMOTE_MEMORY,
    )


def _of_cpus(machine: Machine, cpus: int) -> tuple[int, int]:
    """The NUMA nodes and the sockets of *cpus*; sockets by position, as in `Machine.numa_sockets`."""
    sockets = sum(1 << i for i, of_socket in enumerate(machine.socket_cpus.values()) if of_socket & cpus)
    return machine.numa_bits_of_cpus(cpus), sockets


def _local_nodes(taken: Mapping[str, frozenset[str]], state: ManagerState) -> Iterator[int]:
    for resource, ids in taken.items():
        known = state.devices.devices.get(resource, {})
        yield from (numa for each in ids if each in known and (numa := known[each].numa))


def _unplaced(request: PodRequest, held: Mapping[str, Held], shared: Held) -> BrokenDemand | None:
    for container in request.containers:
        if container.cpus and not held[container.name].cpus:
            return BrokenDemand(Breach.NOT_PLACED, container.name, 0)
    is_anything = shared.cpus or any(each.numa for each in held.values())
    lacks_shared = request.pod_level is not None and request.pod_level.cpus and not shared.cpus
    return BrokenDemand(Breach.NOT_PLACED, None, 0) if lacks_shared or not is_anything else None


def _split(
    whole_on: Callable[[Machine, Held], Iterator[int]],
    breach: Breach,
    machine: Machine,
    held: Mapping[str, Held],
    shared: Held,
    *,
    together: bool,
) -> BrokenDemand | None:
    """The first container for which no place has all parts. *whole_on*: the places that have all of each part."""
    common_to_all, numa = -1, 0
    for name, each in [*held.items(), (None, shared)]:
        common = reduce(and_, whole_on(machine, each), -1)
        if not common:
            return BrokenDemand(breach, name, each.numa)
        common_to_all &= common
        numa |= each.numa
    return BrokenDemand(breach, None, numa) if together and not common_to_all else None


def _numa_parts(_machine: Machine, held: Held) -> Iterator[int]:
    """The NUMA nodes that have all of each part: none if CPUs or a block of memory are on several."""
    for mask in (held.cpus, *held.memory):
        if mask:
            yield mask if mask.bit_count() == 1 else 0
    yield from held.devices


def _socket_parts(machine: Machine, held: Held) -> Iterator[int]:
    """The sockets that have all of each part."""
    if held.sockets:
        yield held.sockets if held.sockets.bit_count() == 1 else 0
    for block in held.memory:
        yield reduce(and_, (machine.numa_sockets.get(numa, 0) for numa in iter_bits(block)), -1)
    yield from (machine.socket_bits_in_numa(device) for device in held.devices)


def _remote(held: Mapping[str, Held], shared: Held) -> BrokenDemand | None:
    with_cpus = [(name, each) for name, each in held.items() if each.cpus]
    if not with_cpus and not shared.cpus:
        return BrokenDemand(Breach.NOT_PLACED, None, 0)
    for name, each in with_cpus:
        memory = each.memory or shared.memory
        if not memory or any(block & ~each.cpus for block in memory):
            return BrokenDemand(Breach.REMOTE_MEMORY, name, each.numa)
    return None
