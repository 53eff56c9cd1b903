"""Parts that the models of questions and answers share.

Rules of the `*_models` files
- Every field states its unit, its limits, and what empty or null means.
- Questions (`wire.questions.Question`) refuse unknown keys, so that a typo is an error that names it. Answers may get
  new fields.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from extender.kubelet.verdict import Provider
from extender.wire.validation import doc


class Answer(BaseModel):
    """Base of replies."""

    model_config = ConfigDict(frozen=True)


CPUList = Annotated[str, Field(description="CPU ids as a Linux list, such as `0-3,8`.", examples=["8-9,24-25"])]
NUMAIds = Annotated[list[int], Field(description="NUMA node ids, ascending.", examples=[[0, 1]])]


AlignmentName = Annotated[
    Literal["aligned", "split", "not-managed"],
    doc(
        "Where the exclusive CPUs, the pinned memory and the devices are. `aligned`: on one NUMA node, for each "
        "container or, under scope `pod`, for the pod as a whole. `split`: admitted, but over several NUMA nodes. "
        "`not-managed`: admitted, and no manager of the kubelet assigns NUMA nodes to any part of it."
    ),
]
AlignmentCertain = Annotated[
    bool,
    doc(
        "False: another outcome is possible, because the kubelet picks devices at random or because pods start and "
        "end. `alignment` is then `split` if it is so in any outcome."
    ),
]
AlignedNUMA = Annotated[
    list[int],
    Field(
        description="NUMA nodes of the CPUs, memory and devices; empty: none. Not the kubelet's hint.", examples=[[0]]
    ),
]


class MemoryBlock(Answer):
    """Memory that is pinned for one container."""

    numa: NUMAIds
    type: Annotated[str, Field(description="`memory` or `hugepages-SIZE`.", examples=["memory"])]
    size: Annotated[int, Field(description="Total, in bytes.", examples=[1 << 30])]


class ContainerPlacement(Answer):
    """The placement of one container."""

    cpus: Annotated[str, doc("Exclusive CPUs as a Linux list. Empty: it runs in the shared pool.")]
    affinity: Annotated[
        list[int] | None,
        Field(
            description="The hint that the Topology Manager stored. Null: any NUMA node. See `numa` for the placement.",
            examples=[[1]],
        ),
    ]
    preferred: Annotated[bool, doc("Whether it has as few NUMA nodes as the hardware allows.")]
    memory: Annotated[list[MemoryBlock], doc("Memory pinned to NUMA nodes. Empty: none.")]
    devices: Annotated[dict[str, list[str]], doc("Device ids by resource.")]
    alignment: AlignmentName
    numa: AlignedNUMA
    random: Annotated[
        list[str], doc("Resources of which the kubelet picks devices at random: `devices` has one of several picks.")
    ]


class RefusedBy(Answer):
    """The manager that refused, and what was missing."""

    provider: Annotated[Provider, doc("The manager that refused. `topology`: the merge of hints.")]
    container: Annotated[str | None, doc("Null: the pod as a whole.")]
    resource: Annotated[str | None, doc("Null: no single resource.")]
    wanted: Annotated[int | None, doc("CPUs, bytes or devices. Null: it is not about an amount.")]
    had: Annotated[int | None, doc("CPUs, bytes or devices. Null: it is not about an amount.")]
    when: Annotated[
        Literal["now", "never"], doc("`never`: the hardware and the configuration exclude it, whatever is free.")
    ]


class PolicyPlacement(Answer):
    """A container as the NRI topology-aware policy of the node would place it."""

    container: Annotated[str, doc("Its name.")]
    pool: Annotated[str, Field(description="The pool of CPUs.", examples=["NUMA node #1"])]
    cpus: Annotated[str, doc("Exclusive CPUs as a Linux list.")]
    shared_millicpu: Annotated[int, doc("What it takes of the pool's shared or reserved CPUs.")]
    cpuset: Annotated[
        str | None,
        doc(
            "The CPUs on which it may run, as a Linux list: exclusive ones, shared ones of the pool, one thread a core "
            "with `hide-hyperthreads`. Null: not pinned (`pinCPU` off, or no shared CPU is left)."
        ),
    ]
    memory_numa: Annotated[list[int], doc("The NUMA nodes of its memory.")]
    memory_bytes: Annotated[int, doc("Memory that the policy reserves for it.")]
    widens: Annotated[int, doc("Other containers whose memory is spread over more NUMA nodes for it.")]


class Verdict(Answer):
    """The answer of the node's kubelet."""

    admit: Annotated[bool, doc("Whether the managers admit the pod.")]
    reason: Annotated[str, doc("The pod status reason; empty if admitted.")]
    message: Annotated[str, doc("The kubelet's message; empty if admitted.")]
    containers: Annotated[dict[str, ContainerPlacement], doc("By name; empty if refused.")]
    certainty: Annotated[
        str,
        doc(
            "`exact`; `possible`: it depends on the kubelet's random choice of devices; `assumed`: the kubelet is "
            "newer than the newest known."
        ),
    ]
    alignment: Annotated[AlignmentName | None, doc("Null: refused.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    pod_cpus: Annotated[
        str,
        doc(
            "For a pod with pod-level resources: the exclusive CPUs that its containers share, as a Linux list. Empty: "
            "it has none."
        ),
    ]
    nri: Annotated[
        list[PolicyPlacement],
        doc("Where the NRI topology-aware policy puts the containers, in the order of their creation."),
    ] = []
    caveats: Annotated[list[str], doc("Assumptions of the verdict.")]
    refused_by: Annotated[RefusedBy | None, doc("Null if the pod is admitted.")] = None
