"""Nodes that kube-scheduler has nominated pods to (`status.nominatedNodeName`), usually after a preemption.

Rules of this file
- Pure. The judge is the one of filter; it judges states in which leaving pods are gone.
- A pod waits for its nominated node only if that is certain to admit it once the leaving pods are gone.
- A nominated pod's room is kept from pods of lower priority, and from those of equal priority that were nominated later
  or not at all; but only if the node would admit the nominated pod.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from extender.cluster.node_class import HYPOTHETICAL, NodeClass
from extender.kubelet.admission import is_indifferent
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.replay.branches import admit_in_all
from extender.replay.possible_states import PossibleStates
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import PodShape

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
    """Whether pods are leaving the node, and it admits the pod in every state without them."""
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
