"""What is shown of a group of pods: its numbers, its places, and in words what it waits for."""

from collections.abc import Collection, Mapping
from itertools import chain, islice
from typing import Annotated

from extender.cluster.node import NodeRecord
from extender.features.groups.groups import Groups
from extender.features.groups.record import GroupRecord, GroupState
from extender.kubelet.sets import iter_bits
from extender.questions.words import plural
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.shared import KnownCluster
from extender.scheduling.victims import numa_nodes_of
from extender.wire.groups import APIS, CONVENTIONS, OBJECTS, SIZE
from extender.wire.replies import ReplyBody, about

MAX_PLACES = 256


class PlaceView(ReplyBody):
    """Room on a node for one pod of a group."""

    uid: Annotated[str, about("The pod's UID. Empty: the place is for a pod that has not come yet.")]
    pod: Annotated[str, about("The pod's name. Empty: not known; only `GET /v1/group` looks for it.")]
    node_name: Annotated[str, about("Empty: the pod may run on any node.")]
    bound: Annotated[bool, about("Whether the pod is bound there.")]
    numa: Annotated[
        list[int] | None,
        about(
            "NUMA nodes where the pod holds or is predicted to hold resources. Null: none, or not known; only `GET "
            "/v1/group` looks for them."
        ),
    ]


class GroupView(ReplyBody):
    """A group of pods."""

    namespace: Annotated[str, about("Namespace of its pods.")]
    name: Annotated[str, about("Its name. Unique for its source and namespace.")]
    source: Annotated[str, about("What names the group, such as `coscheduling` or `leader_worker_set`.")]
    state: Annotated[
        GroupState,
        about(
            "`single`: its pods are judged one by one. `waiting`: it has no places. `holding`: it has places, and no "
            "pod of it is bound. `open`: some of its pods are bound. `placed`: all are, or were until some ended."
        ),
    ]
    note: Annotated[str, about("What it waits for, or why its pods are judged one by one; may be empty.")]
    size: Annotated[int, about("Pods that must run together; 0: not known or too many, so each pod is judged alone.")]
    priority: Annotated[int | None, about("Of its least important pod; null: none has come to filter.")]
    bound: Annotated[int, about("Pods of it that are bound.")]
    claimed: Annotated[int, about("Pods of it that have a place and are not bound.")]
    missing: Annotated[int, about("Pods of it that are neither bound nor have a place.")]
    held: Annotated[int, about("Places that are held, also for pods that have not come.")]
    places: Annotated[
        list[PlaceView], about("Bound pods, then held places; some of them if there are many.", max_length=MAX_PLACES)
    ]
    seconds_left: Annotated[float | None, about("Time until its places are given back; null: none are held.")]
    rests_seconds: Annotated[float, about("Time until it may hold places again.")]
    seen_seconds_ago: Annotated[
        float, about("Time since a pod of it came to filter, or was seen bound for the first time.")
    ]
    fit: Annotated[int | None, about("How many pods the last plan could place; null: all, or no plan.")]
    why: Annotated[dict[str, int], about("How many nodes refused one more pod at that plan, by reason.")]


class GroupsView(ReplyBody):
    """One page of the groups: open ones first, then holding, waiting, single and placed ones, each by name."""

    enabled: Annotated[bool, about("Whether `NUMA_EXTENDER_GANGS` is on.")]
    total: Annotated[int, about("Number of groups that match the filters.")]
    states: Annotated[dict[GroupState, int], about("Number of all groups in each state.")]
    groups: Annotated[list[GroupView], about("The groups of this page.")]
    next: Annotated[str | None, about("`after` of the next page; null: this is the last one.")]


def group_view(record: GroupRecord, groups: Groups, watched: Collection[str], now: float) -> GroupView:
    """The group without the details of its places. *watched*: the watched kinds of objects with sizes, as in `APIS`."""
    source, namespace, name = record.key
    bound = ((uid, node, True) for uid, node in record.bound.items())
    held = ((uid, place.node_name, False) for uid, place in record.places)
    places = [
        PlaceView(uid=uid, pod="", node_name=node, bound=is_bound, numa=None)
        for uid, node, is_bound in islice(chain(bound, held), MAX_PLACES)
    ]
    return GroupView(
        namespace=namespace,
        name=name,
        source=source,
        state=record.state,
        note=note_of(record, groups, watched, now),
        size=record.size,
        priority=record.priority,
        bound=len(record.bound),
        claimed=len(record.claims),
        missing=max(0, record.missing("")),
        held=len(record.claims) + len(record.spare),
        places=places,
        seconds_left=round(max(0.0, record.hold_until - now), 3) if record.has_places else None,
        rests_seconds=round(max(0.0, record.rests_until - now), 3),
        seen_seconds_ago=round(max(0.0, now - record.seen_at), 3),
        fit=None if record.unfit is None else record.unfit.fit,
        why={} if record.unfit is None else dict(record.unfit.why),
    )


