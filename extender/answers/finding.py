"""Finds the pods and nodes that advice is about."""

from extender.answers.snapshot import Snapshot
from extender.questions.node_pods import NodePod, pods_of
from extender.questions.subjects import Subject
from extender.wire.errors import WireError, shown


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
