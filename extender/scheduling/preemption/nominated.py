"""Nodes that kube-scheduler has promised to a pod (`status.nominatedNodeName`), usually after a preemption.

Laws of this file
- Pure. The judge is the one of filter, asked about states in which leaving pods are gone.
- A pod waits for its nominated node only where that would surely admit it once the leaving pods are gone.
- A promise holds against pods of lower priority, and of equal priority that were nominated later or not at all; only as
  long as the node would keep it: a pod that the node refuses anyhow keeps nobody away.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.cluster.node_class import NodeClass
from extender.replay.admission import is_indifferent, release_pods
from extender.replay.branches import admit_in_all
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted
from extender.scheduling.judge import Judge, PodShape

States = tuple[ManagerState, ...]

HYPOTHETICAL: Final = -1
"""The id of a class that is asked about once and never remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisedNode:
    """A node as a nominated pod will find it: `states` as they are now, without any of the pods in `leaving`."""

    node_class: NodeClass
    states: States
    leaving: Collection[str]

    @property
    def states_then(self) -> States:
        """The states once the leaving pods are gone, each once."""
        gone = sorted(self.leaving)
        return tuple({s.key: s for s in (release_pods(state, gone) for state in self.states)}.values())


def waits_for_leavers(judge: Judge, shape: PodShape, node: PromisedNode) -> bool:
    """Whether pods are leaving the node, and it admits the pod in every state without them."""
    return bool(node.leaving) and _admits(judge, shape, node.node_class, node.states_then)


def breaks_promise(judge: Judge, shape: PodShape, promised: Iterable[PodShape], node: PromisedNode) -> bool:
    """Whether one of the *promised* pods would be admitted without the pod, and would not be after it."""
    states = node.states_then
    kubelet = node.node_class.kubelet
    if kubelet is None or not states or is_indifferent(kubelet, shape.request(kubelet.rules)):
        return False
    if not _admits(judge, shape, node.node_class, states):
        return False
    after = admitted_states(node.node_class, states, shape)
    return any(
        _admits(judge, each, node.node_class, states) and not _admits(judge, each, node.node_class, after)
        for each in promised
    )


def admitted_states(node_class: NodeClass, states: States, shape: PodShape) -> States:
    """The states after the pod's admission; those that refuse it are kept as they are."""
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
    then = replace(node_class, id=HYPOTHETICAL, state=states[0], others=tuple(states[1:]), complete=True)
    judgement = judge(shape, then)
    return judgement.refusal is None and judgement.trouble is None
