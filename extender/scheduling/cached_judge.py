"""The judgements of a pod on nodes: from the cache, and by replay where the cache has none.

Rules of this file
- This is the only place that finds missing judgements, replays them and stores them.
- Replays run off the event loop. Only `MAX_AT_ONCE` classes with at most `LOOP_STEPS` steps in all are replayed on it:
  for a few classes a thread costs more than the replay.
- Last shares of one namespace's pods take at most a tenth of the time: see `CachedJudge.answer`.
- Nodes whose states differ only in what does not matter to the pod need one judgement (`Alike`).
- A class that could not be judged counts as unknown. It is logged and counted once, with all that reproduces it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from extender.bounded import BoundedMap
from extender.cluster.class_index import Classes
from extender.cluster.free_table import NO_KEY, FreeTable, Int64s, RowGroup, StatesGroup
from extender.cluster.node_class import NodeClass
from extender.cluster.store import NodeStore
from extender.kubelet.budget import Budget
from extender.kubelet.verdict import Certainty
from extender.replay.counts import NEWEST_RULES
from extender.replay.pod import Pod
from extender.scheduling.effects import Effects
from extender.scheduling.judge import SLOW, BoundedJudge, Judged, judge_all, judge_quickly, shares_to_have, time_limit
from extender.scheduling.judgement import INDIFFERENT, Judgement, LateNodes, Trouble
from extender.scheduling.late_projections import LateProjections
from extender.scheduling.pod_shape import UNJUDGED, JudgementCache, Kinds, NodeAnswers, PodShape, ShapeJudgements
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.unjudged import MAX_NAMES, UnjudgedClasses, log_unjudged

MAX_AT_ONCE: Final = 16
"""How many classes are judged on the event loop: those of the few nodes that changed since the last call of a shape."""
LONG_SECONDS: Final = 0.3
"""If the replays of a call take longer, they are long: kube-scheduler makes one call after another."""
PAUSE_SHARE: Final = 9.0
"""After long replays, pods of the namespace get no last shares for this many times as long."""
MAX_RESTING: Final = 1_000
"""The number of namespaces for which that is kept."""
MERIT_STEPS: Final = 20_000
"""Steps of a call on the event loop for the merits of nodes with equal keys: 20 ms. Others are judged one by one."""
NOT_JUDGED: Final = Judgement(None, Certainty.UNKNOWN)
"""The judgement of classes that were not judged in time, if the settings pass them."""
NO_TURN: Final = Judgement(RefusalReason.NO_TURN, Certainty.UNKNOWN)
"""The judgement of classes that were not judged in time, if the settings refuse them."""
CHANGING: Final = Judgement(RefusalReason.CHANGING, Certainty.UNKNOWN)
"""The judgement of a node that changes faster than it can be judged."""
_MAX_ATTEMPTS: Final = 5
"""How often a node is judged that changes while it is judged."""

MAX_SEEN: Final = 32
"""For how many shapes the codes of all nodes are kept: 16 bytes for each node."""

MAX_MERGES: Final = 500
"""How many times one call goes through rows: each takes some 0.1 ms, and more for thousands of rows."""
WORTH: Final = 4
"""From this many nodes of a group on, comparing them is faster than judging them one by one."""


class Alike(NamedTuple):
    """Nodes with equal keys for a pod. `members`: positions in the places; they are the `rows` of the `group`."""

    members: Int64s
    group: RowGroup | StatesGroup
    rows: Int64s


def alike(table: FreeTable, shape: PodShape, places: Int64s) -> Iterator[Alike]:
    """Sets of nodes with equal keys for the pod.

    Nodes without a key, those of small groups, and those beyond `MAX_MERGES` are in no set: they are judged one by one,
    off the event loop.
    """
    left = MAX_MERGES
    for group, which, rows in table.by_group(places):
        steps = shape.steps(group.kubelet.rules)
        merges = group.merges(steps)
        if len(rows) < WORTH or merges > left:
            continue
        left -= merges
        numbers = group.alike(rows, steps)
        if numbers is None:
            continue
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        for members in np.split(order, ends):
            if numbers[members[0]] != NO_KEY:
                yield Alike(which[members], group, rows[members])


class NotReadyError(Exception):
    """The request cannot be answered now; the message says why."""


class CachedJudge:
    """Judges pods on nodes of *cluster* with *judge*.

    *late_nodes*: what happens to nodes that were not judged in time. *ranking*: the judge that adds the merits of the
    strategy; None: *judge* adds them.
    """

    def __init__(
        self,
        judge: BoundedJudge,
        cache: JudgementCache,
        cluster: NodeStore,
        unjudged: UnjudgedClasses,
        effects: Effects,
        *,
        late_nodes: LateNodes = LateNodes.ERROR,
        ranking: "CachedJudge | None" = None,
    ) -> None:
        self.judge: Final = judge
        self.cache: Final = cache
        self.unjudged: Final = unjudged
        self._cluster, self._late_nodes = cluster, late_nodes
        self._metrics, self._offload = effects.metrics, effects.offload
        self._clock, self._cpu_clock = effects.clock, effects.cpu_clock
        self.ranking: Final = ranking or self
        self._resting: BoundedMap[str, float] = BoundedMap(MAX_RESTING)
        """Until when the pods of a namespace get no last shares."""
        self._seen: BoundedMap[Kinds, tuple[Int64s, Int64s]] = BoundedMap(MAX_SEEN)
        """The class id of each slot in the last calls of a shape, and its code."""
        self.projections: Final[LateProjections] = ranking.projections if ranking else LateProjections(cluster, effects)

    def entry(self, pod: Pod) -> ShapeJudgements:
        """The cache entry of the pod's shape."""
        return self.cache.entry(pod, with_nri=self._cluster.classes.has_nri)

    def is_aligned(self, shape: PodShape) -> bool:
        """Whether a manager of any known kubelet, or the newest one, may align something, or the pod demands it.

        Always, where the NRI topology-aware policy runs on a node: it places every container.
        """
        if self._cluster.classes.has_nri or (shape.has_demand and shape.pod.demand.is_required):
            return True
        return shape.is_aligned_anywhere((NEWEST_RULES, *self._cluster.classes.rules))

    async def answer(
        self,
        entry: ShapeJudgements,
        classes: Collection[NodeClass],
        deadline: float | None = None,
        *,
        is_any_feasible: bool = False,
    ) -> None:
        """Judge those of *classes* that have no judgement yet. *entry* then has those judged in time.

        `entry.shares` has the other classes that were tried. *is_any_feasible*: a node of another class is feasible.
        After a long call, pods of the namespace get no last shares for some time, as if that were True.
        """
        namespace, began = entry.shape.pod.namespace, self._clock()
        is_any_feasible |= began < self._resting.get(namespace, began)
        shares = shares_to_have(is_any_feasible=is_any_feasible)
        due = [each for each in entry.missing(classes) if entry.shares.get(each.id, 0) < shares]
        if not due:
            return
        limit, had = time_limit(self._clock, deadline), dict(entry.shares)
        judged: Judged = await self._offload(
            judge_all, self.judge, entry.shape, due, limit, had, is_any_feasible, self._cpu_clock
        )
        entry.shares.update(judged.had)
        if (seconds := self._clock() - began) > LONG_SECONDS and not is_any_feasible:
            self._resting[namespace] = began + seconds * (1 + PAUSE_SHARE)
        self._store(entry, due, judged.judgements)

    def answer_at_once(self, entry: ShapeJudgements, classes: Collection[NodeClass]) -> bool:
        """As `answer`, on the event loop, by short replays, also for `ranking`; whether all of *classes* are judged."""
        if not (missing := entry.missing(classes)):
            return True
        short = [each for each in missing if each.id not in entry.shares]
        judged = judge_quickly(self.ranking.judge, entry.shape, short)
        if judged and self.ranking is not self:
            ranked = {i: each._replace(detail="") for i, each in judged.items()}
            self.ranking.cache.store(self.ranking.entry(entry.shape.pod), ranked, self._cluster.index.ids)
            judged = {i: each if each.merit is None else each._replace(merit=0) for i, each in judged.items()}
        self._store(entry, short, judged)
        return not entry.missing(missing)

    async def _late_answers(
        self, entry: ShapeJudgements, classes: Collection[NodeClass], deadline: float | None, *, is_any_feasible: bool
    ) -> Mapping[int, Judgement]:
        """As `answer`. Returns the judgements of those that were not in time, by class id; see `LateNodes`.

        Raises:
            NotReadyError: classes had no turn before *deadline*, and their nodes are neither refused nor passed.
        """
        await self.answer(entry, classes, deadline, is_any_feasible=is_any_feasible)
        left = entry.missing(classes)
        if not left:
            return {}
        unheard = [each for each in left if each.id not in entry.shares]
        if self._late_nodes is LateNodes.PASS and not entry.shape.pod.demand.is_required:
            return {each.id: NOT_JUDGED for each in left}
        judged = (entry.get(each.id) for each in classes)
        is_any_feasible |= any(each is not None and each.refusal is None for each in judged)
        if unheard and not (self._late_nodes is LateNodes.REFUSE and is_any_feasible):
            raise NotReadyError(
                f"out of time with {len(unheard)} of {len(classes)} kinds of nodes to judge; "
                "the next attempt goes on with them"
            )
        return {each.id: SLOW if each.id in entry.shares else NO_TURN for each in left}

    async def answer_nodes(
        self, entry: ShapeJudgements, names: Sequence[str], now: float, deadline: float | None = None
    ) -> NodeAnswers:
        """The judgement of each of the nodes *names*. Where all are known, it is a few operations on arrays.

        Raises:
            NotReadyError: see `_late_answers`.
        """
        self._cluster.expire(now)
        index, kinds = self._cluster.index, entry.kinds
        slots, version = index.names.slots_of(names), index.version
        classes, ids = index.classes[slots], index.ids[slots]
        codes = self._codes_now(entry, slots, ids)
        missing = np.flatnonzero(codes == UNJUDGED)
        is_new = len(missing) == len(names)
        if len(missing) >= (MAX_AT_ONCE + 1 if is_new else WORTH):
            await self._judge_alike(entry, classes[missing], slots[missing], deadline)
            codes[missing] = entry.codes_of(ids[missing], kinds)
            missing = np.flatnonzero(codes == UNJUDGED)
        if len(missing):
            left: list[NodeClass] = list(dict.fromkeys(classes[missing].tolist()))
            late: Mapping[int, Judgement] = {}
            if is_new or len(left) > MAX_AT_ONCE or not self.answer_at_once(entry, left):
                known = map(kinds.judgements.__getitem__, np.unique(codes[codes != UNJUDGED]).tolist())
                is_any_feasible = any(each.refusal is None for each in known)
                late = await self._late_answers(entry, left, deadline, is_any_feasible=is_any_feasible)
            codes[missing] = entry.codes_of(ids[missing], kinds)
            for position in np.flatnonzero(codes == UNJUDGED).tolist():
                codes[position] = kinds.code(late[int(ids[position])])
        return NodeAnswers(names=names, classes=classes, codes=codes, kinds=kinds, version=version, entry=entry)

    def _codes_now(self, entry: ShapeJudgements, slots: Int64s, ids: Int64s) -> Int64s:
        """The codes of the classes that nodes have now. Only those that changed since the last call are looked up."""
        count = len(self._cluster.index.ids)
        if (known := self._seen.get(entry.kinds)) is None or len(known[0]) != count:
            known = self._seen[entry.kinds] = np.zeros(count, np.int64), np.full(count, UNJUDGED)
        seen, codes = known
        changed = np.flatnonzero((seen[slots] != ids) | (codes[slots] == UNJUDGED))
        seen[slots[changed]], codes[slots[changed]] = ids[changed], entry.codes_of(ids[changed], entry.kinds)
        return codes[slots]

    async def _judge_alike(
        self, entry: ShapeJudgements, classes: Classes, slots: Int64s, deadline: float | None
    ) -> None:
        """Judge one node of each set of nodes that are alike for the pod, and store its judgement for all of them.

        *classes*, *slots*: those of the nodes without a judgement.
        """
        index = self._cluster.index
        ids, places = index.ids[slots], index.places[slots]
        found = list(alike(self._cluster.classes.free, entry.shape, places))
        if not found:
            return
        firsts: list[NodeClass] = classes[[each.members[0] for each in found]].tolist()
        if not (len(firsts) <= MAX_AT_ONCE and self.answer_at_once(entry, firsts)):
            await self.answer(entry, firsts, deadline, is_any_feasible=True)  # the others come next
        judged: dict[int, int] = {}
        budget, kinds = Budget(MERIT_STEPS), entry.kinds
        # a node that changed during the wait has another row of the free table; its former row may be another node's
        is_unchanged = (index.ids[slots] == ids) & (index.places[slots] == places)
        for first, each in zip(firsts, found, strict=True):
            judgement, of_members = entry.get(first.id), ids[each.members]
            if judgement is None:
                continue
            if self.judge.follows_from_key(entry.shape, first, judgement):
                judged |= dict.fromkeys(of_members.tolist(), kinds.code(judgement))
            elif judgement.merit is not None and len(each.members) > 1:
                still = is_unchanged[each.members]
                merits = self.judge.merits_of(entry.shape, first, judgement, each.group, each.rows[still], budget)
                code_of = {merit: kinds.code(judgement._replace(merit=merit)) for merit in set(merits or ())}
                pairs = zip(of_members[still].tolist(), merits or (), strict=False)
                judged |= {class_id: code_of[merit] for class_id, merit in pairs}
        self.cache.store_codes(entry, judged, index.ids)

    async def answer_node(self, pod: Pod, node_name: str, seconds: float) -> Judgement:
        """The judgement of one node in the state that it has when this returns.

        *seconds*: the limit of each attempt, and of the wait before them while the node is changing.
        """
        entry = self.entry(pod)
        if not self.is_aligned(entry.shape):
            return INDIFFERENT
        await self.projections.settled(node_name, seconds)
        for _ in range(_MAX_ATTEMPTS):
            node_class = self._class_of(node_name)
            if self.answer_at_once(entry, (node_class,)) and (found := entry.get(node_class.id)) is not None:
                return found
            await self.answer(entry, (node_class,), self._clock() + seconds)
        node_class = self._class_of(node_name)
        self.answer_at_once(entry, (node_class,))
        return entry.get(node_class.id) or CHANGING

    def _class_of(self, node_name: str) -> NodeClass:
        self._cluster.expire(self._clock())
        (node_class,) = self._cluster.classes_of((node_name,))
        return node_class

    def _store(self, entry: ShapeJudgements, classes: Iterable[NodeClass], judgements: Mapping[int, Judgement]) -> None:
        """Store and count judgements. Those with trouble are reported, and stored without the details."""
        self._metrics.replayed(len(judgements))
        settled = dict(judgements)
        for each in classes:
            judgement = judgements.get(each.id)
            if judgement is not None and judgement.trouble is not None:
                is_slow = judgement.trouble is Trouble.STEPS and judgement.certainty is Certainty.UNKNOWN
                is_left_out = is_slow and self._late_nodes is not LateNodes.PASS
                settled[each.id] = SLOW if is_left_out else judgement._replace(detail="")
                self._report(entry.shape.pod, each, judgement.trouble, judgement.detail)
        self.cache.store(entry, settled, self._cluster.index.ids)

    def _report(self, pod: Pod, node_class: NodeClass, trouble: Trouble, detail: str) -> None:
        self._metrics.not_judged(trouble)
        if not self.unjudged.note(node_class.id, trouble, pod):
            return
        names = islice((record.name for record in self._cluster if record.node_class is node_class), MAX_NAMES)
        log_unjudged(node_class.id, names, trouble, pod, detail)
