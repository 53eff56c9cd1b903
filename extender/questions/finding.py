"""Finds the pods and nodes that advice is about."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from extender.kubelet.verdict import Provider
from extender.questions.evictions import Evictions
from extender.questions.node_context import Subject
from extender.questions.node_pods import NodePod, pods_of
from extender.questions.snapshot import Snapshot
from extender.questions.words import plural
from extender.wire.errors import WireError, shown
from extender.wire.replies import ReplyBody

MAX_PROGRESS: Final = 100
MAX_SHARE: Final = 0.85
"""The share of a question's time after which a search ends with what it has."""
OUT_OF_TIME: Final = "ask about fewer nodes, or raise NUMA_EXTENDER_QUESTION_SECONDS"

_NOT_WATCHED: Final = (
    "pods are not watched there, so each is assumed to request what it holds; its age, priority, owner and disruption "
    "budgets are unknown"
)
PodsOn = Callable[[Subject], Sequence[NodePod]]


class Progress(ReplyBody):
    """How far a search is."""

    done: int
    of: int


class ProgressLine(ReplyBody):
    """A line before the answer."""

    progress: Progress


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


def progress(done: int, of: int) -> Iterator[ReplyBody]:
    """A document of progress if it is time for one: at most `MAX_PROGRESS` for one question."""
    if done % (-(-of // MAX_PROGRESS) or 1) == 0:
        yield ProgressLine(progress=Progress(done=done, of=of))


def limits_of(evictions: Evictions, max_trials: int) -> Iterator[str]:
    """Which limits ended a search for evictions, or left choices out."""
    if evictions.trials_left <= 0:
        yield f"the search ended after {max_trials:,} tries; ask about fewer nodes"
    if evictions.is_partial:
        yield "some nodes have too many pods, or pods too many other nodes, to try every choice"


def placed_by_kubelet(subjects: Sequence[Subject]) -> tuple[list[Subject], list[str]]:
    """The nodes whose kubelet alone places pods, and notes about the others."""
    kept = [each for each in subjects if not each.node_class.has_nri]
    left_out = len(subjects) - len(kept)
    note = (
        f"{left_out} of {plural(len(subjects), 'node')}: left out, because their NRI policy places the "
        "containers, and this question is about the kubelet's managers"
    )
    return kept, [note] if left_out else []


def blind_spots(subjects: Sequence[Subject], pods_on: PodsOn | None = pods_of) -> list[str]:
    """What advice about these nodes cannot see; takes seconds. *pods_on* reads a node's pods; None: it reads none."""
    if not subjects:
        return ["no node has reported yet, so there is nothing to look at"]
    nodes = f"of {plural(len(subjects), 'node')}"
    pods = [] if pods_on is None else [pod for each in subjects for pod in pods_on(each)]
    unknown = sum(each.kubelet is None or not each.states for each in subjects)
    stale = sum(each.node_class.stale for each in subjects)
    unsure = sum(not each.node_class.complete for each in subjects if each.states)
    hidden = sum(Provider.RUNTIME in each.node_class.hidden for each in subjects)
    claims = sum("resource claims" in pod.workload.rules.unread for pod in pods if not subjects[0].around.forecast)
    groups = sum(pod.group is not None for pod in pods)
    unwatched = 0 if pods_on is None else sum(each.around.pods is None for each in subjects)
    notes = (
        (unknown, f"{unknown} {nodes}: left out, because no report says enough about them"),
        (stale, f"{stale} {nodes}: no report for some time, so their last state is used"),
        (unsure, f"{unsure} {nodes}: pods start or end there now, and not every state that this allows is known"),
        (hidden, f"{hidden} {nodes}: it is not known what their NRI policy has granted and would refuse"),
        (claims, f"{plural(claims, 'pod')} with resource claims: what DRA drivers allocate is not known"),
        (groups, f"{plural(groups, 'pod')} in groups that run together: none is evicted, each is replayed by itself"),
        (unwatched, f"{unwatched} {nodes}: {_NOT_WATCHED}"),
    )
    return [text for count, text in notes if count]
