"""An admission as strategies read it, and the merit that follows from its placements alone: least-numa.

Filter computes only this merit, because it follows from the placements that the replay has found.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.sets import iter_bits
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Placement
from extender.replay.creation import placed_by, policy_of
from extender.scheduling.ranking.headrooms import Taken, headrooms_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOutcome:
    """An admission of the full replay: the kubelet, its state before and after, and the placements."""

    kubelet: Kubelet
    before: ManagerState
    after: ManagerState
    admitted: Admitted

    def spans(self) -> Iterator[tuple[int, bool]]:
        """For each container: the NUMA nodes that it is on, raw bits, 0 if it has nothing of its own; is preferred.

        A device that belongs to several NUMA nodes adds none if the container is on one of them already. Under the NRI
        topology-aware policy a container is on the nodes of its memory and of its CPUs, those of its pool if it shares
        them. It is not preferred if memory of other containers is spread over more nodes for it.
        """
        granted = {placed.name: placed for placed in placed_by(self.admitted)} if self.admitted.granted else {}
        for name, placement in self.admitted.placements.items():
            span, is_preferred = _footprint(self.kubelet.machine, self.before, placement), placement.preferred
            placed = granted.get(name)
            if placed is not None and (policy := policy_of(self.kubelet)) is not None:
                span |= policy.nodes_of(placed.grant)
                is_preferred = (is_preferred or placement.affinity is None) and not placed.widened
            yield span, is_preferred

    def taken(self) -> Iterator[Taken]:
        """Each resource of which the pod takes something, with the headroom before and after."""
        rooms = headrooms_of(self.kubelet, self.after)
        for name, before in headrooms_of(self.kubelet, self.before).items():
            after = rooms[name]
            if before.free > after.free:
                yield name, before, after


Strategy = Callable[[AdmissionOutcome], int]
"""From an admission to its merit. More is better; see `strategies`."""


def _footprint(machine: Machine, state: ManagerState, placement: Placement) -> int:
    """The NUMA nodes of one container, as raw bits, as `AdmissionOutcome.spans` counts them."""
    span = machine.numa_bits_of_cpus(placement.cpus)
    for block in placement.memory:
        span |= block.mask
    for resource, ids in placement.devices.items():
        known = state.devices.devices.get(resource, {})
        for device_id in ids:
            device = known.get(device_id)
            numa = device.numa if device is not None and device.numa else 0
            if not numa & span:
                span |= numa & -numa
    return span


NODE_COST: Final = 1000
"""Cost of each NUMA node beyond the first that a container spans."""
NOT_PREFERRED_COST: Final = 500
"""Cost of a container that got more NUMA nodes than the hardware requires."""


def least_numa(outcome: AdmissionOutcome) -> int:
    """Fewest NUMA nodes, then preferred hints, then the closest nodes.

    The cost of a container is 1000 for each NUMA node beyond the first that its CPUs, memory and devices are on, 500 if
    its hint is not preferred, and the mean distance between its nodes beyond the local distance (sysfs units, 10 is
    local). Merit is minus the sum over containers.
    """
    cost = 0
    for span, is_preferred in outcome.spans():
        if span & (span - 1):
            cost += NODE_COST * (span.bit_count() - 1) + _mean_distance_beyond_local(outcome.kubelet.machine, span)
        if span and not is_preferred:
            cost += NOT_PREFERRED_COST
    return -cost


BY_PLACEMENT: Final[frozenset[Strategy]] = frozenset({least_numa})
"""Strategies whose merit follows from the placements and the hardware alone, whatever else is free."""


def _mean_distance_beyond_local(machine: Machine, span: int) -> int:
    """Mean of the distances from each node of the span to each other one, less the local distance; 0 if not known."""
    rows = {node.id: node.distances for node in machine.numa_nodes}
    position = {numa: i for i, numa in enumerate(machine.numa_ids)}
    ids = [i for i in iter_bits(span) if i in position and len(rows[i]) == len(position)]
    if len(ids) < 2:
        return 0
    beyond = [rows[a][position[b]] - rows[a][position[a]] for a in ids for b in ids if a != b]
    return sum(beyond) // len(beyond)
