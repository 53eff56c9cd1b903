"""GET /v1/groups and /v1/group: what they say of a group in each state, of its places, and page by page."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.testclient import TestClient

from extender.api.records.models import PodDecision
from extender.app import make_app
from extender.cli.render import call_lines
from extender.features.groups.record import FORGET_SECONDS
from extender.wire.groups import GROUP, SIZE, Group, ObjectKey
from tests.features.groups.gang_world import GangWorld, member
from tests.reports import pod_of

Json = dict[str, Any]


def _play(story: Callable[[], Awaitable[object]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())


def _client(world: GangWorld) -> TestClient:
    return TestClient(make_app(world.service), client=("127.0.0.1", 50_000))


def _groups(world: GangWorld, **query: str | int) -> list[Json]:
    reply = _client(world).get("/v1/groups", params=query)
    assert reply.status_code == 200, reply.text
    return list(reply.json()["groups"])


def test_a_group_in_full_has_names_and_numa_nodes() -> None:
    world = GangWorld("a", "b")

    async def story() -> None:
        for i in range(2):
            await world.filter(member(f"g{i}", "g", 3, cpus=14))

    _play(story)
    reply = _client(world).get("/v1/group", params={"source": "annotation", "namespace": "default", "name": "g"})

    group = reply.json()
    places = [(place["pod"], place["node_name"], place["bound"], place["numa"]) for place in group["places"]]
    assert sorted(places) == [("", "a", False, [1]), ("g0", "a", False, [0]), ("g1", "b", False, [0])]
    assert [group[key] for key in ("state", "size", "bound", "claimed", "missing", "held")] == [
        "holding",
        3,
        0,
        2,
        1,
        3,
    ]
    assert (group["note"], group["seconds_left"]) == ("1 pod still to come", 30.0)


def test_a_group_that_rests_and_one_that_waits_for_its_turn_say_so() -> None:
    world = GangWorld(*"abcdefghij")

    async def story() -> None:
        await world.filter(member("g0", "rests", 2))
        world.clock.now += 30
        for i in range(5):
            await world.filter(member(f"h{i}", f"h{i}", 2))

    _play(story)
    notes = {group["name"]: group["note"] for group in _groups(world, state="waiting")}

    assert notes == {
        "rests": "its places were held for their full time and not used, so it rests",
        "h4": "places are held for too many other groups now",
    }


NO_API = (
    "the size is not known: NUMA_EXTENDER_GANG_APIS does not have {}, and no pod states numa-extender.io/group-size"
)
NO_KEY = "the size is not known: no pod states {} with a number"
SINGLE: Mapping[str, tuple[Json, str]] = {
    "large": (
        {"metadata": {"annotations": {GROUP: "large", SIZE: "300"}}},
        "300 pods are more than NUMA_EXTENDER_GANG_MAX_PODS, which is 256",
    ),
    "alone": ({"metadata": {"annotations": {GROUP: "alone", SIZE: "1"}}}, "a group of one pod"),
    "four": ({"metadata": {"annotations": {GROUP: "four", SIZE: "four"}}}, NO_KEY.format(SIZE)),
    "plugin": (
        {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "plugin"}}},
        NO_API.format("scheduling.x-k8s.io/v1alpha1"),
    ),
    "gang": (
        {"spec": {"schedulingGroup": {"podGroupName": "gang"}}},
        NO_API.format("scheduling.k8s.io/v1alpha2 or scheduling.k8s.io/v1alpha3 or scheduling.k8s.io/v1beta1"),
    ),
    "load": ({"spec": {"workloadRef": {"name": "load"}}}, NO_API.format("scheduling.k8s.io/v1alpha1")),
    "jobs": (
        {"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-name": "jobs"}}},
        "the size is not known: there is no JobSet with a size for default/jobs, and no pod states " + SIZE,
    ),
    "leader": (
        {"metadata": {"labels": {"leaderworkerset.sigs.k8s.io/group-key": "leader"}}},
        NO_KEY.format(f"leaderworkerset.sigs.k8s.io/size or {SIZE}"),
    ),
}
"""Pods by group, and why they are judged one by one."""


def test_a_group_whose_pods_are_judged_one_by_one_says_why() -> None:
    world = GangWorld("a", gang_apis="jobset.x-k8s.io/v1alpha2")

    async def story() -> None:
        for name, (part, _) in SINGLE.items():
            pod = pod_of(4, name=name)
            pod["metadata"].update(part.get("metadata", {}))
            pod["spec"].update(part.get("spec", {}))
            await world.filter(pod)

    _play(story)

    assert {group["name"]: group["note"] for group in _groups(world, state="single")} == {
        name: note for name, (_, note) in SINGLE.items()
    }


def test_why_a_group_does_not_fit_counts_every_node() -> None:
    """Nodes with places of another group, nodes that rest, and nodes that refuse the pod."""
    world = GangWorld("a", "b", "c")

    async def story() -> None:
        await world.filter(member("r0", "rests", 2, cpus=14), "a")
        world.clock.now += 30
        await world.filter(member("h0", "held", 2, cpus=14), "b")
        await world.place_on(pod_of(14, name="single"), "c")
        await world.filter(member("g0", "g", 4, cpus=14))

    _play(story)
    (group,) = _groups(world, name="default/g")

    assert (group["fit"], group["note"]) == (
        1,
        "1 of 4 pods fit; 3 pods that had not come counted as copies of one that had",
    )
    assert group["why"] == {
        "the room on the node is held for the pods of a group": 1,
        "places on the node were held and not used, so it rests": 1,
        "NUMA alignment is not possible on the node now": 1,
    }


def test_groups_are_found_by_state_name_and_node_and_shown_page_by_page() -> None:
    world = GangWorld("a", "b")

    async def story() -> None:
        await world.filter(member("h0", "held", 2), "a")

    _play(story)
    for i in range(1200):
        world.groups.join(Group(("annotation", "ns", f"x{i:04}"), 2 if i % 2 else 0), "", 0, world.clock())
    client, after, names = _client(world), "", list[str]()
    for _ in range(10):
        page = client.get("/v1/groups", params={"limit": 300, "after": after}).json()
        names += [group["name"] for group in page["groups"]]
        if not (after := page["next"] or ""):
            break

    assert names[0] == "held"
    assert names[1:] == [f"x{i:04}" for i in (*range(1, 1200, 2), *range(0, 1200, 2))]
    assert page["states"] == {"holding": 1, "waiting": 600, "single": 600}
    for query, found in (("node=a", ["held"]), ("name=s/x0007", ["x0007"]), ("node=b", []), ("state=placed", [])):
        assert [group["name"] for group in client.get(f"/v1/groups?{query}").json()["groups"]] == found


def test_a_bad_query_is_refused_by_name() -> None:
    client = _client(GangWorld())
    for query in ("after=x", 'after=[9,"a","b"]', "state=nothing", "limit=0", "states=open"):
        reply = client.get(f"/v1/groups?{query}")

        assert reply.status_code == 422
        assert query.partition("=")[0] in reply.json()["field"]


def test_a_group_whose_pods_are_gone_is_forgotten() -> None:
    """It was counted as waiting until 10,000 others were known."""
    world = GangWorld("a")

    async def story() -> None:
        await world.filter(member("g0", "g", 20))
        world.clock.now += FORGET_SECONDS / 2
        await world.filter(member("g1", "g", 20))
        world.clock.now += FORGET_SECONDS - 1

    _play(story)
    assert [group["seen_seconds_ago"] for group in _groups(world)] == [FORGET_SECONDS - 1]
    world.clock.now += 1

    assert _groups(world) == []
    gone = _client(world).get("/v1/group", params={"source": "annotation", "namespace": "default", "name": "g"})
    assert (gone.status_code, gone.json()["detail"]) == (404, "no group default/g is known")


def test_a_group_whose_pods_end_one_after_another_is_not_half_placed() -> None:
    """It was counted as open, as if pods of it were still to be placed."""
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 3) for i in range(3)]

    def shown() -> list[tuple[str, str]]:
        return [(group["state"], group["note"]) for group in _groups(world)]

    async def place() -> None:
        offered = [(await world.filter(pod)).feasible[0] for pod in pods]
        for pod, node in zip(pods, offered, strict=True):
            await world.bind(pod, node)

    _play(place)
    assert shown() == [("placed", "")]
    world.groups.see_gone(pods[0]["metadata"]["uid"], world.clock())
    assert shown() == [("placed", "1 pod of it ended, and no other pod has come")]
    _play(lambda: world.filter(member("g3", "g", 3)))
    assert shown() == [("open", "1 pod still to be bound")]


def test_a_size_that_is_known_only_after_the_pods_counts() -> None:
    """After a restart the pods can be seen before their PodGroup. The group was shown as single pods."""
    world, key = GangWorld("a"), ObjectKey("coscheduling", "default", "g")
    group = Group(("coscheduling", "default", "g"), object_key=key)
    for uid in ("1", "2"):
        world.groups.see_bound(group, uid, "a", world.clock())
    assert [each["state"] for each in _groups(world)] == ["single"]

    world.groups.set_size(key, 2)

    assert [(each["state"], each["size"], each["note"]) for each in _groups(world)] == [("placed", 2, "")]
    for uid in ("1", "2"):
        world.groups.see_gone(uid, world.clock())
    assert _groups(world) == []
    world.groups.set_size(key, 3)


def test_a_decision_names_the_only_node_that_was_offered() -> None:
    """It said that all nodes that admit the pod were offered."""
    world = GangWorld("a", "b")
    _play(lambda: world.filter(member("g0", "g", 2, cpus=14)))
    client = _client(world)

    (decision,) = client.get("/v1/decisions").json()["decisions"]
    (call,) = decision["calls"]
    assert (call["place"], call["passed"], call["refused"]) == ("a", 2, 0)
    for node, reason in (("a", ""), ("b", "the place of the pod in its group is on node a")):
        told = client.get(f"/v1/pods/{decision['pod']['uid']}/decision", params={"node": node}).json()["node"]
        assert (told["passed"], told["reason"]) == (not reason, reason)
    calls = msgspec.convert(decision, PodDecision).calls
    assert "; only a is offered, the place in its group" in "".join(map(str, map(call_lines, calls)))
