"""Parts of questions that become replay values: manifests, and hypothetical nodes.

Rules of this file
- A question with unknown keys is refused, so that a typo is an error that names it.
- Types are checked here. Whether the parts fit together is checked when a node is built (`questions.hypothetical`).
"""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from extender.wire.validation import Document, doc

MAX_CHANGED_PODS: Final = 512


class Question(Document):
    """Base of request bodies."""

    model_config = ConfigDict(extra="forbid")


Manifest = dict[str, Any]
"""A Kubernetes object in a question."""

Workload = Annotated[
    Manifest,
    doc(
        "A v1.Pod, a KubeVirt VirtualMachine, or an object of any kind that has one pod template, such as a "
        "Deployment, Job or Rollout. Only what admission reads is needed."
    ),
]


class TaintSpec(Question):
    """One taint of a node."""

    key: Annotated[str, doc("The key that a toleration names.")]
    value: Annotated[str, doc("May be empty.")] = ""
    effect: Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], doc("`PreferNoSchedule` refuses no pod.")]


class HypotheticalNode(Question):
    """A hypothetical node. One of `report`, `machine` and `copy_of` is its base.

    The changes apply in the order of the fields below. A running node's pods keep their resources under other topology
    settings. Other changes (another CPU or memory policy, other reserved CPUs) also need `empty`.
    """

    name: Annotated[str | None, doc("Its name in the reply. Null: named after its base.")] = None
    report: Annotated[Manifest | None, doc("A full NodeReport.")] = None
    machine: Annotated[
        str | None, Field(description="A machine shape by name, see `GET /v1/machines`.", examples=["epyc-nps4-64"])
    ] = None
    copy_of: Annotated[str | None, Field(description="Name of a live node.", examples=["node-a"])] = None
    kubelet_version: Annotated[
        str | None, Field(description="Another kubelet version; null: the base's.", examples=["v1.36.2"])
    ] = None
    kubelet: Annotated[
        dict[str, Any],
        Field(
            description="Fields of KubeletConfiguration that differ from the base's. A map replaces the base's map; "
            "`featureGates` changes only the gates that it names.",
            examples=[{"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}],
        ),
    ] = {}
    rules: Annotated[
        dict[str, bool],
        Field(
            description="Behaviours that the kubelet has and its minor has not, or the reverse, by name: "
            "docs/kubernetes-versions.md lists fixes that patch releases may carry. Others stay as the base's.",
            examples=[{"distribute_inside_hint": True}],
        ),
    ] = {}
    devices: Annotated[
        dict[str, Any] | None,
        Field(
            description="Devices instead of the base's, by resource: `[{id, numa: [ids] or null, healthy}]`. Null: the "
            "base's.",
            examples=[{"vendor.example/gpu": [{"id": "gpu-0", "numa": [0]}]}],
        ),
    ] = None
    empty: Annotated[bool, doc("Remove all pods first.")] = False
    remove_pods: Annotated[
        list[str], Field(description="UIDs, or NAMESPACE/NAME as the node lists them.", max_length=MAX_CHANGED_PODS)
    ] = []
    add_pods: Annotated[
        list[Workload],
        Field(description="Pods to admit one after another. An error if one is refused.", max_length=MAX_CHANGED_PODS),
    ] = []
    labels: Annotated[dict[str, str] | None, doc("Null: the base's. For a machine: unknown, so not checked.")] = None
    taints: Annotated[list[TaintSpec] | None, doc("Null: the base's, as for `labels`.")] = None
