"""The events of a node's pods between two of its reports. `NodeStore.apply` applies them.

Events are facts: applying one never fails, and applying it again changes nothing. `uid` is the pod's UID in the
kubelet. Reports are not events: an outdated report is refused.
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
    """The binding failed or was not sent: the resources of the assumed pod are free again."""

    node_name: str
    uid: str


@dataclass(frozen=True, slots=True)
class BindingInDoubt:
    """The binding was sent, and its outcome is unknown."""

    node_name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The API server has the pod on the node, and it is not finished.

    `started`: its kubelet has admitted it. `ordered`: the events arrived in the order of the bindings; False for a
    list.
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
    """The pod is finished in the API server. The kubelet may still count it for a short time."""

    node_name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod no longer exists, or its kubelet no longer counts it."""

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
