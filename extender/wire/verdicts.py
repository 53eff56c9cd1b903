"""Verdicts as JSON, for `replay`, explanations and what-if.

Rules of this file
- One form everywhere: `admit`, `reason`, `message` and, for an admitted pod, `containers`.
- Sets have their usual form: CPUs as a Linux list ("0-3,8"), NUMA nodes as ascending lists of ids.
- `affinity` null is "any NUMA node"; `cpus` "" is "the shared pool".
- `affinity` is the hint that the kubelet stored. `numa` says where the resources are, see `replay.alignment`.
"""

from collections.abc import Mapping

from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.verdict import Admitted, Placement, Rejected, Verdict
from extender.nri.admission import PlacedContainer
from extender.replay.alignment import NOTHING, PodAlignment
from extender.replay.creation import placed_by, whole_placements
from extender.wire.quantity import MOST_UNITS

JsonObject = dict[str, object]


def verdict_to_json(verdict: Verdict) -> JsonObject:
    """The kubelet's answer, in the form of `expect` in scenario files, and of `numa-extender replay`."""
    if isinstance(verdict, Rejected):
        return {"admit": False, "reason": verdict.reason.value, "message": verdict.message, "containers": {}}
    return {"admit": True, "reason": "", "message": "", "containers": placements_to_json(verdict.placements)}


def granted_to_json(placed: PlacedContainer) -> JsonObject:
    """A container as the NRI topology-aware policy places it; `shared_millicpu` also of reserved CPUs.

    `cpuset`: the CPUs on which its threads may run; None: the policy does not pin it, or has no shared CPU left for it.
    """
    grant = placed.grant
    return {
        "container": placed.name,
        "pool": placed.pool,
        "cpus": format_list(grant.exclusive),
        "shared_millicpu": grant.portion,
        "cpuset": format_list(placed.pins.cpus) if placed.pins.cpus else None,
        "memory_numa": list(iter_bits(grant.memory_nodes)),
        "memory_bytes": grant.memory_bytes,
        "widens": len(placed.widened),
    }


def placements_to_json(placements: Mapping[str, Placement]) -> JsonObject:
    """Placement by container name, in the kubelet's order."""
    return {name: _placement(placement) for name, placement in placements.items()}


def _placement(placement: Placement) -> JsonObject:
    return {
        "cpus": format_list(placement.cpus),
        "affinity": None if placement.affinity is None else list(iter_bits(placement.affinity)),
        "preferred": placement.preferred,
        "memory": [
            {"numa": list(iter_bits(block.mask)), "type": block.type, "size": block.size} for block in placement.memory
        ],
        "devices": {resource: list(ids) for resource, ids in sorted(placement.devices.items())},
    }


def aligned_placements_to_json(
    placements: Mapping[str, Placement], alignment: PodAlignment | None
) -> dict[str, JsonObject]:
    """As `placements_to_json`, with the alignment of each container and the resources picked at random."""
    spreads = {} if alignment is None else alignment.containers
    return {
        name: {
            **_placement(placement),
            "alignment": spreads.get(name, NOTHING).alignment.value,
            "numa": list(iter_bits(spreads.get(name, NOTHING).numa)),
            "random": sorted(placement.devices_random),
        }
        for name, placement in placements.items()
    }


def alignment_to_json(alignment: PodAlignment | None) -> JsonObject:
    """`alignment`, `alignment_certain` and `numa` of a pod. None: it is not admitted, or the verdict is unknown."""
    if alignment is None:
        return {"alignment": None, "alignment_certain": True, "numa": []}
    return {
        "alignment": alignment.alignment.value,
        "alignment_certain": alignment.certain,
        "numa": list(iter_bits(alignment.numa)),
    }


def explained_to_json(verdict: Verdict, alignment: PodAlignment | None) -> JsonObject:
    """A verdict for people: the same with its certainty.

    A refusal also has who refused which resource, and whether that is permanent. An admitted pod also has its
    *alignment*, and `pod_cpus`: the CPUs of a pod with pod-level resources as a whole.

    `caveats` are assumptions of the verdict, such as that the rules of an older kubelet apply to a newer one. `when` is
    "never" if the node's hardware and configuration exclude the pod, and "now" if resources in use may be the only
    reason. `wanted` and `had` are in units of `resource` (CPUs, bytes, devices), null if the refusal is not about an
    amount. `container` is null if the whole pod was refused at once.
    """
    document: JsonObject = {
        **verdict_to_json(verdict),
        "certainty": verdict.certainty.value,
        "caveats": list(verdict.caveats),
        **alignment_to_json(alignment),
        "pod_cpus": "",
    }
    if isinstance(verdict, Admitted):
        document["pod_cpus"] = format_list(verdict.pod_cpus)
        document["containers"] = aligned_placements_to_json(whole_placements(verdict), alignment)
        document["nri"] = [granted_to_json(placed) for placed in placed_by(verdict)]
        return document
    refused_by: JsonObject = {
        "provider": verdict.provider.value,
        "container": verdict.container,
        "resource": verdict.resource,
        "wanted": wanted_to_json(verdict.wanted),
        "had": verdict.had,
        "when": verdict.when.value,
    }
    return {**document, "refused_by": refused_by}


def wanted_to_json(amount: int | None) -> int | None:
    """The amount. A sum over containers that is larger than the largest amount of Kubernetes becomes that amount."""
    return None if amount is None else min(amount, MOST_UNITS)
