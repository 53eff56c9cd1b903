"""In which orders a kubelet can have admitted the pods that no report shows yet.

Rules of this file
- A kubelet that watches hears of one binding after the other. One that starts, or whose watch begins anew, hears of
  many at once, and admits the older pods first: by creation time, which has whole seconds; equal ones in any order.
- So the pod that was bound first comes first, unless another one is no younger than it. Nothing overtakes a pod that
  was seen started, or gone, before the other one was bound.
- Of two pods that nothing tells apart but their names, either order leads to the same: the one bound first is taken to
  come first. Unless their ages tell them apart from a third one: where that may come between only one way round, their
  names do matter.

Mirrors: kubelet `kubelet.go` HandlePodAdditions, `config/config.go` podStorage.merge; the same from 1.27 on.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import combinations

from extender.cluster.ledger import Admit, BindingState, Event, Release
from extender.replay.pod import Pod


def predecessors(
    admits: Sequence[Admit],
    events: Sequence[Event],
    distinguished: Collection[str],
    shape_of: Callable[[Pod], object] = lambda pod: pod.shape,
    *,
    in_any_order: bool = False,
) -> list[int]:
    """For each of *admits* the bits of those that are taken to have been met before it: together, every outcome.

    *admits* are some of *events*, both in the ledger's order; *distinguished*: UIDs of pods that are more than a shape.
    *in_any_order*: what counts is the creation of containers, which waits for images and volumes.
    """
    if len(admits) < 2:
        return [0] * len(admits)
    surely = _surely_before(admits, events, in_any_order=in_any_order)
    before = list(surely)
    shapes = [shape_of(admit.pod) for admit in admits]
    for (i, first), (j, second) in combinations(enumerate(admits), 2):
        is_alike = BindingState.IN_DOUBT not in (first.binding, second.binding) and shapes[i] == shapes[j]
        if is_alike and not {first.uid, second.uid} & set(distinguished) and _may_swap_names(i, j, surely):
            before[j] |= 1 << i
    return before


def _surely_before(admits: Sequence[Admit], events: Sequence[Event], *, in_any_order: bool) -> list[int]:
    """For each of *admits* the bits of those that the kubelet has surely met before it."""
    place = {(type(event), event.uid): position for position, event in enumerate(events)}
    before = [0] * len(admits)
    for (i, first), (j, second) in combinations(enumerate(admits), 2):
        left_at = place.get((Release, first.uid))
        is_over = left_at is not None and left_at < place[Admit, second.uid]
        if is_over or not (in_any_order or _may_overtake(first, second)):
            before[j] |= 1 << i
    return before


def _may_swap_names(i: int, j: int, before: Sequence[int]) -> bool:
    """Whether in every order that has *j* before *i*, which is later in the ledger, these two can change places.

    Only a third one between them can be in the way: one that is surely before *i*, and not before *j*, or surely after
    *j*, and not after *i*.
    """
    is_before_i_only = before[i] & ~before[j]
    is_after_j_only = any(after >> j & 1 and not after >> i & 1 for after in before[j + 1 :])
    return not is_before_i_only and not is_after_j_only


def _may_overtake(first: Admit, second: Admit) -> bool:
    """Whether the kubelet may have met *second* before *first*, which stands before it in the ledger."""
    if second.ordered and first.started_at is not None and first.started_at <= second.since:
        return False
    if first.binding is BindingState.IN_DOUBT or not (first.ordered or second.ordered):
        return True
    ages = first.pod.created_at, second.pod.created_at
    return ages[0] is not None and ages[1] is not None and ages[1] <= ages[0]
