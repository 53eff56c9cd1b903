"""What-if: the full verdict of nodes on a pod, placements and reasons included. Never changes anything."""

from collections.abc import Iterable
from dataclasses import dataclass

from extender.cluster.classes import NodeClass
from extender.cluster.node import NodeRecord
from extender.replay.admission import admit
from extender.replay.pod import Pod
from extender.replay.verdict import Certainty, Verdict
from extender.verbs.judge import Judge, Judgement, PodShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One node's answer. `verdict` None: too little is known of the node; `judgement` is what filter goes by."""

    node_name: str
    verdict: Verdict | None
    certainty: Certainty
    judgement: Judgement


def what_if(pod: Pod, nodes: Iterable[NodeRecord], judge: Judge) -> list[Answer]:
    """The answer of each node, in order. Equal nodes are replayed once."""
    shape = PodShape(pod)
    of_class: dict[NodeClass, tuple[Verdict | None, Judgement]] = {}
    answers = []
    for node in nodes:
        node_class = node.node_class
        if node_class not in of_class:
            of_class[node_class] = _replay(shape, node_class), judge(shape, node_class)
        verdict, judgement = of_class[node_class]
        answers.append(Answer(node_name=node.name, verdict=verdict, certainty=judgement.certainty, judgement=judgement))
    return answers


def _replay(shape: PodShape, node_class: NodeClass) -> Verdict | None:
    if node_class.kubelet is None or node_class.state is None:
        return None
    return admit(node_class.kubelet, node_class.state, shape.request(node_class.kubelet.rules)).verdict
