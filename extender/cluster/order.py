"""In which orders a kubelet can have admitted the pods that no report shows yet.

Laws of this file
- A kubelet that watches hears of one binding after the other. One that starts, or whose watch begins anew, hears of
  many at once, and admits the older pods first: by creation time, which has whole seconds; equal ones in any order.
- So the pod that was bound first comes first, unless another one is no younger than it. Nothing overtakes a pod that
  was seen started, or gone, before the other one was bound.
- Of two pods that nothing tells apart but their names, either order leads to the same.

Mirrors: kubelet `kubelet.go` HandlePodAdditions, `config/config.go` podStorage.merge; the same from 1.27 on.
"""

from collections.abc import Collection, Sequence
from itertools import combinations

from extender.cluster.ledger import Admit, Event, Release


def predecessors(admits: Sequence[Admit], events: Sequence[Event], told_apart: Collection[str]) -> list[int]:
    """For each of *admits* the bits of those that the kubelet has surely met before it.

    *admits* are some of *events*, both in the ledger's order; *told_apart*: UIDs of pods that are more than a shape.
    """
    place = {(type(event), event.uid): position for position, event in enumerate(events)}
    before = [0] * len(admits)
    for (i, first), (j, second) in combinations(enumerate(admits), 2):
        left_at = place.get((Release, first.uid))
        is_over = left_at is not None and left_at < place[Admit, second.uid]
        if is_over or not _may_overtake(first, second, told_apart):
            before[j] |= 1 << i
    return before


def _may_overtake(first: Admit, second: Admit, told_apart: Collection[str]) -> bool:
    """Whether the kubelet may have met *second* before *first*, which stands before it in the ledger."""
    if second.ordered and first.started_at is not None and first.started_at <= second.since:
        return False
    if first.unsure or not (first.ordered or second.ordered):
        return True
    if first.pod.shape == second.pod.shape and not {first.uid, second.uid} & set(told_apart):
        return False
    ages = first.pod.created_at, second.pod.created_at
    return ages[0] is not None and ages[1] is not None and ages[1] <= ages[0]
