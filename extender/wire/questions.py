"""Questions, and their parts that become replay values: manifests, hypothetical nodes.

Rules of this file
- One declaration of a question is its reader, its schema in the OpenAPI document, and what the command line asks for.
- A question with unknown keys is refused, so that a typo is an error that names it.
- Types are checked here. Whether the parts fit together is checked when a node is built (`questions.hypothetical`).
"""

from typing import Annotated, Any, Final, Literal

from msgspec import Struct

from extender.wire.replies import about

MAX_CHANGED_PODS: Final = 512


class Question(Struct, forbid_unknown_fields=True):
    """Base of request bodies."""


Manifest = dict[str, Any]
"""A Kubernetes object in a question."""

Workload = Annotated[
    Manifest,
    about(
        "A v1.Pod, a KubeVirt VirtualMachine, or an object of any kind that has one pod template, such as a "
        "Deployment, Job or Rollout. Only what admission reads is needed."
    ),
]


class TaintSpec(Question, kw_only=True):
    """One taint of a node."""

    key: Annotated[str, about("The key that a toleration names.")]
    value: Annotated[str, about("May be empty.")] = ""
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], about("`PreferNoSchedule` refuses no pod.")
    ]


class HypotheticalNode(Question, kw_only=True):
    """A hypothetical node. One of `report`, `machine` and `copy_of` is its base.

    The changes apply in the order of the fields below. A running node's pods keep their resources under other topology
    settings. Other changes (another CPU or memory policy, other reserved CPUs) also need `empty`.
    """

    name: Annotated[str | None, about("Its name in the reply. Null: named after its base.")] = None
    report: Annotated[Manifest | None, about("A full NodeReport.")] = None
    machine: Annotated[str | None, about("A machine shape by name, see `GET /v1/machines`.", "epyc-nps4-64")] = None
    copy_of: Annotated[str | None, about("Name of a live node.", "node-a")] = None
    kubelet_version: Annotated[str | None, about("Another kubelet version; null: the base's.", "v1.36.2")] = None
    kubelet: Annotated[
        dict[str, Any],
        about(
            "Fields of KubeletConfiguration that differ from the base's. A map replaces the base's map; "
            "`featureGates` changes only the gates that it names.",
            {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"},
        ),
    ] = {}
    rules: Annotated[
        dict[str, bool],
        about(
            "Behaviours that the kubelet has and its minor has not, or the reverse, by name: "
            "docs/kubernetes-versions.md lists fixes that patch releases may carry. Others stay as the base's.",
            {"distribute_inside_hint": True},
        ),
    ] = {}
    devices: Annotated[
        dict[str, Any] | None,
        about(
            "Devices instead of the base's, by resource: `[{id, numa: [ids] or null, healthy}]`. Null: the base's.",
            {"vendor.example/gpu": [{"id": "gpu-0", "numa": [0]}]},
        ),
    ] = None
    empty: Annotated[bool, about("Remove all pods first.")] = False
    remove_pods: Annotated[
        list[str], about("UIDs, or NAMESPACE/NAME as the node lists them.", max_length=MAX_CHANGED_PODS)
    ] = []
    add_pods: Annotated[
        list[Workload],
        about("Pods to admit one after another. An error if one is refused.", max_length=MAX_CHANGED_PODS),
    ] = []
    labels: Annotated[dict[str, str] | None, about("Null: the base's. For a machine: unknown, so not checked.")] = None
    taints: Annotated[list[TaintSpec] | None, about("Null: the base's, as for `labels`.")] = None
