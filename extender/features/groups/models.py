"""Models of GET /v1/groups and /v1/group: groups of pods, and the places that are held for them."""

from typing import Annotated

from pydantic import BaseModel, Field

from extender.features.groups.record import GroupState
from extender.wire.validation import doc

MAX_PLACES = 256


class PlaceView(BaseModel):
    """Room on a node for one pod of a group."""

    uid: Annotated[str, doc("The pod's UID. Empty: the place is for a pod that has not come yet.")]
    pod: Annotated[str, doc("The pod's name. Empty: not known; only `GET /v1/group` looks for it.")]
    node_name: Annotated[str, doc("Empty: the pod may run on any node.")]
    bound: Annotated[bool, doc("Whether the pod is bound there.")]
    numa: Annotated[
        list[int] | None,
        doc(
            "NUMA nodes where the pod holds or is predicted to hold resources. Null: none, or not known; only `GET "
            "/v1/group` looks for them."
        ),
    ]


class GroupView(BaseModel):
    """A group of pods."""

    namespace: Annotated[str, doc("Namespace of its pods.")]
    name: Annotated[str, doc("Its name. Unique for its source and namespace.")]
    source: Annotated[str, doc("What names the group, such as `coscheduling` or `leader_worker_set`.")]
    state: Annotated[
        GroupState,
        doc(
            "`single`: its pods are judged one by one. `waiting`: it has no places. `holding`: it has places, and no "
            "pod of it is bound. `open`: some of its pods are bound. `placed`: all are, or were until some ended."
        ),
    ]
    note: Annotated[str, doc("What it waits for, or why its pods are judged one by one; may be empty.")]
    size: Annotated[int, doc("Pods that must run together; 0: not known or too many, so each pod is judged alone.")]
    priority: Annotated[int | None, doc("Of its least important pod; null: none has come to filter.")]
    bound: Annotated[int, doc("Pods of it that are bound.")]
    claimed: Annotated[int, doc("Pods of it that have a place and are not bound.")]
    missing: Annotated[int, doc("Pods of it that are neither bound nor have a place.")]
    held: Annotated[int, doc("Places that are held, also for pods that have not come.")]
    places: Annotated[
        list[PlaceView],
        Field(description="Bound pods, then held places; some of them if there are many.", max_length=MAX_PLACES),
    ]
    seconds_left: Annotated[float | None, doc("Time until its places are given back; null: none are held.")]
    rests_seconds: Annotated[float, doc("Time until it may hold places again.")]
    seen_seconds_ago: Annotated[
        float, doc("Time since a pod of it came to filter, or was seen bound for the first time.")
    ]
    fit: Annotated[int | None, doc("How many pods the last plan could place; null: all, or no plan.")]
    why: Annotated[dict[str, int], doc("How many nodes refused one more pod at that plan, by reason.")]


class GroupsView(BaseModel):
    """One page of the groups: open ones first, then holding, waiting, single and placed ones, each by name."""

    enabled: Annotated[bool, doc("Whether `NUMA_EXTENDER_GANGS` is on.")]
    total: Annotated[int, doc("Number of groups that match the filters.")]
    states: Annotated[dict[GroupState, int], doc("Number of all groups in each state.")]
    groups: Annotated[list[GroupView], doc("The groups of this page.")]
    next: Annotated[str | None, doc("`after` of the next page; null: this is the last one.")]
