"""What kube-scheduler adds up: a pod's requests, and what a node can give in all.

Laws
- Amounts are thousandths of the base unit, by resource name.
- A pod requests the peak of its life: init containers run one by one, with the sidecars started before them.
- What a node can give, where its Node object is not at hand, follows from machine and configuration; resources that do
  not follow (pods, ephemeral storage) are left out, and so are not checked.

Mirrors: `component-helpers/resource` (PodRequests), kubelet `cm/node_container_manager` (allocatable).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from extender.replay.kubelet import Kubelet
from extender.replay.pod import HUGEPAGES_PREFIX, ContainerKind, Pod
from extender.replay.startup import format_page_size
from extender.replay.state import DeviceState

Milli = Mapping[str, int]
ALIGNED: Final = "numa-extender/aligned"
"""Says that a pod must not be bound without the extender, where kube-scheduler is set up so (`managedResources`).

No node has it. kube-scheduler does not count it (`ignoredByScheduler`); the kubelet takes extended resources that the
node lacks out of the pod before it admits it (`lifecycle/predicate.go` removeMissingExtendedResources).
"""


def pod_requests(pod: Pod, overhead_milli: Milli) -> dict[str, int]:
    """What the scheduler counts for the pod; zero amounts are left out, and the mark `ALIGNED`."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for c in pod.containers:
        if c.kind is ContainerKind.INIT:
            for name, amount in c.requests_milli.items():
                peak[name] = max(peak.get(name, 0), running.get(name, 0) + amount)
        else:
            for name, amount in c.requests_milli.items():
                running[name] = running.get(name, 0) + amount
    total = {name: max(peak.get(name, 0), running.get(name, 0)) for name in {**peak, **running}}
    pod_level = (pod.pod_requests_milli or {}).items()
    total |= {name: v for name, v in pod_level if name in ("cpu", "memory") or name.startswith(HUGEPAGES_PREFIX)}
    for name, amount in overhead_milli.items():
        total[name] = total.get(name, 0) + amount
    return {name: amount for name, amount in sorted(total.items()) if amount and name != ALIGNED}


def node_allocatable(kubelet: Kubelet, devices: DeviceState) -> dict[str, int]:
    """What the node's kubelet would publish as allocatable, as far as it follows from what is known here."""
    machine, config = kubelet.machine, kubelet.config
    reserved = config.reservation_bytes
    huge: dict[str, int] = {}
    for node in machine.numa_nodes:
        for page_bytes, pages in node.hugepages.items():
            name = f"{HUGEPAGES_PREFIX}{format_page_size(page_bytes)}"
            huge[name] = huge.get(name, 0) + page_bytes * pages
    memory = sum(node.memory_bytes for node in machine.numa_nodes) - sum(huge.values()) - reserved.get("memory", 0)
    return {
        "cpu": machine.num_cpus * 1000 - config.reservation_cpu_milli,
        "memory": max(0, memory) * 1000,
        **{name: max(0, total - reserved.get(name, 0)) * 1000 for name, total in huge.items()},
        **{r: 1000 * sum(d.healthy for d in each.values()) for r, each in devices.devices.items()},
    }


def shortages(wanted: Milli, allocatable: Milli, requested: Milli) -> Iterator[tuple[str, int, int]]:
    """(resource, wanted, left) of each resource of which too little is left.

    Extended resources that the node does not name do not exist there; others without a total are passed over.
    """
    for name, amount in wanted.items():
        if name in allocatable or "/" in name:
            left = allocatable.get(name, 0) - requested.get(name, 0)
            if amount > left:
                yield name, amount, left


def exceeds(wanted: Milli, allocatable: Milli, counted: Iterable[Milli]) -> bool:
    """Whether a kubelet that counts these requests beside *wanted* refuses the pod as `OutOfcpu` and the like.

    Extended resources that the node does not name are dropped from the request, as the kubelet does. The number of pods
    is not checked. Mirrors kubelet `lifecycle/predicate.go` and scheduler `noderesources/fit.go` (fitsRequest).
    """
    known = {name: amount for name, amount in wanted.items() if name in allocatable}
    total: Milli = {}
    for each in counted:
        total = add(total, each)
    return next(shortages(known, allocatable, total), None) is not None


def add(one: Milli, other: Milli) -> dict[str, int]:
    """The sum by resource."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def format_milli(resource: str, milli: int) -> str:
    """An amount for people: `8`, `500m`, `16Gi`."""
    if resource == "memory" or resource.startswith(HUGEPAGES_PREFIX) or resource == "ephemeral-storage":
        return format_bytes(-(-milli // 1000))
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def format_bytes(amount: int) -> str:
    """Bytes as a quantity without rounding: `16Gi`, `1536Mi`, `1000`."""
    for shift, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if amount and amount % (1 << shift) == 0:
            return f"{amount >> shift}{unit}"
    return str(amount)
