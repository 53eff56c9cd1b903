"""Sentences about claims of a pod on one node: where claimed devices are, and where free ones are."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.sets import format_list
from extender.questions.claim_alignment import ClaimAlignment
from extender.questions.node_context import CPU_DRIVER, DynamicDevice
from extender.replay.alignment import PodAlignment
from extender.replay.pod import Pod

CLAIM_ALIGNMENTS: Final[Mapping[ClaimAlignment, str]] = {
    ClaimAlignment.LIKELY: "the claimed devices are likely to be on the NUMA node of the pod's other resources",
    ClaimAlignment.POSSIBLE: "the claimed devices can be on the NUMA node of the pod's other resources",
    ClaimAlignment.APART: "the claimed devices cannot all be on the NUMA node of the pod's other resources",
    ClaimAlignment.UNKNOWN: "it is not known whether the claimed devices can be on one NUMA node with the rest",
}
_CHECKED: Final = ", but bind checks them by the pod's demand"
MAX_SHOWN: Final = 8
"""Devices and drivers that are named one by one."""


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
    if served := sorted(extended):
        is_checked = pod.demand.is_required and devices is not None
        yield (
            f"no device plugin of the node serves "
            f"{', '.join(served[:MAX_SHOWN])}: if a DRA driver does, kube-scheduler "
            f"chooses the devices and nothing aligns them{_CHECKED if is_checked else ''}"
        )
    if not pod.has_claims:
        return
    if devices is None:
        yield "where devices of the pod's claims are is not known: NUMA_EXTENDER_DRA is off, or nothing is listed yet"
        return
    for container in pod.containers:
        held = [device for device in devices if device.claim and device.claim in container.claims]
        for device in held[:MAX_SHOWN]:
            yield f"container {container.name}: {_where(device)}{_beside(device, container.name, placed)}"
        if set(container.claims) - {device.claim for device in held}:
            rest = _rest(container.name, placed)
            beside = f", and {rest}" if rest else ""
            yield (
                f"container {container.name} has a claim without devices of this node{beside}; "
                f"free devices: {_free(devices)}"
            )
    if alignment is not None and placed is not None:
        yield CLAIM_ALIGNMENTS[alignment]


def _cpu_driver(kubelet: Kubelet | None) -> Iterator[str]:
    if kubelet is not None and kubelet.cpu_static:
        yield (
            f"the DRA driver {CPU_DRIVER} and the static policy of the kubelet both allocate CPUs of this node, and "
            "neither knows of the other's"
        )
    else:
        yield f"exclusive CPUs of this node are allocated by the DRA driver {CPU_DRIVER}, which is not replayed"


def _where(device: DynamicDevice) -> str:
    if not device.numa:
        return f"device {device.name} of {device.driver} is on a NUMA node that its driver does not name"
    return f"device {device.name} of {device.driver} is on NUMA node {format_list(device.numa)}"


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
