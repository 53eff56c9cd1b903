"""The bodies of POST /v1/advice/NAME."""

from typing import Annotated, Any

from pydantic import Field

from extender.answers.requests import MAX_PLANNED_PODS, PlannedWorkload
from extender.wire.questions import Question, Workload
from extender.wire.validation import doc

MAX_NODES = 20_000
LiveNodes = Annotated[
    list[str] | None, Field(description="Live nodes by name. Null: all of them.", max_length=MAX_NODES)
]


class ResizeCheckRequest(Question):
    """Other amounts for one container of a running pod."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME or UID of a pod on a node.", examples=["demo/worker-0"])]
    container: Annotated[str, doc("Name of a container. May be empty if the pod has only one that runs for long.")] = ""
    cpu: Annotated[str | None, Field(description="New CPU request, a quantity; null: unchanged.", examples=["8"])] = (
        None
    )
    memory: Annotated[str | None, doc("New memory request, a quantity; null: unchanged.")] = None


class RestartCheckRequest(Question):
    """Nodes whose kubelets restart, with what is different afterwards."""

    nodes: LiveNodes = None
    kubelet_version: Annotated[
        str | None, Field(description="Version after the restart; null: the same.", examples=["v1.37.0"])
    ] = None
    kubelet: Annotated[
        dict[str, Any],
        Field(
            description="Fields of KubeletConfiguration that change; see `HypotheticalNode.kubelet`.",
            examples=[{"topologyManagerPolicy": "restricted"}],
        ),
    ] = {}
    rules: Annotated[dict[str, bool], doc("Rules that change; see `HypotheticalNode.rules`.")] = {}
    reboot: Annotated[bool, doc("The machine restarts, so no container runs when the kubelet does.")] = False


class MakeRoomRequest(Question):
    """A pod that finds no aligned place."""

    pod: Workload
    nodes: Annotated[
        list[str] | None, Field(description="Nodes that may get the pod. Null: all of them.", max_length=MAX_NODES)
    ] = None
    priority: Annotated[
        int | None, doc("No pod of a higher priority is evicted. Null: `spec.priority` of the pod, or 0.")
    ] = None
    max_evictions: Annotated[int, Field(ge=1, le=8, description="Largest number of evictions in one plan.")] = 4


class DefragmentRequest(Question):
    """A pod whose aligned copies are counted."""

    pod: Workload
    nodes: LiveNodes = None
    priority: Annotated[int, doc("No pod of a higher priority is moved.")] = 0
    max_moves: Annotated[int, Field(ge=1, le=64, description="Largest number of moves.")] = 10


class RightsizeRequest(Question):
    """Nodes whose pods are examined."""

    nodes: LiveNodes = None
    limit: Annotated[int, Field(ge=1, le=1000, description="Number of suggestions to list.")] = 20


class TuneRequest(Question):
    """Pods and nodes for which kubelet configurations are compared."""

    pods: Annotated[
        list[PlannedWorkload],
        Field(description="Pods to replay. Empty: the pods of each node.", max_length=MAX_PLANNED_PODS),
    ] = []
    nodes: LiveNodes = None
    seed: Annotated[int, Field(ge=0, lt=1 << 32, description="Seed of the search and of the orders of arrival.")] = 1
    configurations: Annotated[int, Field(ge=2, le=200, description="Number of configurations to try.")] = 32
