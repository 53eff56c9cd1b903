"""Routes for groups of pods that are placed together, and the places that are held for them."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from heapq import nsmallest
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Depends, HTTPException, Query, Response

from extender.api.http.parameters import known_parameters
from extender.api.http.problems import replies_with
from extender.api.http.replies import json_reply
from extender.api.service import Service
from extender.features.groups.groups import Groups
from extender.features.groups.objector import Gangs
from extender.features.groups.record import GroupRecord, GroupState, Key
from extender.features.groups.views import GroupsView, GroupView, add_details, group_view
from extender.wire.errors import WireError
from extender.wire.groups import APIS, apis_of

PAGE: Final = 100
MAX_PAGE: Final = 500
_ORDER: Final = {
    state: place
    for place, state in enumerate(
        (GroupState.OPEN, GroupState.HOLDING, GroupState.WAITING, GroupState.SINGLE, GroupState.PLACED)
    )
}
_MAX_TEXT: Final = 2048
Place = tuple[int, str, str, str]
"""Where a group is in the order of the pages: state, namespace, name and source."""
_PLACE: Final[msgspec.json.Decoder[Place]] = msgspec.json.Decoder(Place)


def groups_router(service: Service, gangs: Gangs) -> APIRouter:
    """GET /v1/groups, GET /v1/group."""
    router = APIRouter(prefix="/v1", tags=["groups"], dependencies=[Depends(known_parameters)])
    watched = frozenset(APIS[api][0] for api in apis_of(service.settings.gang_apis))

    @router.get(
        "/groups",
        summary="Groups of pods that are placed together or not at all",
        **replies_with(GroupsView, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    async def list_groups(
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Groups a page.")] = PAGE,
        after: Annotated[str, Query(max_length=_MAX_TEXT, description="`next` of the page before.")] = "",
        state: Annotated[GroupState | None, Query(description="Only groups in this state.")] = None,
        name: Annotated[
            str, Query(max_length=_MAX_TEXT, description="Only groups with this text in NAMESPACE/NAME.")
        ] = "",
        node: Annotated[str, Query(max_length=253, description="Only groups that hold places on this node.")] = "",
    ) -> Response:
        """The groups whose pods have come to filter or are bound, with the places that are held for them."""
        now, states = service.clock(), Counter[GroupState]()
        gangs.groups.expire(now)
        on_node = {hold.key for hold in gangs.holds_on(node)}

        def is_wanted(record: GroupRecord) -> bool:
            states[record.state] += 1  # of all groups, also of those that are not wanted
            is_there = not node or record.key in on_node
            return is_there and state in (None, record.state) and name in "/".join(record.key[1:])

        async with service.slices.turn() as breathe:
            total, places = await _page(gangs.groups, is_wanted, _parsed(after), limit + 1, breathe)
            shown = []
            for _, namespace, of, source in places[:limit]:
                await breathe()
                if (record := gangs.groups.get((source, namespace, of))) is not None:
                    shown.append(group_view(record, gangs.groups, watched, now))
        following = msgspec.json.encode(places[limit - 1]).decode() if len(places) > limit else None
        return json_reply(GroupsView(enabled=True, total=total, states=states, groups=shown, next=following))

    @router.get(
        "/group",
        summary="One group of pods",
        **replies_with(GroupView, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    async def get_group(
        source: Annotated[str, Query(max_length=_MAX_TEXT, description="As in the list.")],
        namespace: Annotated[str, Query(max_length=_MAX_TEXT, description="As in the list.")],
        name: Annotated[str, Query(max_length=_MAX_TEXT, description="As in the list; the whole name.")],
    ) -> Response:
        """The group, with the NUMA nodes of its bound pods and of the places that are held for it."""
        return json_reply(await _group_view(service, gangs, watched, (source, namespace, name)))

    return router


async def _group_view(service: Service, gangs: Gangs, watched: Collection[str], key: Key) -> GroupView:
    """The group with the details of its places.

    Raises:
        HTTPException: no such group is known.
    """
    now = service.clock()
    gangs.groups.expire(now)
    record = gangs.groups.get(key)
    if record is None:
        _, namespace, name = key
        raise HTTPException(HTTPStatus.NOT_FOUND, f"no group {namespace[:253]}/{name[:253]} is known")
    shown = group_view(record, gangs.groups, watched, now)
    add_details(shown, service.known, await gangs.room.numa_nodes(record))
    return shown


async def _page(
    groups: Groups,
    is_wanted: Callable[[GroupRecord], bool],
    after: Place | None,
    count: int,
    breathe: Callable[[], Awaitable[None]],
) -> tuple[int, Sequence[Place]]:
    """How many groups are wanted, and the first *count* of them that come after *after*."""
    places: list[Place] = []
    for record in list(groups):
        await breathe()
        if is_wanted(record):
            source, namespace, name = record.key
            places.append((_ORDER[record.state], namespace, name, source))
    following = places if after is None else [place for place in places if place > after]
    return len(places), nsmallest(count, following)


def _parsed(after: str) -> Place | None:
    """The place of the last group of the page before. None: there is none.

    Raises:
        WireError: the text is not a `next`.
    """
    if not after:
        return None
    try:
        return _PLACE.decode(after)
    except msgspec.MsgspecError:
        raise WireError("query.after", "is not a `next` that another page returned") from None
