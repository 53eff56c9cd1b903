"""Keeps the last room for declared shapes: other pods are ranked away from it, or kept away if the shape is hard.

Rules of this file
- A pod takes the last room of a shape on a node if the node has fewer copies of the shape after the pod, and then fewer
  copies fit in the cluster than are declared. Both are replayed on the node's present state.
- Prioritize gives such nodes 0, if another candidate has more. Filter refuses them for hard shapes only, and only while
  another node is feasible: no pod waits for a shape.
- A pod of a higher priority than the shape, and a pod that requests at least as much of every resource of the shape,
  may take the room: such a pod is one of the shape itself.
- The copies on other nodes are those of the last count, less what pods have taken that were bound since.
- Filter lets a pod go to the last room only if no other node is feasible. Bind refuses every other pod there, because
  pods may have been bound since filter: kube-scheduler then filters the pod again.
- Replays run off the event loop. Of one call `MAX_NODES` nodes are replayed, for `SECONDS` at most; the others count as
  if the pod took all copies there.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from extender.api.service import Service
from extender.bounded import BoundedMap
from extender.features.shapes.counts import MAX_COPIES, CountedShape, ShapeCounts
from extender.questions.capacity import Capacity
from extender.questions.node_context import Subject, subject_of
from extender.questions.node_pods import NodePod, place_of, with_pod
from extender.questions.shapes import DeclaredShape
from extender.replay.pod import Pod
from extender.scheduling.binder import RETRY, BindFailure, BindOutcome, NotBound, PodBound
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import pod_requests
from extender.scheduling.objections import BindCall, FilterCall, Filtered, Objector, Scores, avoid
from extender.scheduling.pod_shape import NodeAnswers, PodShape
from extender.scheduling.reasons import RefusalReason
from extender.wire.placement_rules import PlacementRules
from extender.wire.scheduler import SchedulerArgs
from extender.wire.workloads import PodWorkload

MAX_NODES: Final = 64
SECONDS: Final = 0.2
MAX_EXCUSED: Final = 1000
KEPT: Final = NotBound(f"{RefusalReason.SHAPE.text}; {RETRY}", BindFailure.SHAPE)


class _CheckedNode(NamedTuple):
    """A node with its copies in the last count, and as it is now; None: it is over the limit of nodes."""

    name: str
    counted: int
    subject: Subject | None


class _Tight(NamedTuple):
    """A shape of which few copies fit. `touched`: nodes with fewer copies since the count. `nodes`: to be checked."""

    shape: DeclaredShape
    fits: int
    touched: Sequence[_CheckedNode]
    nodes: Sequence[_CheckedNode]


class ShapeObjector(Objector):
    """The objector. Reads on the event loop, replays elsewhere."""

    def __init__(self, service: Service, counts: ShapeCounts) -> None:
        self._service, self._counts = service, counts
        self._judge: Final[Judge] = service.judging.ranking.judge
        self._excused: Final[BoundedMap[str, None]] = BoundedMap(MAX_EXCUSED)
        """Pods that filter has let go to the last room."""
        self._taken = 0
        """How many pods bind has let take copies of shapes."""
        self._permitted: dict[str, tuple[int, bool]] = {}
        """`_taken` before a pod was permitted, and whether it may take copies, by node."""

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result without nodes that have the last room of a hard shape, if others are feasible."""
        uid = call.args.pod.uid
        if call.answers is None or not filtered.feasible:
            return filtered
        tight = self._tight(call.args.pod, call.args.priority, filtered.feasible, hard_only=True)
        losing = await self._losing(call.args.pod, tight)
        after = avoid(filtered, losing, RefusalReason.SHAPE)
        self._excused.pop(uid, None)
        if losing and after is filtered:
            self._excused[uid] = None
        return after

    async def score(self, args: SchedulerArgs, _answers: NodeAnswers, scores: Scores) -> Scores | None:
        """The scores with 0 for nodes that have the last room of a shape, if another node has more."""
        losing = await self._losing(args.pod, self._tight(args.pod, args.priority, args.names, hard_only=False))
        if not losing:
            return None
        given = np.where([name in losing for name in args.names], np.uint8(0), scores).astype(np.uint8)
        return given if given.any() else None

    async def permit(self, call: BindCall) -> NotBound | None:
        """The pod must not take the last room of a hard shape, unless filter found no other node for it."""
        priority, taken = self._service.known.pods.get(call.pod.uid).priority, self._taken
        tight = self._tight(call.pod, priority, (call.node_name,), hard_only=True)
        is_losing = bool(await self._losing(call.pod, tight))
        self._permitted[call.node_name] = taken, bool(tight)
        return KEPT if is_losing and call.pod.uid not in self._excused else None

    def reserve(self, call: BindCall) -> NotBound | None:
        """No other pod may have taken copies since `permit`. From now on the node's own copies are counted again."""
        taken, is_tight = self._permitted.get(call.node_name, (self._taken, False))
        if is_tight and taken != self._taken:
            return KEPT
        self._taken += is_tight
        self._counts.reserved(call.node_name)
        return None

    def post_bind(self, call: BindCall, outcome: BindOutcome) -> None:
        """The attempt has ended."""
        self._permitted.pop(call.node_name, None)
        if isinstance(outcome, PodBound):
            self._excused.pop(call.pod.uid, None)

    def _tight(self, pod: Pod, priority: int, names: Iterable[str], *, hard_only: bool) -> Sequence[_Tight]:
        """The shapes whose last room the pod might take on one of *names*."""
        found, wanted = [], set(names)
        for counted in self._counts.shapes.values():
            count, shape = counted.count, counted.shape
            if count is None or (hard_only and not shape.is_hard) or may_take(pod, priority, shape):
                continue
            changed = sum(count.nodes.get(name, 0) for name in counted.touched)
            if count.fits - changed - count.most >= shape.copies:
                continue
            checked = [name for name in count.nodes if name in wanted]
            if checked:
                found.append(self._with_nodes(counted, checked))
        return found

    def _with_nodes(self, counted: CountedShape, checked: Sequence[str]) -> _Tight:
        count = counted.count
        assert count is not None
        touched = [name for name in counted.touched if name in count.nodes]
        subjects = {name: self._subject(name) for name in islice(dict.fromkeys([*touched, *checked]), MAX_NODES)}

        def nodes(names: Iterable[str]) -> Sequence[_CheckedNode]:
            return [_CheckedNode(name, count.nodes[name], subjects.get(name)) for name in names]

        return _Tight(counted.shape, count.fits, nodes(touched), nodes(checked))

    def _subject(self, name: str) -> Subject:
        (node_class,) = self._service.known.nodes.classes_of((name,))
        record = self._service.known.nodes.get(name)
        state = None if record is None else record.state
        return subject_of(name, node_class, state, self._service.surroundings(name))

    async def _losing(self, pod: Pod, tight: Sequence[_Tight]) -> frozenset[str]:
        """The nodes on which the pod takes the last room of one of these shapes."""
        if not tight:
            return frozenset()
        return await self._service.offload(losing_nodes, pod, tight, self._judge, self._service.clock)


