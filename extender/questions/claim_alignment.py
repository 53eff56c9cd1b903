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
- Scores rank nodes first by this answer, and then by the kubelet's placement: see `BANDS`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.cluster.node_class import NodeClass
from extender.kubelet.admission import Outcome
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import Container
from extender.kubelet.verdict import Certainty
from extender.questions.node_context import DynamicDevice, for_extended
from extender.replay.alignment import NOTHING, Alignment, Spread, alignment_of_outcome
from extender.replay.pod import Claimed, ClaimedDevice, Pod
from extender.scheduling.judgement import Judgement, are_all_known
from extender.scheduling.scoring import MAX_SCORE

Places = Sequence[Mapping[str, Spread]]
"""Where the kubelet would place each container, by name, in each possible outcome. Empty: not known."""
Needs = frozenset[int]
"""For each container that uses a claimed device: the NUMA nodes on which it would be beside the container's other
resources."""
_ANYWHERE = -1


class ClaimAlignment(IntEnum):
    """Ordered from worst to best."""

    APART = 0
    """At least one container cannot have everything on one NUMA node."""
    UNKNOWN = 1
    """Reports, drivers or selectors that are not read decide. Also if the kubelet places nothing on NUMA nodes."""
    POSSIBLE = 2
    """Each container can have everything on one NUMA node: it depends on which free devices kube-scheduler takes."""
    LIKELY = 3
    """Each container has everything on one NUMA node, if kube-scheduler takes the first free devices of a driver."""


BANDS: Final[Mapping[ClaimAlignment, tuple[int, int]]] = {
    ClaimAlignment.APART: (0, 2),
    ClaimAlignment.UNKNOWN: (3, 4),
    ClaimAlignment.POSSIBLE: (5, 7),
    ClaimAlignment.LIKELY: (8, MAX_SCORE),
}
"""The lowest and the highest score of each band, to which scores of 0 to 10 are scaled."""
_LOWEST: Final = np.array([BANDS[each][0] for each in ClaimAlignment], np.uint8)
_WIDTH: Final = np.array([BANDS[each][1] - BANDS[each][0] for each in ClaimAlignment], np.uint8)


def places_of(kubelet: Kubelet, outcomes: Sequence[Outcome]) -> Places:
    """The placements of all outcomes. Empty if one of them refuses the pod, or there are more outcomes than these."""
    found = [alignment_of_outcome(kubelet, each) for each in outcomes]
    if not are_all_known(outcomes):
        return ()
    admitted = [each.containers for each in found if each is not None]
    return admitted if len(admitted) == len(found) else ()


def may_claim_cpus(pod: Pod, devices: Iterable[DynamicDevice]) -> bool:
    """Whether the claims of the pod can be for CPUs of a node with these devices."""
    return pod.has_claims and any(device.is_cpus for device in devices)


def used_by(pod: Pod) -> Iterator[tuple[Container, Sequence[str]]]:
    """Each container with its claims, the last one for its extended resources (`for_extended`)."""
    return ((each, (*each.claims, for_extended(position))) for position, each in enumerate(pod.containers))


def claimed_of(pod: Pod, devices: Sequence[DynamicDevice]) -> Claimed:
    """The devices of the pod's claims among those of a node, by container. Empty if there are none."""
    found = {
        container.name: tuple(
            ClaimedDevice(device.numa, device.is_cpus)
            for claim in claims
            for device in devices
            if claim and device.claim == claim
        )
        for container, claims in used_by(pod)
    }
    return {name: claimed for name, claimed in found.items() if claimed}


