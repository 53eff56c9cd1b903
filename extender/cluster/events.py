"""The events of a node's pods between two of its reports, and the result of the admission of each pod.

`NodeStore.apply` applies events. They are facts: applying one never fails, and applying it again changes nothing. `uid`
is the pod's UID in the kubelet. Reports are not events: an outdated report is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from extender.cluster.steps import held_by
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Verdict
from extender.replay.pod import Pod


@dataclass(frozen=True, slots=True)
class _EventOfPod:
    """What happened to a pod; `uid` is all that is needed."""

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
    """The mirror pod no longer exists. The static pod may still run."""


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


class AdmissionResult(StrEnum):
    """The result of the admission of a pod in flight."""

    ADMITTED = "admitted"
    """A report shows resources allocated to the pod."""
    REFUSED = "refused"
    """The kubelet refused the pod."""
    LEFT = "left"
    """The pod was gone before a report showed it."""
    LOST = "lost"
    """The pod was assumed and the watch has never shown it, or its kubelet never started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledPod:
    """One pod whose admission is over.

    `verdicts`: each outcome that the replay predicted. `complete`: False if there were more, or if another pod ended
    and the report was the first to show it. `state`: the reported one, for ADMITTED; `reason`: the kubelet's, for
    REFUSED. `is_ours`: as `ledger.Admit`. `predict_again`: the prediction with another kubelet: the verdicts, and
    whether they are complete; None: unknown. Pure, and takes as long as a projection.
    """

    node_name: str
    pod: Pod
    kubelet: Kubelet
    result: AdmissionResult
    verdicts: tuple[Verdict, ...]
    complete: bool = True
    state: ManagerState | None = None
    reason: str = ""
    is_ours: bool = False
    predict_again: Callable[[Kubelet], tuple[tuple[Verdict, ...], bool]] | None = None

    @property
    def reported(self) -> Mapping[str, object]:
        """What the report shows of the pod, as `steps.held_by`; empty if there is no report."""
        return {} if self.state is None else held_by(self.state, self.pod.uid)


def ignore(_settled: SettledPod) -> None:
    """For stores whose predictions are not audited."""


class Watching(Enum):
    """What is known of pods on nodes in addition to reports."""

    NOT = "not"
    """There is no watch of pods: only what this service binds is known."""
    LIVE = "live"
    """Every pod in the API server is known."""
    SILENT = "silent"
    """The watch is silent: pods may have started or ended."""
