"""Finds the pods and nodes that advice is about."""

from collections.abc import Iterator, Sequence
from typing import Final

from extender.answers.snapshot import Snapshot
from extender.questions.node_pods import NodePod, pods_of
from extender.questions.subjects import Subject
from extender.wire.errors import WireError, shown

MAX_PROGRESS: Final = 100


def find_pod(snapshot: Snapshot, said: str, path: str) -> tuple[Subject, NodePod]:
    """The node and the pod with this NAMESPACE/NAME or UID.

    Raises:
        WireError: no node has it, or too little is known about its node.
    """
    for each in snapshot.subjects(None):
        subject = snapshot.find(each.name)
        assert subject is not None
        for pod in pods_of(subject):
            if said in (pod.name, pod.uid):
                if subject.kubelet is None or not subject.states:
                    raise WireError(path, f"not enough is known about node {shown(subject.name)} of the pod")
                return subject, pod
    raise WireError(path, f"no node has a pod {shown(said)} whose requests are known")


def subjects_of(snapshot: Snapshot, names: Sequence[str] | None) -> list[Subject]:
    """Live nodes with the pods of their reports; None: all of them, by name. Raises UnknownNodeError."""
    found = (snapshot.find(each.name) for each in snapshot.subjects(names))
    return [each for each in found if each is not None]


def progress(done: int, of: int) -> Iterator[dict[str, object]]:
    """A document of progress if it is time for one: at most `MAX_PROGRESS` for one question."""
    if done % (-(-of // MAX_PROGRESS) or 1) == 0:
        yield {"progress": {"done": done, "of": of}}


def pod_notes_of(subjects: Sequence[Subject]) -> list[str]:
    """What is not known of the pods on these nodes."""
    unwatched = sum(subject.around.pods is None for subject in subjects)
    if not unwatched:
        return []
    return [
        (
            f"pods are not watched on {unwatched} of {len(subjects)} nodes: each pod there is taken to request what it "
            "holds; its age, priority, owner and disruption budgets are unknown"
        )
    ]