def extended_by_claims(pod: Pod, node_class: NodeClass) -> frozenset[str]:
    """The extended resources of the pod that no device plugin of the node serves. Empty if nothing is known of it."""
    if node_class.state is None or not pod.wants_devices:
        return frozenset()
    wanted = {name for container in pod.containers for name, milli in container.limits_milli.items() if milli}
    return frozenset(name for name in wanted if "/" in name and name not in node_class.state.devices.devices)


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
    needs: dict[object, frozenset[int]] = {}
    is_unknown = False
    for container, claims in used_by(pod):
        here = [device for claim in claims if claim for device in held.get(claim, ())]
        mask = _mask_of(places.get(container.name, NOTHING))
        if mask == _ANYWHERE:
            continue
        is_unknown |= not all(device.numa for device in here)
        for device in here:
            mask &= device.numa or _ANYWHERE
        for position, claim in enumerate(claims if claims[-1] in held else container.claims):
            key = claim or (container.name, position)
            needs[key] = needs.get(key, frozenset()) | {mask}
    if not needs:
        return ClaimAlignment.UNKNOWN
    if any(0 in masks for masks in needs.values()):
        return ClaimAlignment.APART
    to_come = [_least(masks) for claim, masks in needs.items() if claim not in held]
    answers = {_of_free(held.get("", ()), masks, to_come) for masks in to_come}
    return min(answers | {ClaimAlignment.UNKNOWN if is_unknown else ClaimAlignment.LIKELY})


def _mask_of(spread: Spread) -> int:
    """The NUMA nodes on each of which devices would be beside the rest, as raw bits.

    0: there is none. `_ANYWHERE`: the kubelet places nothing of the container.
    """
    if spread.alignment is Alignment.NOT_MANAGED:
        return _ANYWHERE
    return spread.numa if spread.alignment is Alignment.ALIGNED else 0


def _of_free(free: Iterable[DynamicDevice], needs: Needs, to_come: Sequence[Needs]) -> ClaimAlignment:
    """Whether claims get free devices that meet *needs*. *to_come*: the needs of all claims without devices."""
    by_driver: dict[str, list[DynamicDevice]] = {}
    for device in free:
        if not device.is_cpus:
            by_driver.setdefault(device.driver, []).append(device)
    if not by_driver:  # devices that are local to no node, or that are not listed
        return ClaimAlignment.UNKNOWN
    every = [device for listed in by_driver.values() for device in listed]
    there = [sum(_meets(device, needs) for device in listed) for listed in by_driver.values()]
    without_numa = sum(not device.numa for device in every)
    must_be_there = sum(_is_as_strict(each, needs) for each in to_come)
    may_be_there = sum(any(_meets(device, needs | each) for device in every) for each in to_come)
    if sum(there) + without_numa < must_be_there:
        return ClaimAlignment.APART
    if any(mask.bit_count() > 1 for mask in needs) or min(there) < max(1, may_be_there):
        return ClaimAlignment.UNKNOWN
    firsts = [device for listed in by_driver.values() for device in listed[: len(to_come)]]
    return ClaimAlignment.LIKELY if all(_meets(each, needs) for each in firsts) else ClaimAlignment.POSSIBLE


def _least(needs: Needs) -> Needs:
    """The needs without masks that contain another mask: a device that meets the smaller mask meets both."""
    return frozenset(mask for mask in needs if not any(other != mask and not other & ~mask for other in needs))


def _meets(device: DynamicDevice, needs: Needs) -> bool:
    """Whether the device is local to one NUMA node of each mask."""
    return all(device.numa & mask for mask in needs)


def _is_as_strict(needs: Needs, other: Needs) -> bool:
    """Whether each device that meets *needs* meets *other* as well."""
    return all(any(not mask & ~wider for mask in needs) for wider in other)


def ranked_by_claims(
    scores: NDArray[np.uint8], alignments: Sequence[ClaimAlignment], ranked: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """The scores of the nodes of one request, in bands. Unchanged if all nodes that can be ranked are in one band.

    *alignments*: the answer of this file for each node. *ranked*: see `can_be_ranked`.

    The other nodes keep their 0.
    """
    bands = np.fromiter(alignments, np.uint8, len(alignments))
    if len(np.unique(bands[ranked])) <= 1:
        return scores
    lowest, width = _LOWEST[bands], _WIDTH[bands]
    return np.where(ranked, lowest + width * scores // MAX_SCORE, scores).astype(np.uint8)


def can_be_ranked(judgement: Judgement) -> bool:
    """Whether the node is not refused, and something is known about it."""
    return judgement.refusal is None and judgement.certainty is not Certainty.UNKNOWN