def may_take(pod: Pod, priority: int, shape: DeclaredShape) -> bool:
    """Whether the pod may take the room of the shape: it is more important, or one of the shape itself.

    For example, a pod that requests 8 CPUs and 2 GPUs may take the room of a shape of 8 CPUs and 1 GPU.
    """
    if priority > shape.priority:
        return True
    requests = pod_requests(pod, {})
    return all(requests.get(name, 0) >= amount for name, amount in shape.requests_milli.items())


def losing_nodes(pod: Pod, tight: Sequence[_Tight], judge: Judge, clock: Callable[[], float]) -> frozenset[str]:
    """The nodes on which *pod* takes the last room of one of the shapes."""
    losing, deadline = set[str](), clock() + SECONDS
    for each in tight:
        room = _ShapeRoom(pod, each.shape, judge)
        now = dict[str, int]()
        for name, _, subject in each.touched:
            now[name] = 0 if subject is None or clock() >= deadline else room.copies(subject)
        fits = each.fits - sum(node.counted - now[node.name] for node in each.touched)
        for name, counted, subject in each.nodes:
            lost = now.get(name, counted) if subject is None or clock() >= deadline else room.lost(subject)
            if lost > 0 and fits - lost < each.shape.copies:
                losing.add(name)
    return frozenset(losing)


class _ShapeRoom:
    """The room for one shape on nodes, before and after one pod."""

    def __init__(self, pod: Pod, shape: DeclaredShape, judge: Judge) -> None:
        self._workload: Final = PodWorkload(
            kind="Pod", namespace=pod.namespace, name=pod.name, replicas=1, pod=pod, rules=PlacementRules()
        )
        self._shape: Final = PodShape(self._workload.copy(0))
        self._capacity: Final = Capacity([shape.workload], judge, MAX_COPIES)

    def copies(self, subject: Subject) -> int:
        """Aligned copies on the node now."""
        return self._capacity.aligned(subject)

    def lost(self, subject: Subject) -> int:
        """How many of them the pod takes. All, if it is not certain where it would be placed."""
        before = self.copies(subject)
        place = place_of(subject, self._shape, self._workload) if before else None
        if place is None:
            return before
        return before - self.copies(with_pod(subject, place, NodePod(workload=self._workload)))
