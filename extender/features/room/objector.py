"""Keeps other pods from the nodes of the plan that is carried out, and leads replacements to the expected nodes.

Rules of this file
- The replacement of an evicted pod is offered the expected node only, if it is feasible. If it is not, the pod may go
  anywhere: it must run again.
- Other pods are refused on the nodes of the plan while another node fits them. Not so the waiting pod, and pods of a
  higher priority.
- Without a plan filter does not ask.
"""

from typing import Final

from extender.features.room.record import MovePlan, PodMove
from extender.kube.objects import Json
from extender.kube.pod_objects import controller_of
from extender.scheduling.objections import FilterCall, Filtered, Objector, avoid
from extender.scheduling.reasons import RefusalReason


class RoomObjector(Objector):
    """The objector. `grounds`: the plan, or nothing."""

    def __init__(self) -> None:
        self._plans: Final[list[MovePlan]] = []
        self.grounds = self._plans

    def use(self, plan: MovePlan | None) -> None:
        """The plan that is carried out; None: there is none."""
        self._plans[:] = [] if plan is None else [plan]

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result as the rules of this file say."""
        (plan,) = self._plans
        if call.args.pod.uid == plan.subject_uid or call.args.priority > plan.priority:
            return filtered
        move = _move_of(plan, call.args.document)
        kept = [name for name in filtered.feasible if name != move.to] if move is not None else plan.nodes
        if move is not None and move.to not in filtered.feasible:
            return filtered
        return avoid(filtered, kept, RefusalReason.ROOM)


def _move_of(plan: MovePlan, document: Json) -> PodMove | None:
    """The move whose replacement the pod is."""
    owner = controller_of(document)
    return next(
        (each for each in plan.moves if each.state in ("evicting", "evicted") and each.owner_uid == owner), None
    )
