"""Which node and which CPUs a claim of dra-driver-cpu gets, where each CPU is a device (`cpuDeviceMode: individual`).

Pure. CPUs are raw bits.

Rules of this file
- CPUs on a NUMA node of the pod's other devices are best, then those on any one NUMA node, then any.
- Of equally good ones those are taken that leave the fewest free CPUs on their NUMA node, or on the node.
- The CPUs themselves are chosen as the kubelet would: whole cores and uncore caches first.
- For a pod that demands alignment only the best ones count.

Source: dra-driver-cpu, main of 20 August 2026 (de980986): pkg/device/builder.go (createCPUDeviceSlices) and
pkg/driver/dra_hooks.go (prepareResourceClaim), which gives a claim the CPUs of its devices.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from extender.kube.objects import ObjectName
from extender.kubelet.budget import Budget
from extender.kubelet.config import CPUOptions
from extender.kubelet.cpu_assignment import Assignment
from extender.kubelet.machine import Machine
from extender.kubelet.sets import format_list, iter_bits, parse_list
from extender.wire.parsing import Json

CLASS: Final = "dra.cpu"
"""The DeviceClass that the driver's manifests have."""
MAX_CPUS: Final = 32
"""The most devices of one claim, by the API server."""
CHOSEN: Final = "numa-extender.io/chosen-cpus"
"""The annotation of a claim that was created here: NODE and CPUs, such as `node-a 2-5`."""
MAX_TEXT: Final = 1_000
"""Characters of the CPUs in it that are read. 32 single CPUs take less than 200."""


class NodeCpus(NamedTuple):
    """A node. `free`: CPUs that no claim has. `near`: NUMA nodes of the pod's other devices there; 0: it has none."""

    name: str
    machine: Machine
    free: int
    near: int = 0


class Choice(NamedTuple):
    """The node and the CPUs."""

    node_name: str
    cpus: int


class _Option(NamedTuple):
    """The smallest is the best. `level`: 0 near the devices, 1 on one NUMA node, 2 on several. `left`: free CPUs."""

    level: int
    left: int
    name: str
    numa: int
    node: NodeCpus
    available: int


def choose(nodes: Iterable[NodeCpus], number: int, budget: Budget, *, is_demanding: bool) -> Choice | None:
    """The node and *number* of its CPUs; None: no node has so many.

    Raises:
        BudgetError: it takes too many steps.
    """
    options = [each for node in nodes for each in _options(node, number) if each.level == 0 or not is_demanding]
    if not options:
        return None
    best = min(options, key=lambda each: each[:4])
    by_cache = CPUOptions(prefer_align_by_uncore_cache=True)
    assignment = Assignment(best.node.machine, by_cache, error_counts=True, uncore_rounds_up=True)
    return Choice(best.name, assignment.take(best.available, number, budget))


def _options(node: NodeCpus, number: int) -> Iterator[_Option]:
    for numa, cpus in node.machine.numa_cpus.items():
        available = cpus & node.free
        if available.bit_count() >= number:
            level = 0 if not node.near or node.near >> numa & 1 else 1
            yield _Option(level, available.bit_count() - number, node.name, numa, node, available)
    if node.free.bit_count() >= number:
        yield _Option(2, node.free.bit_count() - number, node.name, -1, node, node.free)


def claim_for(pod: ObjectName, name: str, choice: Choice) -> Json:
    """The ResourceClaim of this name for the pod, with which it is deleted."""
    expression = f'device.driver == "dra.cpu" && device.attributes["dra.cpu"].cpuID in {[*iter_bits(choice.cpus)]}'
    exactly: Json = {
        "deviceClassName": CLASS,
        "allocationMode": "ExactCount",
        "count": choice.cpus.bit_count(),
        "selectors": [{"cel": {"expression": expression}}],
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": pod.namespace,
            "annotations": {CHOSEN: f"{choice.node_name} {format_list(choice.cpus)}"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [{"name": "cpus", "exactly": exactly}]}},
    }


def chosen(annotation: str) -> Choice | None:
    """What the annotation `CHOSEN` says; None: nothing that can be read, or too many CPUs for a claim."""
    name, _, text = annotation.partition(" ")
    with suppress(ValueError):
        cpus = parse_list(text[:MAX_TEXT])
        return Choice(name, cpus) if name and 0 < cpus.bit_count() <= MAX_CPUS else None
    return None
