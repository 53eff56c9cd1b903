"""The four Topology Manager policies: how each filters hints before the merge, and when it admits.

Mirrors: kubelet `cm/topologymanager/policy_{none,best_effort,restricted,single_numa_node}.go`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.config import TopologyPolicy
from extender.kubelet.hints import Distances, Hints, TopologyHint, merge


class Decision(NamedTuple):
    """The result of one merge under a policy. `hint.affinity` None means any node. `why` is for explanations."""

    hint: TopologyHint
    admitted: bool
    why: str


def decide(
    policy: TopologyPolicy,
    lists: Sequence[Hints],
    default_mask: int,
    distances: Distances | None,
    budget: Budget = UNLIMITED,
    *,
    shows_refused: bool = False,
) -> Decision:
    """Merge the hints of all resources that have a preference and apply the policy's admit rule.

    Only with *shows_refused* is the mask of a hint that is not admitted the kubelet's. Nothing in an admission depends
    on that mask, and it takes most of the time of a merge. Policy none never calls this: it takes no hints.
    """
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return _single_numa_node(lists, default_mask, budget, shows_refused=shows_refused)
    # Distances of masks can crash the kubelet, so with these every mask is looked at.
    preferred_only = policy is TopologyPolicy.RESTRICTED and distances is None and not shows_refused
    hint, why = merge(lists, default_mask, distances, budget, preferred_only=preferred_only)
    return Decision(hint, policy is TopologyPolicy.BEST_EFFORT or hint.preferred, why)


def _single_numa_node(lists: Sequence[Hints], default_mask: int, budget: Budget, *, shows_refused: bool) -> Decision:
    """Only preferred single-node masks count. An affinity to the whole machine is stored as "any node".

    Distances are not used: the merger of this policy is created without them.
    """
    narrowed = []
    for hints in lists:
        single = hints.preferred & hints.universe.by_width[1] if hints.preferred else 0
        if not single:
            return Decision(TopologyHint(None, preferred=False), admitted=False, why="a resource fits no single node")
        narrowed.append(Hints(hints.universe, single, single))
    hint, why = merge(narrowed, default_mask, None, budget, preferred_only=not shows_refused)
    affinity = None if hint.affinity == default_mask else hint.affinity
    return Decision(TopologyHint(affinity, hint.preferred), hint.preferred, why)
