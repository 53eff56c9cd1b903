"""Judgements that were made before.

Laws of this file
- Bounded: at most `max_judgements` are held; the pod shapes asked for longest ago go first, whole.
- Classes are immutable and their ids never used twice, so nothing here ever becomes wrong, only useless.
- What is judged bears no pod's UID: a node answers otherwise to a pod that it holds already, such as the replica that a
  shape was first asked for, than to the next one.
- Two steps, so that a caller can replay in another thread: `missing` says what to compute, `store` keeps it.
- What is known by the names of nodes (`SureNodes`) can become wrong, and is brought up to date before each use.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from extender.cluster.node_class import NodeClass
from extender.replay.budget import MAX_STEPS, Budget
from extender.replay.pod import Pod
from extender.scheduling.judge import BoundedJudge, Judgement, PodShape, Trouble
from extender.scheduling.known_feasible import SureNodes

Judgements = Mapping[int, Judgement]
"""Judgements of one pod shape, by class id."""

MAX_SURE_SHAPES: Final = 16
"""Pod shapes whose sure nodes are kept by name: with 5,000 nodes a megabyte each."""

FIRST_STEPS: Final = 100_000
"""Steps of a replay before all other classes were looked at: tens of milliseconds."""
LOOP_STEPS: Final = 5_000
"""Steps on the event loop: some milliseconds. Nearly every replay takes fewer, see docs/decisions.md."""

NOBODY: Final = "\0nobody"
"""A UID that no API server gives."""


class ShapeMemo:
    """What is remembered of one pod shape."""

    __slots__ = ("judgements", "key", "shape")

    def __init__(self, pod: Pod) -> None:
        self.key: Final = pod.shape
        self.shape: Final = PodShape(replace(pod, uid=NOBODY))
        self.judgements: Final[dict[int, Judgement]] = {}

    def missing(self, classes: Iterable[NodeClass]) -> list[NodeClass]:
        """Those of *classes* that were not judged yet."""
        known = self.judgements
        return [each for each in classes if each.id not in known]


class VerdictMemo:
    """Judgements by pod shape and class of nodes."""

    def __init__(self, max_judgements: int) -> None:
        self._max: Final = max_judgements
        self._shapes: OrderedDict[object, ShapeMemo] = OrderedDict()
        self._sure: OrderedDict[ShapeMemo, SureNodes] = OrderedDict()
        self._held = 0
        """Judgements held, and one for each shape."""

    def __len__(self) -> int:
        return self._held

    def shape(self, pod: Pod) -> ShapeMemo:
        """What is remembered of pods of this shape; newly made if it is nothing."""
        memo = self._shapes.get(pod.shape)
        if memo is None:
            memo = ShapeMemo(pod)
            self._shapes[memo.key] = memo
            self._held += 1
            self._make_room()
        else:
            self._shapes.move_to_end(memo.key)
        return memo

    def store(self, memo: ShapeMemo, judgements: Judgements) -> None:
        """Keep new judgements; forgets the shapes asked for longest ago if there are too many.

        A memo that was forgotten while its judgements were computed still answers whoever holds it.
        """
        before = len(memo.judgements)
        memo.judgements.update(judgements)
        if self._shapes.get(memo.key) is memo:
            self._held += len(memo.judgements) - before
            self._make_room()

    def sure(self, memo: ShapeMemo) -> SureNodes:
        """The nodes that surely take pods of this shape, to be brought up to date; the last few shapes have some."""
        if self._shapes.get(memo.key) is not memo:  # forgotten, and to be forgotten with all that it knows
            return SureNodes()
        found = self._sure.setdefault(memo, SureNodes())
        self._sure.move_to_end(memo)
        if len(self._sure) > MAX_SURE_SHAPES:
            self._sure.popitem(last=False)
        return found

    def _make_room(self) -> None:
        while self._held > self._max and len(self._shapes) > 1:
            _, oldest = self._shapes.popitem(last=False)
            self._sure.pop(oldest, None)
            self._held -= 1 + len(oldest.judgements)
        if self._held > self._max:
            self._shapes.clear()
            self._sure.clear()
            self._held = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """`judgements` by class id. `heavy`: classes that needed more than `FIRST_STEPS` and were not judged in time."""

    judgements: dict[int, Judgement]
    heavy: frozenset[int]


def judge_all(
    judge: BoundedJudge,
    shape: PodShape,
    classes: Iterable[NodeClass],
    out_of_time: Callable[[], bool] = lambda: False,
    known_heavy: Callable[[int], bool] = lambda _class_id: False,
) -> Judged:
    """Judge each class, or as many as there is time for; the work of a first call, fit for another thread.

    Every class gets `FIRST_STEPS` at first. Those that need more come after all the others, with `MAX_STEPS`; but not
    those of which *known_heavy* says that they were given up before, for this pod or another one.
    """
    judged: dict[int, Judgement] = {}
    heavy: dict[int, NodeClass] = {}
    for each in classes:
        if out_of_time():
            break
        judgement = judge(shape, each, Budget(FIRST_STEPS, out_of_time))
        if judgement.trouble is Trouble.STEPS and not known_heavy(each.id):
            heavy[each.id] = each
        elif judgement.trouble is not Trouble.TIME:
            judged[each.id] = judgement
    for each in heavy.values():
        if out_of_time():
            break
        judgement = judge(shape, each, Budget(MAX_STEPS, out_of_time))
        if judgement.trouble is not Trouble.TIME:
            judged[each.id] = judgement
    return Judged(judged, frozenset(heavy.keys() - judged.keys()))


def judge_quickly(judge: BoundedJudge, shape: PodShape, classes: Iterable[NodeClass]) -> dict[int, Judgement]:
    """The judgements that take no more than `LOOP_STEPS` steps in all; fit for the event loop."""
    judged: dict[int, Judgement] = {}
    steps: float = LOOP_STEPS
    for each in classes:
        budget = Budget(steps)
        judgement = judge(shape, each, budget)
        if judgement.trouble is Trouble.STEPS:
            break
        judged[each.id] = judgement
        steps -= budget.used
    return judged
