"""Replays of node classes that have no judgement yet.

Rules of this file
- Every class gets `FIRST_STEPS` first. Classes that need more come last, so that they delay no other class.
- `judge_all` can run in any thread; `judge_quickly` is short enough for the event loop.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from extender.cluster.node_class import NodeClass
from extender.replay.budget import MAX_STEPS, Budget
from extender.replay.pod import ContainerKind, Pod
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Judgement, Trouble
from extender.scheduling.pod_shape import PodShape

FIRST_STEPS: Final = 100_000
"""Steps of a replay before all other classes had their turn: tens of milliseconds."""
LOOP_STEPS: Final = 5_000
"""Steps of all replays of one call on the event loop: some milliseconds. Nearly every replay takes fewer."""


def likely_first(pod: Pod, classes: Sequence[NodeClass]) -> Sequence[NodeClass]:
    """The classes whose free CPUs suffice for the pod, in the order given, and then the others."""
    wanted = sum(c.requests_milli.get("cpu", 0) // 1000 for c in pod.containers if c.kind is not ContainerKind.INIT)

    def is_unlikely(node_class: NodeClass) -> bool:
        state = node_class.state
        return state is not None and state.cpu.default.bit_count() < wanted

    return sorted(classes, key=is_unlikely)


@dataclass(frozen=True, slots=True)
class Judged:
    """`judgements` by class id. `heavy`: classes that needed more than `FIRST_STEPS` and were not judged in time."""

    judgements: dict[int, Judgement]
    heavy: frozenset[int]


def time_limit(clock: Callable[[], float], deadline: float | None) -> Callable[[], bool]:
    """Says whether *deadline* has passed; None: it never has."""
    return lambda: deadline is not None and clock() > deadline


def judge_all(
    judge: BoundedJudge,
    shape: PodShape,
    classes: Iterable[NodeClass],
    out_of_time: Callable[[], bool] = lambda: False,
    known_heavy: Callable[[int], bool] = lambda _class_id: False,
) -> Judged:
    """Judge each class, or as many as there is time for. May run in another thread.

    Every class gets `FIRST_STEPS` at first. Those that need more come after all the others, with `MAX_STEPS`. Classes
    that are *known_heavy* do not come again: their replay was stopped before, for this pod or another one.
    """
    judged: dict[int, Judgement] = {}
    heavy: dict[int, NodeClass] = {}
    for node_class in classes:
        if out_of_time():
            break
        judgement = judge(shape, node_class, Budget(FIRST_STEPS, out_of_time))
        if judgement.trouble is Trouble.STEPS and not known_heavy(node_class.id):
            heavy[node_class.id] = node_class
        elif judgement.trouble is not Trouble.TIME:
            judged[node_class.id] = judgement
    for node_class in heavy.values():
        if out_of_time():
            break
        judgement = judge(shape, node_class, Budget(MAX_STEPS, out_of_time))
        if judgement.trouble is not Trouble.TIME:
            judged[node_class.id] = judgement
    return Judged(judged, frozenset(heavy.keys() - judged.keys()))


def judge_quickly(judge: BoundedJudge, shape: PodShape, classes: Iterable[NodeClass]) -> dict[int, Judgement]:
    """The judgements that take no more than `LOOP_STEPS` steps in all; fit for the event loop."""
    judged: dict[int, Judgement] = {}
    steps: float = LOOP_STEPS
    for node_class in classes:
        budget = Budget(steps)
        judgement = judge(shape, node_class, budget)
        if judgement.trouble is Trouble.STEPS:
            break
        judged[node_class.id] = judgement
        steps -= budget.used
    return judged
