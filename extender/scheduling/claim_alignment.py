"""Whether the devices of a pod's claims can be on the NUMA node of what the kubelet gives to the pod.

The kubelet places the pod without regard to claims, so the replayed placement says where the devices have to be.

Rules of this file
- Which free devices a claim may have is known to kube-scheduler alone, which evaluates the selectors. Here the drivers
  decide: the answer is `POSSIBLE` only if each driver that has free devices on the node has enough of them there, and
  `APART` only if all drivers together have too few.
- kube-scheduler takes the first free devices that match, in the order in which they are listed. The answer is `LIKELY`
  if these are on the right NUMA node, whichever driver serves the claims.
- A claim without devices of the node is taken to need one device, and to get it from those that are listed as free.
- Devices of the DRA driver for CPUs are not free devices: other claims than those for CPUs cannot have them.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from extender.cluster.dynamic_devices import CPU_DRIVER, DynamicDevice
from extender.cluster.node_class import NodeClass
from extender.replay.admission import Outcome
from extender.replay.alignment import NOTHING, Alignment, Spread, alignment_of_outcome
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod
from extender.scheduling.demands import are_all_known

Places = Sequence[Mapping[str, Spread]]
"""Where the kubelet would place each container, by name, in each possible outcome. Empty: not known."""
_ANYWHERE = -1


class ClaimAlignment(IntEnum):
    """Ordered from worst to best."""

    APART = 0
    """Not all can be on one NUMA node, for at least one container."""
    UNKNOWN = 1
    """Reports, drivers or selectors that are not read decide. Also if the kubelet places nothing on NUMA nodes."""
    POSSIBLE = 2
    """Each container can have everything on one NUMA node: it depends on which free devices kube-scheduler takes."""
    LIKELY = 3
    """Each container has everything on one NUMA node, if kube-scheduler takes the first free devices of a driver."""


def places_of(kubelet: Kubelet, outcomes: Sequence[Outcome]) -> Places:
    """The placements of all outcomes. Empty if one of them refuses the pod, or there are more outcomes than these."""
    found = [alignment_of_outcome(kubelet, each) for each in outcomes]
    if not are_all_known(outcomes):
        return ()
    admitted = [each.containers for each in found if each is not None]
    return admitted if len(admitted) == len(found) else ()


def is_certain(node_class: NodeClass) -> bool:
    """Whether replays on the class show where a pod would be placed."""
    return node_class.complete and not (node_class.stale or node_class.hidden or node_class.possible.in_turn)


def claim_alignment_of(
    pod: Pod, kubelet: Kubelet | None, devices: Sequence[DynamicDevice], places: Places
) -> ClaimAlignment:
    """The answer for one node. *kubelet* None: not known. *devices*: all that drivers publish for the node."""
    if kubelet is not None and len(kubelet.machine.numa_ids) == 1:
        return ClaimAlignment.LIKELY
    found = {_in_outcome(pod, devices, each) for each in places}
    return found.pop() if len(found) == 1 else ClaimAlignment.UNKNOWN


def _in_outcome(pod: Pod, devices: Sequence[DynamicDevice], places: Mapping[str, Spread]) -> ClaimAlignment:
    """The answer for one outcome. *places*: where it places each container, by name."""
    held: dict[str, list[DynamicDevice]] = {}
    for device in devices:
        held.setdefault(device.claim, []).append(device)
    masks: dict[object, int] = {}
    is_unknown = False
    for container in pod.containers:
        here = [device for claim in container.claims if claim for device in held.get(claim, ())]
        mask = _mask_of(places.get(container.name, NOTHING))
        if mask == _ANYWHERE:
            continue
        is_unknown |= any(device.numa is None for device in here)
        for device in here:
            mask &= _ANYWHERE if device.numa is None else 1 << device.numa
        for position, claim in enumerate(container.claims):
            key = claim or (container.name, position)
            masks[key] = masks.get(key, _ANYWHERE) & mask
    if not masks:
        return ClaimAlignment.UNKNOWN
    if not all(masks.values()):
        return ClaimAlignment.APART
    to_come = [mask for claim, mask in masks.items() if claim not in held]
    answers = {_of_free(held.get("", ()), mask, to_come) for mask in to_come}
    return min(answers | {ClaimAlignment.UNKNOWN if is_unknown else ClaimAlignment.LIKELY})


def _mask_of(spread: Spread) -> int:
    """The NUMA nodes on each of which devices would be beside the rest, as raw bits.

    0: there is none. `_ANYWHERE`: the kubelet places nothing of the container.
    """
    if spread.alignment is Alignment.NOT_MANAGED:
        return _ANYWHERE
    return spread.numa if spread.alignment is Alignment.ALIGNED else 0


def _of_free(free: Iterable[DynamicDevice], mask: int, to_come: Sequence[int]) -> ClaimAlignment:
    """Whether claims get free devices on the NUMA nodes *mask*. *to_come*: the nodes of all claims without devices."""
    by_driver: dict[str, list[DynamicDevice]] = {}
    for device in free:
        if device.driver != CPU_DRIVER:
            by_driver.setdefault(device.driver, []).append(device)
    if not by_driver:  # devices that are local to no node, or that are not listed
        return ClaimAlignment.UNKNOWN
    there = {
        driver: sum(device.numa is not None and bool(mask >> device.numa & 1) for device in listed)
        for driver, listed in by_driver.items()
    }
    without_numa = sum(device.numa is None for listed in by_driver.values() for device in listed)
    must_be_there = sum(not claim_mask & ~mask for claim_mask in to_come)
    may_be_there = sum(bool(claim_mask & mask) for claim_mask in to_come)
    if sum(there.values()) + without_numa < must_be_there:
        return ClaimAlignment.APART
    if mask.bit_count() > 1 or min(there.values()) < may_be_there:
        return ClaimAlignment.UNKNOWN
    firsts = [device for listed in by_driver.values() for device in listed[: len(to_come)]]
    is_first = all(device.numa is not None and mask >> device.numa & 1 for device in firsts)
    return ClaimAlignment.LIKELY if is_first else ClaimAlignment.POSSIBLE
