"""What the models of people's questions and answers have in common.

Rules of the `*_models` files
- Every field says its unit, what empty or null means, and what bounds it.
- Questions (`wire.questions.Question`) refuse unknown keys, so that a typo is an error that names it. Answers may grow.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from extender.replay.verdict import Provider


class Answer(BaseModel):
    """Base of replies."""

    model_config = ConfigDict(frozen=True)


CPUList = Annotated[str, Field(description="CPU ids as a Linux list, such as `0-3,8`.", examples=["8-9,24-25"])]
NUMAIds = Annotated[list[int], Field(description="NUMA node ids, ascending.", examples=[[0, 1]])]


AlignmentName = Annotated[
    Literal["aligned", "split", "not-managed"],
    Field(
        description="Where the exclusive CPUs, the pinned memory and the devices are. `aligned`: on one NUMA node, for "
        "each container or, under scope `pod`, for the pod as a whole. `split`: admitted, but over several NUMA nodes. "
        "`not-managed`: admitted, and no manager of the kubelet places anything of it on NUMA nodes."
    ),
]
AlignmentCertain = Annotated[
    bool,
    Field(
        description="False: another outcome is possible, because the kubelet picks devices at random or because pods "
        "come and go. `alignment` is then `split` if any outcome is."
    ),
]
AlignedNUMA = Annotated[
    list[int],
    Field(
        description="NUMA nodes of the CPUs, memory and devices; empty: none. Not the kubelet's hint.", examples=[[0]]
    ),
]


class MemoryBlock(Answer):
    """Memory pinned for one container."""

    numa: NUMAIds
    type: Annotated[str, Field(description="`memory` or `hugepages-SIZE`.", examples=["memory"])]
    size: Annotated[int, Field(description="Bytes in all.", examples=[1 << 30])]


class ContainerPlacement(Answer):
    """Where one container lands."""

    cpus: Annotated[str, Field(description="Exclusive CPUs as a Linux list; empty: it runs in the shared pool.")]
    affinity: Annotated[
        list[int] | None,
        Field(
            description="The hint that the Topology Manager stored; null: any. Where the container lands is `numa`.",
            examples=[[1]],
        ),
    ]
    preferred: Annotated[bool, Field(description="Whether it got as few NUMA nodes as the hardware makes possible.")]
    memory: Annotated[list[MemoryBlock], Field(description="Pinned to NUMA nodes; empty: not.")]
    devices: Annotated[dict[str, list[str]], Field(description="Device ids by resource.")]
    alignment: AlignmentName
    numa: AlignedNUMA
    random: Annotated[
        list[str],
        Field(description="Resources of which the kubelet picks at random: the ids are one of several possible picks."),
    ]


class RefusedBy(Answer):
    """Who refused, and what was missing."""

    provider: Annotated[
        Provider, Field(description="The manager that refused; `topology`: the merge of what all offered.")
    ]
    container: Annotated[str | None, Field(description="Null: the pod as a whole.")]
    resource: Annotated[str | None, Field(description="Null: not about one resource.")]
    wanted: Annotated[int | None, Field(description="CPUs, bytes or devices; null: not about an amount.")]
    had: Annotated[int | None, Field(description="CPUs, bytes or devices; null: not about an amount.")]
    when: Annotated[
        Literal["now", "never"],
        Field(description="`never`: hardware and configuration rule it out, whatever is free."),
    ]


class Verdict(Answer):
    """What the node's kubelet would answer."""

    admit: Annotated[bool, Field(description="Whether the managers take the pod.")]
    reason: Annotated[str, Field(description="The pod status reason; empty if admitted.")]
    message: Annotated[str, Field(description="The kubelet's own words; empty if admitted.")]
    containers: Annotated[dict[str, ContainerPlacement], Field(description="By name; empty if refused.")]
    certainty: Annotated[
        str,
        Field(
            description="`exact`; `possible`: the kubelet's random choice among devices decides; `assumed`: the "
            "kubelet is newer than the newest known."
        ),
    ]
    alignment: Annotated[AlignmentName | None, Field(description="Null: refused.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    pod_cpus: Annotated[
        str,
        Field(
            description="Exclusive CPUs of a pod with pod-level resources as a whole, as a Linux list; its containers "
            "share them. Empty: it has none."
        ),
    ]
    caveats: Annotated[list[str], Field(description="What the verdict takes for granted.")]
    refused_by: Annotated[RefusedBy | None, Field(description="Only of a refusal.")] = None
