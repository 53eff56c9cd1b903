"""The possible orders in which a kubelet admitted the pods that no report shows yet.

Rules of this file
- A running watch of the kubelet delivers one binding after the other. A kubelet that starts, or whose watch is opened
  again, receives many at once, and admits the older pods first: by creation time in whole seconds, equal ones in any
  order.
- So the pod that was bound first comes first, unless another one is at least as old. No pod overtakes a pod that was
  seen as started, or as gone, before the first one was bound.
- If two pods differ only in their names, both orders give the same result, and the pod that was bound first is assumed
  to come first. An exception is a third pod that, because of their ages, can come between them in one order only: then
  both orders are tried.

Mirrors: kubelet `kubelet.go` HandlePodAdditions, `config/config.go` podStorage.merge; the same from 1.27 on.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import combinations

from extender.cluster.ledger import Admit, BindingState, Event, Release
from extender.kubelet.sets import iter_bits
from extender.replay.pod import Pod


def predecessors(
    admits: Sequence[Admit],
    events: Sequence[Event],
    distinguished: Collection[str],
    shape_of: Callable[[Pod], object] = lambda pod: pod.shape,
    *,
    in_any_order: bool = False,
) -> list[int]:
    """For each of *admits*, the bits of those before it, for every order that can give another outcome.

    *admits* are some of *events*, both in the ledger's order; *distinguished*: UIDs of pods of which more than the
    shape matters. *in_any_order*: containers are created in any order, because they wait for images and volumes.
    """
    if len(admits) < 2:
        return [0] * len(admits)
    surely = _surely_before(admits, events, in_any_order=in_any_order)
    before = list(surely)
    if all(each == (1 << number) - 1 for number, each in enumerate(surely)):  # the order is certain
        return before
    shapes = [shape_of(admit.pod) for admit in admits]
    after = _after(surely)
    for (i, first), (j, second) in combinations(enumerate(admits), 2):
        is_alike = BindingState.IN_DOUBT not in (first.binding, second.binding) and shapes[i] == shapes[j]
        if is_alike and not {first.uid, second.uid} & set(distinguished) and _may_swap_names(i, j, surely, after):
            before[j] |= 1 << i
    return before


def _surely_before(admits: Sequence[Admit], events: Sequence[Event], *, in_any_order: bool) -> list[int]:
    """For each of *admits*, the bits of those that the kubelet certainly admitted before it."""
    place = {(type(event), event.uid): position for position, event in enumerate(events)}
    before = [0] * len(admits)
    for (i, first), (j, second) in combinations(enumerate(admits), 2):
        left_at = place.get((Release, first.uid))
        is_over = left_at is not None and left_at < place[Admit, second.uid]
        if is_over or not (in_any_order or _may_overtake(first, second)):
            before[j] |= 1 << i
    return before


def _after(before: Sequence[int]) -> list[int]:
    """For each admission, the bits of the later ones: those that certainly came after it."""
    after = [0] * len(before)
    for number, bits in enumerate(before):
        for earlier in iter_bits(bits):
            after[earlier] |= 1 << number
    return after


def _may_swap_names(i: int, j: int, before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether *j* can be swapped with *i*, which is later in the ledger, in every order that has *j* before *i*.

    A third admission between them prevents that if it is certainly before *i* but not before *j*, or certainly after
    *j* but not after *i*.
    """
    return not before[i] & ~before[j] and not after[j] & ~after[i]


def _may_overtake(first: Admit, second: Admit) -> bool:
    """Whether the kubelet may have admitted *second* before *first*, which is earlier in the ledger."""
    if second.ordered and first.started_at is not None and first.started_at <= second.since:
        return False
    if first.binding is BindingState.IN_DOUBT or not (first.ordered or second.ordered):
        return True
    ages = first.pod.created_at, second.pod.created_at
    return ages[0] is not None and ages[1] is not None and ages[1] <= ages[0]
