"""Questions, and their parts that become replay values: manifests, hypothetical nodes.

Rules of this file
- One declaration of a question is its reader, its schema in the OpenAPI document, and what the command line asks for.
- A question with unknown keys is refused, so that a typo is an error that names it.
- Types are checked here. Whether the parts fit together is checked when a node is built (`questions.hypothetical`).
"""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

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


MAX_NODES: Final = 20_000
MAX_HYPOTHETICAL: Final = 64
Names = Annotated[list[str], Meta(max_length=MAX_NODES)]
LiveNodes = Annotated[Names | None, about("Live nodes by name. Null: all of them.")]
NodeNames = Annotated[
    Names | None, about("Live nodes by name. Null: all of them, unless `hypothetical` nodes are given. Empty: none.")
]
HypotheticalNodes = Annotated[
    list[HypotheticalNode], about("Hypothetical nodes to use as well.", max_length=MAX_HYPOTHETICAL)
]


class WhatIfRequest(Question):
    """A pod, and the nodes to check."""

    pod: Workload
    nodes: NodeNames = None
    hypothetical: HypotheticalNodes = []
    explain: Annotated[bool, about("Explain each verdict, and search for the nearest requests that fit.")] = False


MAX_MIX: Final = 64
MAX_COPIES: Final = 10_000
MAX_PLANNED_PODS: Final = 10_000


class CapacityRequest(Question):
    """How many pods fit: copies of one pod, or of a mix of pods taken in turn."""

    pods: Annotated[list[Workload], about("One pod, or a mix of pods taken in turn.", min_length=1, max_length=MAX_MIX)]
    nodes: NodeNames = None
    hypothetical: HypotheticalNodes = []
    max_copies: Annotated[int, about("Stop counting on a node at this many pods.", ge=1, le=MAX_COPIES)] = 1000
    group: Annotated[
        int, about("Pods that must run together: the answer counts whole groups of so many.", ge=1, le=MAX_COPIES)
    ] = 1


class PlannedWorkload(Question):
    """Pods of one template in a plan."""

    pod: Workload
    copies: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_PLANNED_PODS)] | None, about("Null: the number of replicas in the document.")
    ] = None


class PlanRequest(Question):
    """Pods in the order of their creation."""

    pods: Annotated[
        list[PlannedWorkload], about("In the order of their creation.", min_length=1, max_length=MAX_PLANNED_PODS)
    ]
    nodes: NodeNames = None
    hypothetical: HypotheticalNodes = []
    all_or_nothing: Annotated[
        bool, about("If one pod fits on no node, none is placed: no line has a node, and `held_back` counts them.")
    ] = False


class ResizeCheckRequest(Question):
    """Other amounts for one container of a running pod."""

    pod: Annotated[str, about("NAMESPACE/NAME or UID of a pod on a node.", "demo/worker-0")]
    container: Annotated[
        str, about("Name of a container. May be empty if the pod has only one that runs for long.")
    ] = ""
    cpu: Annotated[str | None, about("New CPU request, a quantity; null: unchanged.", "8")] = None
    memory: Annotated[str | None, about("New memory request, a quantity; null: unchanged.")] = None


class RestartCheckRequest(Question):
    """Nodes whose kubelets restart, with what is different afterwards."""

    nodes: LiveNodes = None
    kubelet_version: Annotated[str | None, about("Version after the restart; null: the same.", "v1.37.0")] = None
    kubelet: Annotated[
        dict[str, Any],
        about(
            "Fields of KubeletConfiguration that change; see `HypotheticalNode.kubelet`.",
            {"topologyManagerPolicy": "restricted"},
        ),
    ] = {}
    rules: Annotated[dict[str, bool], about("Rules that change; see `HypotheticalNode.rules`.")] = {}
    reboot: Annotated[bool, about("The machine restarts, so no container runs when the kubelet does.")] = False


MovableNamespaces = Annotated[Names | None, about("Only pods of these namespaces are evicted. Null: of all.")]


class MakeRoomRequest(Question):
    """A pod that finds no aligned place."""

    pod: Workload
    nodes: Annotated[Names | None, about("Nodes that may get the pod. Null: all of them.")] = None
    priority: Annotated[
        int | None, about("No pod of a higher priority is evicted. Null: `spec.priority` of the pod, or 0.")
    ] = None
    max_evictions: Annotated[int, about("Largest number of evictions in one plan.", ge=1, le=8)] = 4
    namespaces: MovableNamespaces = None


class DefragmentRequest(Question):
    """A pod whose aligned copies are counted."""

    pod: Workload
    nodes: LiveNodes = None
    priority: Annotated[int, about("No pod of a higher priority is moved.")] = 0
    max_moves: Annotated[int, about("Largest number of moves.", ge=1, le=64)] = 10
    namespaces: MovableNamespaces = None


class TuneRequest(Question):
    """Pods and nodes for which kubelet configurations are compared."""

    pods: Annotated[
        list[PlannedWorkload], about("Pods to replay. Empty: the pods of each node.", max_length=MAX_PLANNED_PODS)
    ] = []
    nodes: LiveNodes = None
    seed: Annotated[int, about("Seed of the search and of the orders of arrival.", ge=0, lt=1 << 32)] = 1
    configurations: Annotated[int, about("Number of configurations to try.", ge=2, le=200)] = 32


class RightsizeRequest(Question):
    """Nodes whose pods are examined."""

    nodes: LiveNodes = None
    limit: Annotated[int, about("Number of suggestions to list.", ge=1, le=1000)] = 20
