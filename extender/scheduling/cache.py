"""Judgements by pod shape and class of nodes.

Rules of this file
- Bounded: at most `max_judgements` are held, and a pod shape counts as one for each `JUDGEMENT_BYTES` that it takes.
  The shapes themselves take a quarter of that at most: what they take, their authors choose.
  The pod shape that was used longest ago is dropped first, with all of its judgements.
- A pod shape forgets the classes that no node has any more: it holds three times as many judgements as there are nodes.
- Classes are immutable and their ids are never reused, so no entry becomes wrong.
- The judged pod has no UID of a real pod. A node that already holds a replica would otherwise answer for that replica.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from extender.bounded import BoundedMap
from extender.cluster.node_class import NodeClass
from extender.replay.pod import Pod
from extender.scheduling.columns import Column, Int64s
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import SHAPE_UID, PodShape

Judgements = Mapping[int, Judgement]
"""Judgements of one pod shape, by class id."""

MAX_SLOW: Final = 1_000
"""The number of classes that a pod shape remembers as slow to replay."""
JUDGEMENT_BYTES: Final = 100
FEW: Final = 64
"""So many judgements of a pod shape are kept without asking whether a node still has the class."""
MAX_COLUMNS: Final = 16
"""For how many pod shapes the judgements are also kept by slot: 16 bytes for each node and shape."""


class ShapeJudgements:
    """The judgements of one pod shape."""

    __slots__ = ("_full_at", "judgements", "key", "own_weight", "shape", "shares")

    def __init__(self, pod: Pod, key: object) -> None:
        self.key: Final = key
        self.shape: Final = PodShape(replace(pod, uid=SHAPE_UID))
        self.judgements: dict[int, Judgement] = {}
        self.shares: Final[BoundedMap[int, int]] = BoundedMap(MAX_SLOW)
        """How many shares of steps the classes had whose replay takes long, by class id; see `replays`."""
        self.own_weight: Final = 1 + pod.weight_bytes // JUDGEMENT_BYTES
        """As how many judgements the shape itself counts."""
        self._full_at = FEW

    def missing(self, classes: Iterable[NodeClass]) -> list[NodeClass]:
        """The classes of *classes* that have no judgement."""
        known = self.judgements
        return [each for each in classes if each.id not in known]

    def add(self, judgements: Judgements, class_ids: Int64s) -> None:
        """Add judgements, and forget old ones of classes that are not among *class_ids*.

        The newest stay in any case: a call that is not answered yet may need them. Who holds the former `judgements`
        may still read them.
        """
        self.judgements.update(judgements)
        if len(self.judgements) > self._full_at:
            current = set(class_ids.tolist())
            old = len(self.judgements) - max(len(current), len(judgements), FEW)
            held = enumerate(self.judgements.items())
            self.judgements = {i: each for n, (i, each) in held if n >= old or i in current}
            self._full_at = len(self.judgements) + max(len(current), FEW)


class JudgementCache:
    """The entries of all pod shapes. *max_judgements*: see the file's rules."""

    def __init__(self, max_judgements: int) -> None:
        self._max: Final = max_judgements
        self._shapes: OrderedDict[object, ShapeJudgements] = OrderedDict()
        self._columns: BoundedMap[ShapeJudgements, Column] = BoundedMap(MAX_COLUMNS)
        self._held = 0
        """Judgements held, and the weights of the shapes."""
        self._own = 0
        """The weights of the shapes."""

    def __len__(self) -> int:
        return self._held

    def entry(self, pod: Pod, *, with_nri: bool = False) -> ShapeJudgements:
        """The entry of the pod's shape; a new one if there is none.

        *with_nri*: the shape has what nodes with the NRI topology-aware policy read.
        """
        key = (pod.shape, pod.nri_shape) if with_nri else pod.shape
        found = self._shapes.get(key)
        if found is None:
            found = ShapeJudgements(pod, key)
            self._shapes[found.key] = found
            self._held += found.own_weight
            self._own += found.own_weight
            self._make_room()
        else:
            self._shapes.move_to_end(found.key)
        return found

    def store(self, entry: ShapeJudgements, judgements: Judgements, class_ids: Int64s) -> None:
        """Add judgements to *entry*. *class_ids*: of the nodes now.

        An entry that was dropped while its judgements were computed still serves the call that holds it.
        """
        before = len(entry.judgements)
        entry.add(judgements, class_ids)
        if self._shapes.get(entry.key) is entry:
            self._held += len(entry.judgements) - before
            self._make_room()

    def column(self, entry: ShapeJudgements) -> Column:
        """The judgements of a shape by slot; an empty column if there is none. Only the last shapes used have one."""
        if self._shapes.get(entry.key) is not entry:  # dropped
            return Column()
        found = self._columns.pop(entry, None) or Column()
        self._columns[entry] = found
        return found

    def _make_room(self) -> None:
        while (self._held > self._max or self._own > self._max // 4) and len(self._shapes) > 1:
            _, oldest = self._shapes.popitem(last=False)
            self._columns.pop(oldest, None)
            self._held -= oldest.own_weight + len(oldest.judgements)
            self._own -= oldest.own_weight
        if self._held > self._max:
            self._shapes.clear()
            self._columns.clear()
            self._held = self._own = 0
