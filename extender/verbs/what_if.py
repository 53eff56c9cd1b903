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
    """The answer of each node, in order. Equal nodes are replayed once, unless the pod wants devices: see `_replay`."""
    shape = PodShape(pod)
    shared: dict[NodeClass, tuple[Verdict | None, Judgement]] = {}
    answers = []
    for node in nodes:
        node_class = node.node_class
        answer = shared.get(node_class)
        if answer is None:
            answer = _replay(shape, node), judge(shape, node_class)
            if not _wants_devices(pod):
                shared[node_class] = answer
        verdict, judgement = answer
        answers.append(Answer(node_name=node.name, verdict=verdict, certainty=judgement.certainty, judgement=judgement))
    return answers


def _replay(shape: PodShape, node: NodeRecord) -> Verdict | None:
    """On the node's own state: nodes of one class have equal devices free, but not the same ones by id."""
    if node.kubelet is None or node.state is None:
        return None
    return admit(node.kubelet, node.state, shape.request(node.kubelet.rules)).verdict


def _wants_devices(pod: Pod) -> bool:
    return any("/" in resource for container in pod.containers for resource in container.limits_milli)
