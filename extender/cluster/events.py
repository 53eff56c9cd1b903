"""The events of a node's pods between two of its reports. `NodeStore.apply` applies them.

Events are facts: applying one never fails, and applying it again changes nothing. `uid` is the pod's UID in the
kubelet. Reports are not events: an outdated report is refused.
"""

from dataclasses import dataclass

from extender.replay.pod import Pod


@dataclass(frozen=True, slots=True)
class _EventOfPod:
    """What happened to a pod that only its UID is needed of."""

    node_name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PodAssumed:
    """This service is about to bind the pod to the node."""

    node_name: str
    pod: Pod


class PodForgotten(_EventOfPod):
    """The binding failed or was not sent: the resources of the assumed pod are free again."""


class BindingInDoubt(_EventOfPod):
    """The binding was sent, and its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """The API server has the pod on the node, and it is not finished.

    `started`: its kubelet has admitted it. `ordered`: the events arrived in the order of the bindings; False for a
    list. `offered`: a filter call of this service has offered nodes for it before.
    """

    node_name: str
    pod: Pod
    started: bool
    ordered: bool = True
    offered: bool = False


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """The API server has a pod that says that it is the mirror of a static pod. Reports show whether it is true."""

    node_name: str
    pod: Pod


class MirrorGone(_EventOfPod):
    """It no longer exists. The static pod may still run."""


class PodUnread(_EventOfPod):
    """The API server has the pod on the node, and what it requests cannot be read."""


@dataclass(frozen=True, slots=True)
class PodRefused(_EventOfPod):
    """The kubelet has refused the pod, with this status reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class ContainerRefused(_EventOfPod):
    """The NRI topology-aware policy has refused to create a container: the pod stays, and the kubelet tries again."""

    reason: str


class PodTerminating(_EventOfPod):
    """The pod's deletion was requested: it can be gone at any time."""


class PodFinished(_EventOfPod):
    """The pod is finished in the API server. The kubelet may still count it for a short time."""


class PodGone(_EventOfPod):
    """The pod no longer exists, or its kubelet no longer counts it."""


PodEvent = (
    PodAssumed
    | PodForgotten
    | BindingInDoubt
    | PodSeen
    | MirrorSeen
    | MirrorGone
    | PodUnread
    | PodRefused
    | ContainerRefused
    | PodTerminating
    | PodFinished
    | PodGone
)
