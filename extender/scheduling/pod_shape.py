"""Pod shapes, and their judgements by class of nodes.

Rules of this file
- Bounded: at most `max_judgements` are held, and a pod shape counts as one for each `JUDGEMENT_BYTES` that it takes.
  The shapes themselves take a quarter of that at most, because authors of pods choose how large they are.
  The pod shape that was used longest ago is dropped first, with all of its judgements.
- A pod shape forgets the classes that no node has any more: it holds three times as many judgements as there are nodes.
- Classes are immutable and their ids are never reused, so no entry becomes wrong.
- The judged pod has no UID of a real pod. A node that already holds a replica would otherwise answer for that replica.
- A judgement is kept as its number (code) among the different ones of the shape. These are few, so that a call about
  thousands of nodes is a few array operations, and a score is computed once for each different judgement.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from extender.bounded import BoundedMap
from extender.cluster.class_index import Classes
from extender.cluster.free_table import Int64s
from extender.cluster.node_class import NodeClass
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import is_aligned, resolve
from extender.kubelet.rules import Rules
from extender.replay.alignment_demand import NO_DEMAND
from extender.replay.pod import Pod
from extender.replay.pod_steps import PodSteps
from extender.scheduling.judgement import Judgement
from extender.wire.nri_annotations import annotation_faults

UNJUDGED: Final = -1
"""The code of a node without a judgement."""
_MANY: Final = 1000
_MAX_SCALES: Final = 8
"""The number of scales for which scores are kept."""

SHAPE_UID: Final = "\0shape"
"""A UID that no API server assigns: no node holds anything for it."""

S = TypeVar("S", bound=Hashable)


class PodShape:
    """A pod without its name, with its request resolved once for each rule set of kubelets. Any thread may call it."""

    __slots__ = ("_has_faults", "_key", "_requests", "_steps", "has_demand", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.has_demand: Final = pod.demand != NO_DEMAND
        self._requests: dict[Rules, PodRequest] = {}
        self._steps: dict[Rules, PodSteps] = {}
        self._has_faults: bool | None = None
        self._key: tuple[object, ...] | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """`Pod.whole_shape`, computed once."""
        if self._key is None:
            self._key = self.pod.whole_shape
        return self._key

    @property
    def has_annotation_faults(self) -> bool:
        """Whether something is wrong with the pod's annotations of the NRI topology-aware policy."""
        if self._has_faults is None:
            names = [container.name for container in self.pod.containers]
            self._has_faults = bool(annotation_faults(self.pod.metadata.annotations, names))
        return self._has_faults

    def request(self, rules: Rules) -> PodRequest:
        """The pod's request to the managers of a kubelet with these rules."""
        found = self._requests.get(rules)
        if found is None:
            found = self._requests[rules] = resolve(self.pod, rules)
        return found

    def steps(self, rules: Rules) -> PodSteps:
        """The merges of the pod's admission by a kubelet with these rules."""
        found = self._steps.get(rules)
        if found is None:
            found = self._steps[rules] = PodSteps(self.request(rules))
        return found

    def is_aligned_anywhere(self, rules: Iterable[Rules]) -> bool:
        """Whether a manager of a kubelet with any of *rules* can have something to align for the pod."""
        return any(is_aligned(self.request(each)) for each in rules)


class Kinds:
    """The different judgements of one pod shape. Their codes are 0, 1, 2, …, and never change."""

    def __init__(self) -> None:
        self.judgements: Final[list[Judgement]] = []
        self._code_of: Final[dict[Judgement, int]] = {}
        self._scores: Final[dict[Hashable, NDArray[np.uint8]]] = {}

    def code(self, judgement: Judgement) -> int:
        """The code of a judgement."""
        code = self._code_of.setdefault(judgement, len(self.judgements))
        if code == len(self.judgements):
            self.judgements.append(judgement)
        return code

    def scores_of(self, codes: Int64s, scale: S, score: Callable[[Judgement, S], int]) -> NDArray[np.uint8]:
        """The score of each node of a request: always the same *score*, applied to its judgement and the *scale*."""
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


@dataclass(frozen=True, kw_only=True)
class NodeAnswers:
    """The judgements of the nodes of one request.

    `names`: those of the request; all else is in their order. `classes`: those that were judged. `codes`: each node's
    judgement, as a position in `kinds`. `version`: that of the index of all classes when the request came. `entry`:
    what is kept of the pod's shape.
    """

    names: Sequence[str]
    classes: Classes
    codes: Int64s
    kinds: Kinds
    version: int
    entry: "ShapeJudgements"

    @cached_property
    def counts(self) -> Sequence[tuple[int, Judgement, int]]:
        """(code, judgement, number of nodes) of each different judgement."""
        counts = np.bincount(self.codes)
        present = np.flatnonzero(counts)
        judgements = map(self.kinds.judgements.__getitem__, present.tolist())
        return list(zip(present.tolist(), judgements, counts[present].tolist(), strict=True))

    def names_at(self, positions: Int64s) -> list[str]:
        """The names of nodes by their positions."""
        return list(map(self.names.__getitem__, positions.tolist()))


