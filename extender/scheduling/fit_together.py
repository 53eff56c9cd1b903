"""Pods one after another on one node: whether its kubelet admits each of them, and what follows for places on it.

Rules of this file
- Pure, and fit for any thread. The judge is the one of filter.
- A pod fits only if the node admits it in every state that the node can be in. If no state of a node is known, one pod
  fits.
- A node's totals limit the pods as well, as far as they are known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.cluster.node_class import HYPOTHETICAL, NodeClass
from extender.kubelet.admission import start_pod
from extender.kubelet.budget import Budget
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.replay.possible_states import admit_in_all
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Judgement
from extender.scheduling.node_totals import exceeds, pod_requests
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.victims import numa_nodes_of

MAX_REPLAYS: Final = 16
"""The most replays for one place. Random choices of devices multiply them."""
TOTALS: Final = "the totals of the node are too small"
MAX_EXITS: Final = 512
"""How many admissions are replayed to find out whether the end of another pod matters."""
_UID: Final = "\0place:"
"""Begins the UIDs of pods that have not come yet. No API server assigns such a UID."""
States = tuple[ManagerState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node. `left_milli`: what is left of the node's totals beside held places; None: not known."""

    name: str
    node_class: NodeClass
    left_milli: Mapping[str, int] | None = None


def judged_after(
    judge: BoundedJudge, shape: PodShape, node_class: NodeClass, states: States, budget: Budget | None
) -> Judgement:
    """The judgement of a pod of the shape on a node of the class that is in *states*."""
    possible = replace(node_class.possible, states=states)
    return judge(shape, replace(node_class, id=HYPOTHETICAL, possible=possible), budget)


def admitted(
    judge: BoundedJudge,
    shape: PodShape,
    number: int,
    node_class: NodeClass,
    states: States,
    budget: Budget | None,
    *,
    is_judged: bool = False,
) -> tuple[str, States]:
    """Why the node does not admit the pod, "" if it does, and its states then. Its kubelet and states are known.

    *number*: which pod of the node it is. *is_judged*: the node is known to admit it. *budget*: limits the
    replays; None: as for one admission. If it is used up, the result says nothing.
    """
    kubelet = node_class.kubelet
    assert kubelet is not None
    if not is_judged and (refusal := judged_after(judge, shape, node_class, states, budget).refusal) is not None:
        return refusal.text, ()
    request = replace(shape.request(kubelet.rules), uid=f"{_UID}{number}")
    outcomes = admit_in_all(kubelet, states, request, max_replays=MAX_REPLAYS, budget=budget)
    if not all(isinstance(each.verdict, Admitted) for each in outcomes) or not outcomes[0].complete:
        return RefusalReason.CHANCE.text, ()
    return "", tuple({(s := start_pod(o.state, request)).key: s for o in outcomes}.values())


def _walk(
    judge: BoundedJudge,
    shapes: Sequence[PodShape],
    candidate: Candidate,
    budget: Budget | None,
    states: States | None = None,
) -> Iterator[tuple[str, States]]:
    """For each pod in order: why it does not fit, "" if it does, and the node's states then.

    A pod that does not fit changes nothing. *states*: replace the states of the node.
    """
    node_class = candidate.node_class
    states = node_class.states if states is None else states
    left = None if candidate.left_milli is None else dict(candidate.left_milli)
    is_known, fitting = node_class.kubelet is not None and bool(states), 0
    for number, shape in enumerate(shapes):
        wanted = {} if left is None else pod_requests(shape.pod, {})
        refusal = TOTALS if left is not None and exceeds(wanted, left, ()) else ""
        if not refusal and is_known:
            refusal, after = admitted(judge, shape, number, node_class, states, budget)
            states = states if refusal else after
        elif not refusal and fitting:
            refusal = RefusalReason.UNKNOWN.text
        if not refusal:
            fitting += 1
            if left is not None:
                left.update({name: left[name] - amount for name, amount in wanted.items() if name in left})
        yield refusal, states


def fit_together(
    judge: BoundedJudge,
    pods: Sequence[PodShape],
    candidate: Candidate,
    budget: Budget | None = None,
    states: States | None = None,
) -> bool:
    """Whether the node admits the pods now, in this order. *states*: replace the states of the node."""
    return not any(refusal for refusal, _ in _walk(judge, pods, candidate, budget, states))


def outlast_exits(
    judge: BoundedJudge, places: Sequence[tuple[Candidate, Sequence[PodShape]]], budget: Budget | None = None
) -> bool:
    """Whether the pods, which fit on their nodes, also fit if any single other pod of the node has ended.

    More free resources can turn an admission into a refusal: see `extender.cluster.sudden_exit`. After `MAX_EXITS`
    admissions what was not replayed counts as harmless.
    """
    left = MAX_EXITS
    for candidate, pods in places:
        possible = candidate.node_class.possible
        for uid in sorted({uid for state in possible.states for uid in state.pod_uids}):
            left -= len(pods)
            if left < 0:
                return True
            if not fit_together(judge, pods, candidate, budget, possible.release((uid,)).states):
                return False
    return True


def numa_nodes_of_places(
    judge: BoundedJudge, pods: Sequence[PodShape], candidate: Candidate, budget: Budget | None = None
) -> list[int]:
    """The NUMA nodes of each pod, as raw bits, if the node admits the pods in this order. 0: none, or not known."""
    kubelet, found = candidate.node_class.kubelet, []
    for number, (refusal, states) in enumerate(_walk(judge, pods, candidate, budget)):
        uid = f"{_UID}{number}"
        masks = set() if refusal or kubelet is None else {numa_nodes_of(kubelet, state, uid) for state in states}
        found.append(masks.pop() if len(masks) == 1 else 0)
    return found
