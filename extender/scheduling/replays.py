"""Replays of node classes that have no judgement yet: each gets its share, and one that takes long costs only itself.

Rules of this file
- Every class gets the first of `SHARES` before any gets the second. So what takes few steps is judged first, and no
  class delays another by more than its share.
- Last shares of one namespace's pods take at most a tenth of the time: see `CachedJudge.answer`.
- Once a node is feasible, the call spends `LATER_STEPS` on second shares and begins no third one. What is left goes on
  with the next call, at the share where it stopped.
- Steps stand for time. A class that twice used much more CPU time than its steps say has used up all of its shares.
- Nodes whose states differ only in what does not matter to the pod need one judgement (`Alike`).
- `judge_all` can run in any thread; `judge_quickly` is short enough for the event loop.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from extender.cluster.free_table import NO_KEY, FreeTable, Int64s, RowGroup, StatesGroup
from extender.cluster.node_class import NodeClass
from extender.kubelet.budget import Budget
from extender.kubelet.verdict import Certainty
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Judgement, PodShape, Trouble
from extender.scheduling.reasons import RefusalReason

SHARES: Final = (5_000, 100_000, 1_000_000)
"""Steps of a replay in its first, second and last turn: from some milliseconds to a second.

The most that a recorded admission takes is 181,000, and 3 of 14,981 take more than 100,000 (docs/decisions.md)."""
LATER_STEPS: Final = SHARES[1]
"""Steps of second shares in one call after which no other one begins, if a node is feasible."""
SLOW_SECONDS: Final = 20e-6
"""A replay whose steps take more CPU time than this each counts as slow. A step takes about a microsecond."""
SPARE_SECONDS: Final = 0.2
"""CPU time that a replay may take beyond its steps."""
LONG_SECONDS: Final = 0.3
"""If the replays of a call take longer, they are long: kube-scheduler makes one call after another."""
PAUSE_SHARE: Final = 9.0
"""After long replays, pods of the namespace get no last shares for this many times as long."""
MAX_RESTING: Final = 1_000
"""The number of namespaces for which that is kept."""
SLOW: Final = Judgement(RefusalReason.LATE, Certainty.UNKNOWN, trouble=Trouble.STEPS)
"""The judgement of a class that has used up its shares: its nodes are left out, and no others."""
LOOP_STEPS: Final = 5_000
"""Steps of all replays of one call on the event loop: some milliseconds. Nearly every replay takes fewer."""


@dataclass(frozen=True, slots=True)
class Judged:
    """`judgements` by class id. `had`: how many shares each class that needs more has used up, by class id."""

    judgements: dict[int, Judgement] = field(default_factory=dict)
    had: dict[int, int] = field(default_factory=dict)


def time_limit(clock: Callable[[], float], deadline: float | None) -> Callable[[], bool]:
    """Says whether *deadline* has passed; None: it never has."""
    return lambda: deadline is not None and clock() > deadline


def shares_to_have(*, is_any_feasible: bool) -> int:
    """How many shares a class can get in a call."""
    return len(SHARES) - 1 if is_any_feasible else len(SHARES)


def judge_all(
    judge: BoundedJudge,
    shape: PodShape,
    classes: Collection[NodeClass],
    out_of_time: Callable[[], bool] = lambda: False,
    had: Mapping[int, int] | None = None,
    is_any_feasible: bool = False,  # noqa: FBT001, FBT002 - work that runs elsewhere takes no keywords
    cpu_clock: Callable[[], float] = lambda: 0.0,
) -> Judged:
    """Judge each class, or as many as there is time for. May run in another thread.

    *had*: how many of its `SHARES` a class had in earlier calls, by class id; 0 if it is not there. *is_any_feasible*:
    whether a node of another class is feasible. *cpu_clock*: seconds of CPU time of the thread.
    """
    shares = {each.id: (had or {}).get(each.id, 0) for each in classes}
    judged, spent = Judged(), 0.0
    for number, steps in enumerate(SHARES):
        for each in classes:
            if shares[each.id] != number or each.id in judged.judgements:
                continue
            is_enough = number >= shares_to_have(is_any_feasible=is_any_feasible) or spent >= LATER_STEPS
            if out_of_time() or (is_any_feasible and number and is_enough):
                return judged
            for _ in range(2):  # a pause of the process can take the time of one replay, and seldom of two in a row
                budget, began = Budget(steps, out_of_time), cpu_clock()
                judgement = judge(shape, each, budget)
                is_slow = cpu_clock() - began > SPARE_SECONDS + SLOW_SECONDS * budget.used
                if not is_slow:
                    break
            spent += budget.used if number else 0
            if is_slow:
                judged.judgements[each.id] = SLOW
            elif judgement.trouble is Trouble.TIME:
                if budget.used > steps / 2:  # the same would happen in each call
                    judged.had[each.id] = number + 1
                return judged
            elif judgement.trouble is Trouble.STEPS and number + 1 < len(SHARES):
                judged.had[each.id] = shares[each.id] = number + 1
            else:
                judged.had.pop(each.id, None)
                judged.judgements[each.id] = judgement
                is_any_feasible |= judgement.refusal is None and judgement.trouble is None
    return judged


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