MAX_SLOW: Final = 1_000
"""The number of classes that a pod shape remembers as slow to replay."""
JUDGEMENT_BYTES: Final = 100
FEW: Final = 64
"""Judgements of a pod shape that are kept without asking whether a node still has the class."""


class ShapeJudgements:
    """The judgements of one pod shape. `codes`: by class id, those of `kinds`."""

    __slots__ = ("_full_at", "codes", "key", "kinds", "own_weight", "shape", "shares")

    def __init__(self, pod: Pod, key: object) -> None:
        self.key: Final = key
        self.shape: Final = PodShape(replace(pod, uid=SHAPE_UID))
        self.kinds = Kinds()
        self.codes: dict[int, int] = {}
        self.shares: Final[BoundedMap[int, int]] = BoundedMap(MAX_SLOW)
        """Shares of steps used so far by each class whose replay takes long, by class id; see `judge`."""
        self.own_weight: Final = 1 + pod.weight_bytes // JUDGEMENT_BYTES
        """As how many judgements the shape itself counts."""
        self._full_at = FEW

    def get(self, class_id: int) -> Judgement | None:
        """The judgement of a class; None if there is none."""
        code = self.codes.get(class_id)
        return None if code is None else self.kinds.judgements[code]

    def codes_of(self, class_ids: Int64s, kinds: Kinds) -> Int64s:
        """The codes in *kinds* of the judgements of classes; `UNJUDGED` for those that have none.

        *kinds*: those of this shape when the call began.
        """
        ids = class_ids.tolist()
        if kinds is self.kinds:
            return np.fromiter(map(self.codes.get, ids, repeat(UNJUDGED)), np.int64, len(ids))
        return np.array([UNJUDGED if (each := self.get(i)) is None else kinds.code(each) for i in ids], np.int64)

    def missing(self, classes: Iterable[NodeClass]) -> list[NodeClass]:
        """The classes of *classes* that have no judgement."""
        known = self.codes
        return [each for each in classes if each.id not in known]

    def add(self, codes: Mapping[int, int], class_ids: Int64s) -> None:
        """Add judgements, and forget old ones of classes that are not among *class_ids*.

        The newest stay in any case: a call that is not answered yet may need them.
        """
        self.codes.update(codes)
        if len(self.codes) > self._full_at:
            current = set(class_ids.tolist())
            old = len(self.codes) - max(len(current), len(codes), FEW)
            self.codes = {i: each for n, (i, each) in enumerate(self.codes.items()) if n >= old or i in current}
            if len(self.kinds.judgements) > 2 * len(self.codes) + _MANY:
                before, self.kinds = self.kinds.judgements, Kinds()
                self.codes = {i: self.kinds.code(before[each]) for i, each in self.codes.items()}
            self._full_at = len(self.codes) + max(len(current), FEW)


class JudgementCache:
    """The entries of all pod shapes. *max_judgements*: see the file's rules."""

    def __init__(self, max_judgements: int) -> None:
        self._max: Final = max_judgements
        self._shapes: OrderedDict[object, ShapeJudgements] = OrderedDict()
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

    def store(self, entry: ShapeJudgements, judgements: Mapping[int, Judgement], class_ids: Int64s) -> None:
        """Add judgements, by class id, to *entry*. *class_ids*: the classes that nodes have now.

        An entry that was dropped while its judgements were computed still serves the call that holds it.
        """
        self.store_codes(entry, {i: entry.kinds.code(each) for i, each in judgements.items()}, class_ids)

    def store_codes(self, entry: ShapeJudgements, codes: Mapping[int, int], class_ids: Int64s) -> None:
        """As `store`, for judgements that have their codes."""
        before = len(entry.codes)
        entry.add(codes, class_ids)
        if self._shapes.get(entry.key) is entry:
            self._held += len(entry.codes) - before
            self._make_room()

    def _make_room(self) -> None:
        while (self._held > self._max or self._own > self._max // 4) and len(self._shapes) > 1:
            _, oldest = self._shapes.popitem(last=False)
            self._held -= oldest.own_weight + len(oldest.codes)
            self._own -= oldest.own_weight
        if self._held > self._max:
            self._shapes.clear()
            self._held = self._own = 0
