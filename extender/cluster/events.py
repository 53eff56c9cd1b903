"""What happens to the pods of a node between two of its reports; `NodeStore.apply` takes these events.

Events are facts, so applying one never fails, and applying it again changes nothing. `uid` is the UID under which the
kubelet knows the pod. Reports are no events: a report can be outdated, and is then refused.
"""

from dataclasses import dataclass

from extender.replay.pod import Pod


@dataclass(frozen=True, slots=True)
class PodAssumed:
    """This service is about to bind the pod to the node."""

    node_name: str
    pod: Pod


@dataclass(frozen=True, slots=True)
class PodForgotten:
    """The binding failed, or was not sent: the room of the assumed pod is free again."""

    node_name: str
    uid: str


@dataclass(frozen=True, slots=True)
class BindingInDoubt:
    """The binding was sent, and its outcome is not known."""

    node_name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The API server has the pod on the node, and it is not finished.

    `started`: its kubelet has admitted it. `ordered`: events came in the order of the bindings; False for a list.
    """

    node_name: str
    pod: Pod
    started: bool
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class PodRefused:
    """The kubelet has refused the pod, with this status reason."""

    node_name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class ContainerRefused:
    """The NRI topology-aware policy has refused to create a container: the pod stays, and the kubelet tries again."""

    node_name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class PodTerminating:
    """The pod's deletion was requested: it can be gone at any time."""

    node_name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodFinished:
    """The API server has the pod as finished; the kubelet may count it a little longer."""

    node_name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod no longer exists, or its kubelet counts it no more."""

    node_name: str
    uid: str


PodEvent = (
    PodAssumed
    | PodForgotten
    | BindingInDoubt
    | PodSeen
    | PodRefused
    | ContainerRefused
    | PodTerminating
    | PodFinished
    | PodGone
)
