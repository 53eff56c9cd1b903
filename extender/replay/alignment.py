"""Alignment: the NUMA nodes of an admitted pod's resources, and whether this is one node.

The hint that the Topology Manager stored is not used: CPUs, memory and devices can be elsewhere.

The definition:
- What the NRI topology-aware policy grants to a container counts as if a manager gave it.
- Only what a manager gives to a container counts: exclusive CPUs, pinned memory, and devices whose plugin reported NUMA
  nodes. CPUs of the shared pool, memory that is not pinned, and devices without NUMA nodes do not count.
- CPUs are on their own NUMA nodes. A block of memory is on every node of its set, since the kernel may
  take pages from each. A device that belongs to several NUMA nodes is local to each of them.
- A container is aligned if there is one NUMA node on which all its CPUs and all its memory are, and to which all its
  devices are local. It is not managed if nothing of it counts. Otherwise it is split.
- Under scope `pod` the same holds for all containers together. Under scope `container`, and under policy `none`, a pod
  is aligned if each of its managed containers is.
- `align-by-socket` does not change this: CPUs of one socket that are on two NUMA nodes are split.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from extender.kubelet.admission import Outcome
from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.state import Device
from extender.kubelet.verdict import Admitted, Placement
from extender.replay.creation import whole_placements

Devices = Mapping[str, Mapping[str, Device]]
"""All devices of a node, by resource and id."""


class Alignment(StrEnum):
    """The alignment of an admitted pod, or of one of its containers."""

    ALIGNED = "aligned"
    """Everything is on one NUMA node."""
    SPLIT = "split"
    """The pod's resources are on several NUMA nodes."""
    NOT_MANAGED = "not-managed"
    """No manager of the kubelet places any of its resources on NUMA nodes."""


@dataclass(frozen=True, slots=True)
class Spread:
    """`numa`: raw NUMA bits.

    Aligned: the nodes that all its resources have in common, usually one. Split: all nodes.
    """

    alignment: Alignment
    numa: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAlignment:
    """The alignment of an admitted pod, and of each container by name.

    `certain` is False if it depends on the kubelet's random choice of devices, or on what happens on the node first.
    """

    alignment: Alignment
    numa: int
    containers: Mapping[str, Spread]
    certain: bool = True


@dataclass(frozen=True, slots=True)
class _Part:
    """One resource that counts: all NUMA nodes that it is on, and those of them that have all of it."""

    on: int
    whole_on: int


NOTHING: Final = Spread(Alignment.NOT_MANAGED, 0)


def alignment_of(
    placements: Mapping[str, Placement], machine: Machine, devices: Devices, *, together: bool
) -> PodAlignment:
    """The alignment of a pod's placements. *together*: the pod is placed as a whole (scope `pod`)."""
    parts = {name: _parts(placement, machine, devices) for name, placement in placements.items()}
    containers = {name: _spread(each) for name, each in parts.items()}
    if together:
        whole = _spread([part for each in parts.values() for part in each])
        return PodAlignment(alignment=whole.alignment, numa=whole.numa, containers=containers)
    managed = [each for each in containers.values() if each.alignment is not Alignment.NOT_MANAGED]
    numa = 0
    for each in managed:
        numa |= each.numa
    alignment = Alignment.ALIGNED if managed else Alignment.NOT_MANAGED
    if any(each.alignment is Alignment.SPLIT for each in managed):
        alignment = Alignment.SPLIT
    return PodAlignment(alignment=alignment, numa=numa, containers=containers)


def _parts(placement: Placement, machine: Machine, devices: Devices) -> list[_Part]:
    parts = []
    if placement.cpus:
        parts.append(_at_once(machine.numa_bits_of_cpus(placement.cpus)))
    parts += [_at_once(block.mask) for block in placement.memory]
    for resource, ids in placement.devices.items():
        known = devices.get(resource, {})
        nodes = (known[each].numa for each in ids if each in known)
        parts += [_Part(numa, numa) for numa in nodes if numa]
    return parts


def _at_once(numa: int) -> _Part:
    """A part, such as CPUs, that is only aligned if it is on one NUMA node."""
    return _Part(numa, numa if numa.bit_count() == 1 else 0)


def _spread(parts: Iterable[_Part]) -> Spread:
    on, common, found = 0, -1, False
    for part in parts:
        on |= part.on
        common &= part.whole_on
        found = True
    if not found:
        return NOTHING
    return Spread(Alignment.ALIGNED, common) if common else Spread(Alignment.SPLIT, on)


def alignment_of_outcome(kubelet: Kubelet, outcome: Outcome) -> PodAlignment | None:
    """The alignment of one outcome. None if the pod is not admitted."""
    if not isinstance(outcome.verdict, Admitted):
        return None
    return alignment_of_verdict(kubelet, outcome.verdict, outcome.state.devices.devices)


def alignment_of_verdict(kubelet: Kubelet, verdict: Admitted, devices: Devices) -> PodAlignment:
    """The alignment of a pod that the kubelet admits with this verdict. *devices*: all of the node."""
    together = kubelet.scope is Scope.POD and kubelet.policy is not TopologyPolicy.NONE
    placements = whole_placements(verdict)
    return alignment_of(placements, kubelet.machine, devices, together=together)


def alignment_of_outcomes(kubelet: Kubelet, outcomes: Sequence[Outcome]) -> PodAlignment | None:
    """The alignment of the first outcome, or of the first split one if they differ. None: not admitted.

    Outcomes that refuse the pod are skipped.
    """
    found = [each for outcome in outcomes if (each := alignment_of_outcome(kubelet, outcome)) is not None]
    if not found:
        return None
    worst = next((each for each in found if each.alignment is Alignment.SPLIT), found[0])
    same = len({each.alignment for each in found}) == 1 and all(outcome.complete for outcome in outcomes)
    return worst if same else replace(worst, certain=False)
