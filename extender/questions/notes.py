"""Notes: the assumptions of a reply and the checks that were not made, in sentences. All replies get theirs here.

Rules of this file
- Nothing that the reply depends on is omitted silently: a check that was not made is named.
- `pod_notes` apply to every node, `node_notes` to one. There are few different sentences for one pod, so that equal
  ones can be counted over many nodes.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerKind, PodRequest, QOSClass
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import format_list
from extender.questions.claim_alignment import ClaimAlignment, used_by
from extender.questions.node_context import CPU_DRIVER, DynamicDevice, Subject
from extender.questions.scheduler_checks import check_node
from extender.questions.words import plural
from extender.replay.alignment import PodAlignment
from extender.replay.alignment_demand import AlignmentDemand, Demand, DemandScope, MemoryDemand
from extender.replay.counts import NEWEST_RULES
from extender.replay.pod import Pod
from extender.wire.placement_rules import PlacementRules
from extender.wire.pod_replies import Scheduler
from extender.wire.workloads import PodWorkload

MAX_NOTES: Final = 100
_CHECKS: Final = {
    "resources": "what the node's other pods request",
    "node-selector": "the pod's nodeSelector",
    "node-affinity": "the pod's required node affinity",
    "taints": "the node's taints",
    "unschedulable": "whether the node is cordoned",
}
"""What a check looks at, by its name. The check `other` has its own sentence."""


def pod_notes(workload: PodWorkload) -> list[str]:
    """Oddities of a pod, and what is not checked on any node."""
    pod = workload.pod
    request = resolve(pod, NEWEST_RULES)
    return [
        *workload.unknown,
        *_demand(pod.demand),
        *_not_looked_at(workload),
        *_oddities(pod),
        *_unpinned(pod, request),
    ]


def _demand(demand: Demand) -> Iterator[str]:
    """The alignment that the pod demands by its annotations."""
    if demand.fault:
        yield f"every node is refused for the pod: {demand.fault}"
        return
    of = "all containers together" if demand.scope is DemandScope.POD else "each container"
    for who, wanted in ((of, demand.of()), *((f"container {name}", demand.of(name)) for name, _ in demand.containers)):
        what = "" if wanted.resources is None else f" of {' and '.join(wanted.resources)}"
        if wanted.alignment not in (None, AlignmentDemand.NONE):
            yield f"the pod demands alignment {wanted.alignment}{what} for {who}, whatever the policy of the node"
        if wanted.memory is MemoryDemand.NO_REMOTE_MEMORY:
            yield f"the pod demands no-remote-memory for {who}: memory must be pinned to the NUMA nodes of the CPUs"


def node_notes(workload: PodWorkload, kubelet: Kubelet | None, scheduler: Scheduler) -> list[str]:
    """Assumptions of the verdict for one node, and what was not checked there."""
    notes = [] if kubelet is None else [*kubelet.caveats, *_pod_level(workload.pod, kubelet)]
    missed = [_CHECKS[c.check] for c in scheduler.checks if c.outcome == "not-checked" and c.check in _CHECKS]
    if missed:
        notes.append(f"not checked, because it is unknown for the node: {', '.join(missed)}")
    return notes


def all_notes(asked: Sequence[PodWorkload], subjects: Sequence[Subject], left_out: int | None = None) -> list[str]:
    """Those of pods once, those of nodes with a count. *left_out*: on how many nodes claims are left out; None: all."""
    of_pods = list(dict.fromkeys(note for workload in asked for note in pod_notes(workload)))
    if left_out:
        of_pods.append(f"claims are left out on {plural(left_out, 'node')}: it is not known which devices they get")
    elif left_out is None and any(workload.pod.has_claims for workload in asked):
        of_pods.append("claims are left out here: what-if says for one pod which devices it gets, and where they are")
    alike = {_kind_of_notes(workload): workload for workload in asked}
    of_nodes: Counter[str] = Counter()
    for subject in subjects:
        found: list[str] = []
        for workload in alike.values():
            checked = check_node(subject.name, {}, workload.rules, subject.around)
            found += node_notes(workload, subject.kubelet, checked)
        of_nodes.update(dict.fromkeys(found, 1))
    counted = [f"{note} ({count} of {plural(len(subjects), 'node')})" for note, count in of_nodes.most_common()]
    all_of_them = of_pods + counted
    if len(all_of_them) > MAX_NOTES:
        return [*all_of_them[:MAX_NOTES], f"{len(all_of_them) - MAX_NOTES} more notes are not listed"]
    return all_of_them


def _kind_of_notes(workload: PodWorkload) -> object:
    """Equal for workloads with the same notes for a node."""
    pod, rules = workload.pod, workload.rules
    has_devices = any("/" in name for c in pod.containers for name in c.limits_milli)
    amounts = None if pod.pod_requests_milli is None else bool(pod.pod_requests_milli or pod.pod_limits_milli)
    return bool(rules.node_selector), _affinity_kind(rules), amounts, has_devices


def _affinity_kind(rules: PlacementRules) -> bool | None:
    """Whether the required node affinity uses labels; None if there is none."""
    return None if rules.node_terms is None else any(term.match_labels for term in rules.node_terms)


def _not_looked_at(workload: PodWorkload) -> Iterator[str]:
    unread = workload.rules.unread
    if "resource claims" in unread:
        yield (
            "the pod has resource claims: no kubelet aligns devices of DRA drivers, and filter checks them only for "
            "pods that demand it"
        )
    if others := [each for each in unread if each != "resource claims"]:
        yield f"not checked: {', '.join(others)}"


def _pod_level(pod: Pod, kubelet: Kubelet) -> Iterator[str]:
    """How a kubelet treats `spec.resources`."""
    rules = kubelet.rules
    if pod.pod_requests_milli is None or not rules.pod_level_qos:
        return
    is_empty = not pod.pod_requests_milli and not pod.pod_limits_milli
    if is_empty and not rules.pod_level_qos_needs_amounts:
        yield (
            "spec.resources has no amounts: this kubelet (before 1.37) treats the pod as BestEffort, "
            "whatever its containers request, and pins nothing"
        )
    elif not is_empty and rules.pod_level_skips_managers and not rules.pod_level_managers:
        yield "the pod has pod-level resources: this kubelet's CPU and memory managers ignore such pods"
    elif (
        not is_empty
        and rules.pod_level_managers
        and any("/" in name for c in pod.containers for name in c.limits_milli)
    ):
        yield "the pod has pod-level resources: this kubelet does not place devices when it admits such a pod"


def _oddities(pod: Pod) -> Iterator[str]:
    """What the API server would refuse, or the kubelet would not count."""
    for c in pod.containers:
        for name, amount in c.requests_milli.items():
            limit = c.limits_milli.get(name)
            if limit is not None and amount > limit:
                yield f"container {c.name} requests more {name} than its limit: the API server would refuse the pod"
            elif limit is None and "/" in name:
                yield f"container {c.name} requests {name} without a limit: the API server would refuse the pod"


def _unpinned(pod: Pod, request: PodRequest) -> Iterator[str]:
    """Why a pod that seems to request exclusive CPUs gets none."""
    if request.qos is not QOSClass.GUARANTEED and any("cpu" in c.requests_milli for c in pod.containers):
        yield (
            f"the pod is {request.qos.value}, not Guaranteed (requests equal to limits, for CPU and memory, in every "
            "container): its CPUs and memory are not pinned"
        )
        return
    for c in pod.containers:
        milli = c.requests_milli.get("cpu", 0)
        if request.guaranteed and milli % 1000 and c.kind is not ContainerKind.INIT:
            yield f"container {c.name} requests {milli}m, not whole CPUs: it runs in the shared pool"


CLAIM_ALIGNMENTS: Final[Mapping[ClaimAlignment, str]] = {
    ClaimAlignment.LIKELY: "the claimed devices are likely to be on the NUMA node of the pod's other resources",
    ClaimAlignment.POSSIBLE: "the claimed devices can be on the NUMA node of the pod's other resources",
    ClaimAlignment.APART: "the claimed devices cannot all be on the NUMA node of the pod's other resources",
    ClaimAlignment.UNKNOWN: "it is not known whether the claimed devices can be on one NUMA node with the rest",
}
_CHECKED: Final = ", but bind checks them by the pod's demand"
MAX_SHOWN: Final = 8
"""How many devices and drivers a note names."""


def claim_notes(
    pod: Pod,
    kubelet: Kubelet | None,
    devices: Sequence[DynamicDevice] | None,
    placed: PodAlignment | None,
    alignment: ClaimAlignment | None,
    extended: Collection[str],
) -> Iterator[str]:
    """The sentences for one node. *devices* None: not known. *placed*: what the kubelet gives; None: it refuses.

    *alignment*: where the devices of the claims are; None if *devices* is None. *extended*: resources that no
    device plugin of the node serves.
    """
    if devices and any(device.is_cpus for device in devices):
        yield from _cpu_driver(kubelet)
    if (served := sorted(extended)) and not any(device.is_for_extended for device in devices or ()):
        is_checked = pod.demand.is_required and devices is not None
        yield (
            f"no device plugin of the node serves "
            f"{', '.join(served[:MAX_SHOWN])}: if a DRA driver does, kube-scheduler "
            f"chooses the devices and nothing aligns them{_CHECKED if is_checked else ''}"
        )
    is_predicted = any(device.is_predicted for device in devices or ())
    if not pod.has_claims and not is_predicted:
        return
    if devices is None:
        yield "where devices of the pod's claims are is not known: NUMA_EXTENDER_DRA is off, or nothing is listed yet"
        return
    for container, claims in used_by(pod):
        held = [device for device in devices if device.claim and device.claim in claims]
        yield from (device_note(container.name, device, placed) for device in held[:MAX_SHOWN])
        if set(container.claims) - {device.claim for device in held}:
            rest = _rest(container.name, placed)
            beside = f", and {rest}" if rest else ""
            yield (
                f"container {container.name} has a claim without devices of this node{beside}; "
                f"free devices: {_free(devices)}"
            )
    if alignment is not None and placed is not None:
        yield CLAIM_ALIGNMENTS[alignment]


def device_note(container: str, device: DynamicDevice, placed: PodAlignment | None) -> str:
    """Where a device of a container is, and where the rest of the container. *placed*: see `claim_notes`."""
    return f"container {container}: {_where(device)}{_beside(device, container, placed)}"


def _cpu_driver(kubelet: Kubelet | None) -> Iterator[str]:
    if kubelet is not None and kubelet.cpu_static:
        yield (
            f"the DRA driver {CPU_DRIVER} and the static policy of the kubelet both allocate CPUs of this node, and "
            "neither knows of the other's"
        )
    else:
        yield f"exclusive CPUs of this node are allocated by the DRA driver {CPU_DRIVER}, which is not replayed"


def _where(device: DynamicDevice) -> str:
    where = (
        f"on NUMA node {format_list(device.numa)}" if device.numa else "on a NUMA node that its driver does not name"
    )
    named = f"device {device.name} of {device.driver}"
    return f"kube-scheduler will take {named}, which is {where}" if device.is_predicted else f"{named} is {where}"


def _beside(device: DynamicDevice, container: str, placed: PodAlignment | None) -> str:
    """Where the rest of the container is, if the kubelet places it."""
    rest = _rest(container, placed)
    if not rest or not device.numa or placed is None:
        return ""
    numa = placed.containers[container].numa
    if numa.bit_count() == 1 and numa & device.numa:
        return ", with everything else"
    return f", and {rest}"


def _rest(container: str, placed: PodAlignment | None) -> str:
    """Where the kubelet places the container; empty if it does not."""
    spread = None if placed is None else placed.containers.get(container)
    return "" if spread is None or not spread.numa else f"the rest is on NUMA node {format_list(spread.numa)}"


def _free(devices: Sequence[DynamicDevice]) -> str:
    """Free devices by driver and NUMA node. Not every driver can serve the claim."""
    counts = Counter((device.driver, device.numa) for device in devices if not device.claim)
    ordered = sorted(counts.items())
    parts = [
        f"{count} of {driver} {f'on NUMA node {format_list(numa)}' if numa else 'without a NUMA node'}"
        for (driver, numa), count in ordered[:MAX_SHOWN]
    ]
    return ", ".join(parts) or "none"
