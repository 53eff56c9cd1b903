"""The judgements of pod shapes, by class of nodes and by slot of the node.

Rules of this file
- Bounded: at most `max_judgements` are held, and a pod shape counts as one for each `JUDGEMENT_BYTES` that it takes.
  The shapes themselves take a quarter of that at most, because authors of pods choose how large they are.
  The pod shape that was used longest ago is dropped first, with all of its judgements.
- A pod shape forgets the classes that no node has any more: it holds three times as many judgements as there are nodes.
- Classes are immutable and their ids are never reused, so no entry becomes wrong.
- The judged pod has no UID of a real pod. A node that already holds a replica would otherwise answer for that replica.
- By slot, a call about thousands of nodes is a few array operations. A column has, for each slot, the class that was
  judged and the number (code) of its judgement. It is used only where that class is still the node's, so a column never
  becomes wrong, and no change has to be passed on to it.
- Different judgements are few. The answer and the score that follow from a judgement are computed once for each
  different one.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.bounded import BoundedMap
from extender.cluster.class_index import Classes
from extender.cluster.node_class import NodeClass
from extender.kubelet.verdict import Certainty
from extender.replay.pod import Pod
from extender.scheduling.judgement import SHAPE_UID, Judgement, PodShape

UNJUDGED: Final = -1
"""The code of a slot without a judgement."""
_MANY: Final = 1000
_MAX_SCALES: Final = 8
"""The number of scales for which scores are kept."""

Int64s = NDArray[np.int64]
Answer = tuple[str | None, Certainty]
"""The text of the refusal, None of a feasible node; and the certainty."""
S = TypeVar("S", bound=Hashable)


class Kinds:
    """The different judgements of one pod shape. Their codes are 0, 1, 2, …, and never change."""

    def __init__(self) -> None:
        self.judgements: Final[list[Judgement]] = []
        self.answers: Final[list[Answer]] = []
        """The different answers of filter."""
        self.texts: Final[list[str | None]] = []
        """The different texts of answers."""
        self._code_of: Final[dict[Judgement, int]] = {}
        self._answer_numbers: Final[dict[Answer, int]] = {}
        self._answer_of = np.zeros(8, np.int64)
        self._text_of = np.zeros(0, np.int64)
        self._scores: Final[dict[Hashable, NDArray[np.uint8]]] = {}

    def code(self, judgement: Judgement) -> int:
        """The code of a judgement."""
        code = self._code_of.get(judgement)
        if code is None:
            code = self._code_of[judgement] = len(self.judgements)
            self.judgements.append(judgement)
            text = None if judgement.refusal is None else judgement.refusal.text
            answer = (text, judgement.certainty)
            number = self._answer_numbers.setdefault(answer, len(self.answers))
            if number == len(self.answers):
                self.answers.append(answer)
                if text not in self.texts:
                    self.texts.append(text)
                self._text_of = np.append(self._text_of, self.texts.index(text))
            if code == len(self._answer_of):
                self._answer_of = np.resize(self._answer_of, 2 * code)
            self._answer_of[code] = number
        return code

    def different(self, codes: Int64s) -> tuple[tuple[Judgement, ...], NDArray[np.uint32]]:
        """The different judgements of nodes with *codes*, and the position of each node's judgement among them."""
        present = np.flatnonzero(np.bincount(codes))
        judgements = tuple(map(self.judgements.__getitem__, present.tolist()))
        return judgements, np.searchsorted(present, codes).astype(np.uint32)

    def answers_of(self, codes: Int64s) -> Int64s:
        """For each code: the position of its answer in `answers`."""
        return self._answer_of[codes]

    def texts_of(self, numbers: Int64s) -> Int64s:
        """The number in `texts` of each number in `answers`."""
        return self._text_of[numbers]

    def scores_of(
        self,
        codes: Int64s,
        scale_of: Callable[[Iterable[Judgement]], S],
        score: Callable[[Judgement, S], int],
    ) -> NDArray[np.uint8]:
        """The score of each node of a request. *score* applies the scale that *scale_of* makes to one judgement.

        Both are always the same functions.
        """
        present = np.flatnonzero(np.bincount(codes)).tolist()
        scale = scale_of(map(self.judgements.__getitem__, present))
        known = self._scores.get(scale)
        if known is None or len(known) < len(self.judgements):
            before = [] if known is None else known.tolist()
            # a request with these nodes has a scale that fits them; others may be beyond it
            new = [max(0, min(score(each, scale), 255)) for each in self.judgements[len(before) :]]
            known = np.array(before + new, np.uint8)
            self._scores.pop(scale, None)
            if len(self._scores) >= _MAX_SCALES:
                del self._scores[next(iter(self._scores))]
            self._scores[scale] = known
        return known[codes]


class Column:
    """The judgements of one pod shape by slot; empty at first."""

    def __init__(self) -> None:
        self.kinds = Kinds()
        self._class_ids = np.zeros(0, np.int64)
        self._codes = np.zeros(0, np.int64)

    def codes(self, slots: Int64s, ids: Int64s, size: int, judgements: Mapping[int, Judgement]) -> Int64s:
        """The code of the judgement of each node; `UNJUDGED` where *judgements* has none.

        *slots*, *ids*: slot and class id of each node. *size*: how many slots arrays have. *judgements*: the judgement
        of each class id.
        """
        if len(self._class_ids) != size or len(self.kinds.judgements) > 2 * size + _MANY:
            self.kinds = Kinds()
            self._class_ids = np.full(size, np.iinfo(np.int64).max, np.int64)
            self._codes = np.full(size, UNJUDGED, np.int64)
        codes = self._codes[slots]
        changed = np.flatnonzero(self._class_ids[slots] != ids)
        if len(changed):
            if not judgements:
                codes[changed] = UNJUDGED
                return codes
            code, found = self.kinds.code, map(judgements.get, ids[changed].tolist())
            codes[changed] = [UNJUDGED if each is None else code(each) for each in found]
            judged = changed[codes[changed] != UNJUDGED]
            self._class_ids[slots[judged]], self._codes[slots[judged]] = ids[judged], codes[judged]
        return codes

    def put(self, slots: Int64s, ids: Int64s, judgement: Judgement) -> None:
        """Set the judgement of nodes that are alike, after `codes` with the same size."""
        self._class_ids[slots], self._codes[slots] = ids, self.kinds.code(judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswers:
    """The judgements of the nodes of one request.

    `names`: those of the request; all else is in their order. `classes`: those that were judged. `codes`: each node's
    judgement, as a position in `kinds`. `version`: that of the index of all classes when the request came.
    """

    names: Sequence[str]
    classes: Classes
    codes: Int64s
    kinds: Kinds
    version: int

    def names_at(self, positions: Int64s) -> list[str]:
        """The names of nodes by their positions."""
        return list(map(self.names.__getitem__, positions.tolist()))


Judgements = Mapping[int, Judgement]
"""Judgements of one pod shape, by class id."""

MAX_SLOW: Final = 1_000
"""The number of classes that a pod shape remembers as slow to replay."""
JUDGEMENT_BYTES: Final = 100
FEW: Final = 64
"""Judgements of a pod shape that are kept without asking whether a node still has the class."""
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
        """Shares of steps used so far by each class whose replay takes long, by class id; see `replays`."""
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
        """Add judgements to *entry*. *class_ids*: the classes that nodes have now.

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
