"""What filter answers for pods of groups: one node of the feasible ones, and why nodes are refused."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from extender.kubelet.verdict import Certainty
from extender.scheduling.judgement import Judgement
from extender.scheduling.objections import Filtered, newly_refused
from extender.scheduling.reasons import RefusalReason

HELD: Final = Judgement(RefusalReason.HELD, Certainty.EXACT)
"""The judgement of nodes where the pod would take room that is held for the pods of a group."""
NOT_TOGETHER: Final = Judgement(RefusalReason.GROUP_UNFIT, Certainty.EXACT)
"""The judgement of nodes that admit the pod, but not all pods of its group."""


def refused_for_groups(before: Filtered, after: Filtered) -> Mapping[str, Judgement]:
    """The new judgement of each node that *after* refuses and *before* does not refuse."""
    held = RefusalReason.HELD.text
    return {name: HELD if text == held else NOT_TOGETHER for name, text in newly_refused(before, after).items()}


def only(filtered: Filtered, name: str) -> Filtered:
    """*filtered* with one feasible node. The others are left out without a reason: they do not refuse the pod."""
    if not name:
        return filtered
    return replace(filtered, feasible=[name])


def only_place(before: Filtered, after: Filtered) -> str:
    """The node to which *after* limits the pod without refusing the others; "" if there is none."""
    left_out = len(before.feasible) + len(before.refused) - len(after.feasible) - len(after.refused)
    return after.feasible[0] if left_out > 0 else ""
