"""Verdicts as JSON, for `replay`, explanations and what-if.

Rules of this file
- One form everywhere: `admit`, `reason`, `message` and, for an admitted pod, `containers`.
- Sets have their usual form: CPUs as a Linux list ("0-3,8"), NUMA nodes as ascending lists of ids.
- `affinity` null is "any NUMA node"; `cpus` "" is "the shared pool".
- `affinity` is the hint that the kubelet stored. `numa` says where the resources are, see `replay.alignment`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import UNSET, UnsetType, to_builtins
from msgspec.structs import asdict

from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.state import Block
from extender.kubelet.verdict import Admitted, Certainty, Placement, Provider, Rejected, When
from extender.kubelet.verdict import Verdict as KubeletVerdict
from extender.nri.admission import PlacedContainer
from extender.replay.alignment import NOTHING, Alignment, PodAlignment
from extender.replay.creation import placed_by, whole_placements
from extender.wire.parsing import MOST_UNITS
from extender.wire.replies import NUMAIds, ReplyBody, about

AlignmentName = Annotated[
    Alignment,
    about(
        "Where the exclusive CPUs, the pinned memory and the devices are. `aligned`: on one NUMA node, for each "
        "container or, under scope `pod`, for the pod as a whole. `split`: admitted, but over several NUMA nodes. "
        "`not-managed`: admitted, and no manager of the kubelet assigns NUMA nodes to any part of it."
    ),
]
AlignmentCertain = Annotated[
    bool,
    about(
        "False: another outcome is possible, because the kubelet picks devices at random or because pods start and "
        "end. `alignment` is then `split` if it is so in any outcome."
    ),
]
AlignedNUMA = Annotated[
    list[int], about("NUMA nodes of the CPUs, memory and devices; empty: none. Not the kubelet's hint.", [0])
]


class MemoryBlock(ReplyBody):
    """Memory that is pinned for one container."""

    numa: NUMAIds
    type: Annotated[str, about("`memory` or `hugepages-SIZE`.", "memory")]
    size: Annotated[int, about("Total, in bytes.", 1 << 30)]


class HeldResources(ReplyBody):
    """What the managers give one container."""

    cpus: Annotated[str, about("Exclusive CPUs as a Linux list. Empty: it runs in the shared pool.")]
    affinity: Annotated[
        list[int] | None,
        about("The hint that the Topology Manager stored. Null: any NUMA node. See `numa` for the placement.", [1]),
    ]
    preferred: Annotated[bool, about("Whether it has as few NUMA nodes as the hardware allows.")]
    memory: Annotated[list[MemoryBlock], about("Memory pinned to NUMA nodes. Empty: none.")]
    devices: Annotated[dict[str, list[str]], about("Device ids by resource.")]


class ContainerPlacement(HeldResources):
    """The placement of one container."""

    alignment: AlignmentName
    numa: AlignedNUMA
    random: Annotated[
        list[str], about("Resources of which the kubelet picks devices at random: `devices` has one of several picks.")
    ]


class RefusedBy(ReplyBody):
    """The manager that refused, and what was missing."""

    provider: Annotated[Provider, about("The manager that refused. `topology`: the merge of hints.")]
    container: Annotated[str | None, about("Null: the pod as a whole.")]
    resource: Annotated[str | None, about("Null: no single resource.")]
    wanted: Annotated[int | None, about("CPUs, bytes or devices. Null: it is not about an amount.")]
    had: Annotated[int | None, about("CPUs, bytes or devices. Null: it is not about an amount.")]
    when: Annotated[When, about("`never`: the hardware and the configuration exclude it, whatever is free.")]


class PolicyPlacement(ReplyBody):
    """A container as the NRI topology-aware policy of the node would place it."""

    container: Annotated[str, about("Its name.")]
    pool: Annotated[str, about("The pool of CPUs.", "NUMA node #1")]
    cpus: Annotated[str, about("Exclusive CPUs as a Linux list.")]
    shared_millicpu: Annotated[int, about("What it takes of the pool's shared or reserved CPUs.")]
    cpuset: Annotated[
        str | None,
        about(
            "The CPUs on which it may run, as a Linux list: exclusive ones, shared ones of the pool, one thread a core "
            "with `hide-hyperthreads`. Null: not pinned (`pinCPU` off, or no shared CPU is left)."
        ),
    ]
    memory_numa: Annotated[list[int], about("The NUMA nodes of its memory.")]
    memory_bytes: Annotated[int, about("Memory that the policy reserves for it.")]
    widens: Annotated[int, about("Other containers whose memory would move to more NUMA nodes.")]


PolicyPlacements = Annotated[
    list[PolicyPlacement],
    about("Where the NRI topology-aware policy puts the containers, in the order of their creation."),
]


class Verdict(ReplyBody):
    """The answer of the node's kubelet."""

    admit: Annotated[bool, about("Whether the managers admit the pod.")]
    reason: Annotated[str, about("The pod status reason; empty if admitted.")]
    message: Annotated[str, about("The kubelet's message; empty if admitted.")]
    containers: Annotated[dict[str, ContainerPlacement], about("By name; empty if refused.")]
    certainty: Annotated[
        Certainty,
        about(
            "`exact`; `possible`: it depends on the kubelet's random choice of devices; `assumed`: the kubelet is "
            "newer than the newest known."
        ),
    ]
    alignment: Annotated[AlignmentName | None, about("Null: refused.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    pod_cpus: Annotated[
        str,
        about(
            "For a pod with pod-level resources: the exclusive CPUs that its containers share, as a Linux list. Empty: "
            "it has none."
        ),
    ]
    caveats: Annotated[list[str], about("Assumptions of the verdict.")]
    nri: PolicyPlacements | UnsetType = UNSET
    refused_by: Annotated[RefusedBy | UnsetType, about("Only if the pod is refused.")] = UNSET


def verdict_to_json(verdict: KubeletVerdict) -> dict[str, object]:
    """The kubelet's answer, in the form of `expect` in scenario files, and of `numa-extender replay`."""
    if isinstance(verdict, Rejected):
        return {"admit": False, "reason": verdict.reason.value, "message": verdict.message, "containers": {}}
    containers = {name: _held(placement) for name, placement in verdict.placements.items()}
    return {"admit": True, "reason": "", "message": "", "containers": to_builtins(containers)}


def placed_by_policy(placed: Iterable[PlacedContainer]) -> list[PolicyPlacement]:
    """The containers as the NRI topology-aware policy places them."""
    return [
        PolicyPlacement(
            container=each.name,
            pool=each.pool,
            cpus=format_list(each.grant.exclusive),
            shared_millicpu=each.grant.portion,
            cpuset=format_list(each.pins.cpus) if each.pins.cpus else None,
            memory_numa=list(iter_bits(each.grant.memory_nodes)),
            memory_bytes=each.grant.memory_bytes,
            widens=len(each.widened),
        )
        for each in placed
    ]


def memory_blocks(blocks: Iterable[Block]) -> list[MemoryBlock]:
    """Pinned memory, block by block."""
    return [MemoryBlock(numa=list(iter_bits(each.mask)), type=each.type, size=each.size) for each in blocks]


def _held(placement: Placement) -> HeldResources:
    return HeldResources(
        cpus=format_list(placement.cpus),
        affinity=None if placement.affinity is None else list(iter_bits(placement.affinity)),
        preferred=placement.preferred,
        memory=memory_blocks(placement.memory),
        devices={resource: list(ids) for resource, ids in sorted(placement.devices.items())},
    )


def container_placements(
    placements: Mapping[str, Placement], alignment: PodAlignment | None
) -> dict[str, ContainerPlacement]:
    """The placement of each container by name, in the kubelet's order. *alignment*: the pod's."""
    spreads = {} if alignment is None else alignment.containers
    return {
        name: ContainerPlacement(
            **asdict(_held(placement)),
            alignment=spreads.get(name, NOTHING).alignment,
            numa=list(iter_bits(spreads.get(name, NOTHING).numa)),
            random=sorted(placement.devices_random),
        )
        for name, placement in placements.items()
    }


def alignment_fields(alignment: PodAlignment | None) -> dict[str, Any]:
    """The fields of a reply that say how a pod is aligned. None: it is not admitted, or the verdict is unknown."""
    if alignment is None:
        return {"alignment": None, "alignment_certain": True, "numa": []}
    numa = list(iter_bits(alignment.numa))
    return {"alignment": alignment.alignment, "alignment_certain": alignment.certain, "numa": numa}


def alignment_counts(counts: Mapping[Alignment, int]) -> dict[str, int]:
    """The fields of a reply for pods or nodes by alignment."""
    return {alignment.value.replace("-", "_"): counts.get(alignment, 0) for alignment in Alignment}


def explained(verdict: KubeletVerdict, alignment: PodAlignment | None) -> Verdict:
    """A verdict for people. *alignment*: of an admitted pod."""
    common = {"certainty": verdict.certainty, "caveats": list(verdict.caveats), **alignment_fields(alignment)}
    if isinstance(verdict, Admitted):
        return Verdict(
            admit=True,
            reason="",
            message="",
            containers=container_placements(whole_placements(verdict), alignment),
            pod_cpus=format_list(verdict.pod_cpus),
            nri=placed_by_policy(placed_by(verdict)),
            **common,
        )
    return Verdict(
        admit=False,
        reason=verdict.reason.value,
        message=verdict.message,
        containers={},
        pod_cpus="",
        refused_by=RefusedBy.filled(verdict, wanted=shown_amount(verdict.wanted)),
        **common,
    )


def shown_amount(amount: int | None) -> int | None:
    """The amount. A sum over containers that is larger than the largest amount of Kubernetes becomes that amount."""
    return None if amount is None else min(amount, MOST_UNITS)