def add_details(group: GroupView, known: KnownCluster, held: Mapping[str, list[int]]) -> None:
    """Add names and NUMA nodes to the places of a group. *held*: see `HeldRoom.numa_nodes`."""
    left = {name: iter(masks) for name, masks in held.items()}
    for place in group.places:
        mask, record, pod = 0, known.nodes.get(place.node_name), known.pods.get(place.uid).pod
        if pod is not None:
            place.pod = pod.name
        if not place.bound:
            mask = next(left.get(place.node_name, iter(())), 0)
        elif record is not None:
            place.pod = place.pod or _reported_name(record, place.uid)
            if record.kubelet is not None and record.state is not None:
                mask = numa_nodes_of(record.kubelet, record.state, place.uid)
        place.numa = list(iter_bits(mask)) or None


def _reported_name(record: NodeRecord, uid: str) -> str:
    """The name of a pod by the node's report; "" if it has none."""
    pods = record.observation.facts.get("pods")
    found = (str(pod.get("name", "")) for pod in pods if pod.get("uid") == uid) if isinstance(pods, list) else ()
    return next(iter(found), "")


def note_of(record: GroupRecord, groups: Groups, watched: Collection[str], now: float) -> str:
    """What the group waits for, or why its pods are judged one by one. Empty: nothing."""
    state = record.state
    if state is GroupState.SINGLE:
        return _why_single(record, groups.settings.gang_max_pods, watched)
    if state is GroupState.WAITING:
        return _why_waiting(record, groups, now)
    if state is GroupState.HOLDING:
        return _to_come(record) or "all pods have come, and are bound if the places still fit"
    if state is GroupState.OPEN:
        if record.has_places:
            return _to_come(record) or f"{plural(len(record.claims), 'pod')} still to be bound"
        return f"{plural(record.missing(''), 'pod')} without a place: no node has room, or the pods have not come again"
    gone = record.missing("")
    return f"{plural(gone, 'pod')} of it ended, and no other pod has come" if gone > 0 else ""


def _why_single(record: GroupRecord, max_pods: int, watched: Collection[str]) -> str:
    source, namespace, name = record.key
    if record.stated_size > max_pods:
        return f"{plural(record.stated_size, 'pod')} are more than NUMA_EXTENDER_GANG_MAX_PODS, which is {max_pods}"
    if record.size == 1:
        return "a group of one pod"
    if (kind := OBJECTS.get(source)) is not None:
        if source not in watched:
            apis = " or ".join(api for api, (api_source, _) in APIS.items() if api_source == source)
            return f"the size is not known: NUMA_EXTENDER_GANG_APIS does not have {apis}, and no pod states {SIZE}"
        return f"the size is not known: there is no {kind} with a size for {namespace}/{name}, and no pod states {SIZE}"
    keys = (*(key for each in CONVENTIONS if each.kind == source for key in each.sizes), SIZE)
    return f"the size is not known: no pod states {' or '.join(keys)} with a number"


def _why_waiting(record: GroupRecord, groups: Groups, now: float) -> str:
    if now < record.rests_until:
        return "its places were held for their full time and not used, so it rests"
    if not groups.may_hold(record):
        return RefusalReason.GROUP_TURN.text
    if record.unfit is not None:
        guessed = record.unfit.guessed
        copies = f"; {plural(guessed, 'pod')} that had not come counted as copies of one that had" if guessed else ""
        return f"{record.unfit.fit} of {plural(record.size, 'pod')} fit{copies}"
    return "it is planned when its pods come to filter again"


def _to_come(record: GroupRecord) -> str:
    missing = record.missing("")
    return f"{plural(missing, 'pod')} still to come" if missing > 0 else ""
