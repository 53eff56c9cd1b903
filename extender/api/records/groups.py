"""GET /v1/groups: the groups of pods that are placed together, and the places that are held for them."""

from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter
from pydantic import BaseModel, Field

from extender.api.service import Service
from extender.scheduling.gangs.record import GroupRecord, GroupState

MAX_SHOWN: Final = 500


class PlaceView(BaseModel):
    """Room on a node for one pod of a group."""

    uid: Annotated[str, Field(description="The pod's UID. Empty: the place is for a pod that has not come yet.")]
    node_name: Annotated[str, Field(description="Empty: the pod may run on any node.")]
    bound: bool


class GroupView(BaseModel):
    """A group of pods."""

    namespace: str
    name: str
    source: Annotated[str, Field(description="What names the group, such as `coscheduling` or `leader_worker_set`.")]
    state: GroupState
    size: Annotated[int, Field(description="Pods that must run together; 0: not known, so each pod is judged alone.")]
    places: list[PlaceView]
    seconds_left: Annotated[
        float | None, Field(description="Time until its places are given back; null: none are held.")
    ]
    rests_seconds: Annotated[float, Field(description="Time until it may hold places again.")]
    fit: Annotated[int | None, Field(description="How many pods the last plan could place, if not all.")]
    why: Annotated[dict[str, int], Field(description="How many nodes refused one more pod at that plan, by reason.")]


class GroupsView(BaseModel):
    """The groups, the one that changed last first."""

    enabled: bool
    total: int
    groups: Annotated[list[GroupView], Field(max_length=MAX_SHOWN)]


def groups_router(service: Service) -> APIRouter:
    """GET /v1/groups."""
    router = APIRouter(prefix="/v1", tags=["scheduler"])

    @router.get("/groups", summary="Groups of pods that are placed together or not at all")
    async def get_groups() -> GroupsView:
        """The groups whose pods have come to filter or are bound, with the places that are held for them."""
        gangs, now = service.scheduling.gangs, service.clock()
        if gangs is None:
            return GroupsView(enabled=False, total=0, groups=[])
        gangs.groups.expire(now)
        newest = islice(reversed(list(gangs.groups)), MAX_SHOWN)
        return GroupsView(enabled=True, total=len(gangs.groups), groups=[_view(each, now) for each in newest])

    return router


def _view(record: GroupRecord, now: float) -> GroupView:
    source, namespace, name = record.key
    bound = [PlaceView(uid=uid, node_name=node, bound=True) for uid, node in record.bound.items()]
    held = [PlaceView(uid=uid, node_name=place.node_name, bound=False) for uid, place in record.places]
    return GroupView(
        namespace=namespace,
        name=name,
        source=source,
        state=record.state,
        size=record.size,
        places=[*bound, *held],
        seconds_left=round(record.hold_until - now, 3) if record.has_places else None,
        rests_seconds=round(max(0.0, record.rests_until - now), 3),
        fit=None if record.unfit is None else record.unfit.fit,
        why={} if record.unfit is None else dict(record.unfit.why),
    )
