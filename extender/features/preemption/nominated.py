"""Nodes that kube-scheduler has nominated pods to (`status.nominatedNodeName`), usually after a preemption.

The API server selects them for the watch (`pkg/registry/core/pod/strategy.go` ToSelectableFields), so that other
pending pods are never sent. A pod that is bound, deleted or no longer nominated is delivered as gone.

RBAC: `list`, `watch` on pods (all namespaces).

Rules of this file
- The judge is the one of filter; it judges states in which leaving pods are gone.
- A pod waits for its nominated node only if that node is certain to admit the pod once the leaving pods are gone.
- A nominated pod's room is kept from pods of lower priority, and from those of equal priority that were nominated later
  or not at all; but only if the node would admit the nominated pod.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from extender.cluster.node_class import HYPOTHETICAL, NodeClass
from extender.cluster.pods import PodRegistry
from extender.kube.changes import Batch, Gone
from extender.kube.objects import integer, mapping, text
from extender.kube.source import Source
from extender.kubelet.admission import is_indifferent
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.replay.pod import Pod
from extender.replay.possible_states import PossibleStates, admit_in_all
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import PodShape
from extender.wire.pods import pod_from_json

States = tuple[ManagerState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NominatedNode:
    """A node with nominated pods: the states that are `possible` now, and the pods that are `leaving` it."""

    node_class: NodeClass
    possible: PossibleStates
    leaving: Collection[str]

    @property
    def states_without_leaving(self) -> States:
        """The states once the leaving pods are gone, each once."""
        return self.possible.release(self.leaving).states


def only_waits_for_leaving(judge: Judge, shape: PodShape, node: NominatedNode) -> bool:
    """Whether pods are leaving the node, and the node admits the pod in every state without them."""
    return bool(node.leaving) and _admits(judge, shape, node.node_class, node.states_without_leaving)


def takes_nominated_room(judge: Judge, shape: PodShape, nominated: Iterable[PodShape], node: NominatedNode) -> bool:
    """Whether one of the *nominated* pods would be admitted without the pod, and would be refused after it."""
    states = node.states_without_leaving
    kubelet = node.node_class.kubelet
    if kubelet is None or not states or is_indifferent(kubelet, shape.request(kubelet.rules)):
        return False
    if not _admits(judge, shape, node.node_class, states):
        return False
    after = admitted_states(node.node_class, states, shape)
    return any(
        _admits(judge, each, node.node_class, states) and not _admits(judge, each, node.node_class, after)
        for each in nominated
    )


def admitted_states(node_class: NodeClass, states: States, shape: PodShape) -> States:
    """The states after the pod's admission; states that refuse it stay as they are."""
    kubelet = node_class.kubelet
    if kubelet is None or not states:
        return states
    request = shape.request(kubelet.rules)
    after = [
        outcome.state if isinstance(outcome.verdict, Admitted) else state
        for state in states
        for outcome in admit_in_all(kubelet, (state,), request, max_replays=1)
    ]
    return tuple({state.key: state for state in after}.values())


def _admits(judge: Judge, shape: PodShape, node_class: NodeClass, states: Sequence[ManagerState]) -> bool:
    if not states:
        return False
    then = replace(node_class, id=HYPOTHETICAL, pools=None, possible=PossibleStates(tuple(states)))
    judgement = judge(shape, then)
    return judgement.refusal is None and judgement.trouble is None


@dataclass(frozen=True, slots=True, kw_only=True)
class NominatedPod:
    """One unbound pod and the node that it is nominated to."""

    pod: Pod
    priority: int
    node_name: str


def apply_nominated(pods: PodRegistry, batch: Batch[NominatedPod], now: float) -> None:
    """Apply changes from the watch to the registry, which ignores pods that are bound."""
    for change in batch.changes:
        value = change.value
        if isinstance(change, Gone):
            pods.clear_nomination(value.pod.uid, now)
        else:
            pods.nominate(value.pod, value.priority, value.node_name, now)


def decode_nominated(value: Mapping[str, Any]) -> tuple[str, NominatedPod] | None:
    """The pod's UID and the pod. None if it is bound, or has no nominated node or UID. Raises WireError."""
    spec, node_name = mapping(value, "spec"), text(mapping(value, "status"), "nominatedNodeName")
    if not node_name or text(spec, "nodeName"):
        return None
    pod = pod_from_json(value)
    if not pod.uid:
        return None
    return pod.uid, NominatedPod(pod=pod, priority=integer(spec, "priority"), node_name=node_name)


NOMINATED: Final = Source(
    path="/api/v1/pods", field_selector="spec.nodeName=,status.nominatedNodeName!=", decode=decode_nominated
)
"""All nominated pods."""
