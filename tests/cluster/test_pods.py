"""The registry of pods: timeouts, nominations, and which pods are dropped first."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.pods import (
    DELETE_SECONDS,
    KEEP_SECONDS,
    MAX_DEFERRALS,
    OFFER_SECONDS,
    SEEN_SECONDS,
    KnownPod,
    PodRegistry,
)
from extender.replay.pod import Pod
from extender.wire.pods import pod_from_json
from tests.reports import pod_of

POD = pod_from_json(pod_of(name="urgent"))
OTHERS = [pod_from_json(pod_of(name=f"p{number}")) for number in range(20)]


def _nominated(*, watched: bool = False) -> PodRegistry:
    pods = PodRegistry(10)
    if watched:
        pods.nominate(POD, 7, "n", 100.0)
    else:
        pods.describe(POD, 7, "n", 100.0)
    return pods


def _described(pods: PodRegistry, uid: str) -> Pod | None:
    return pods.get(uid).pod


def test_a_nomination_in_scheduler_calls_only_ends_after_a_while() -> None:
    pods = _nominated()

    end = 100.0 + KEEP_SECONDS
    assert pods.get(POD.uid).nominated(end - 0.1) is not None
    assert pods.get(POD.uid).nominated(end) is None
    assert pods.nominations(end - 0.1).keys() == {"n"}
    assert not pods.nominations(end)
    pods.expire(end)
    assert not pods.get(POD.uid).holds_room


def test_a_watched_nomination_is_kept_for_a_while_after_it_was_cleared() -> None:
    pods = _nominated(watched=True)
    pods.describe(POD, 7, "n", 200.0)
    assert pods.get(POD.uid).nominated(1e6) is not None

    pods.clear_nomination(POD.uid, 300.0)
    pods.describe(POD, 7, "", 301.0)

    assert pods.get(POD.uid).nominated(300.0 + KEEP_SECONDS - 0.1) is not None
    assert pods.get(POD.uid).nominated(300.0 + KEEP_SECONDS) is None


def test_another_nominated_node_replaces_the_first_from_now_on() -> None:
    pods = _nominated()
    pods.describe(POD, 7, "n", 110.0)
    pods.describe(POD, 7, "m", 120.0)

    ((node, (nomination,)),) = pods.nominations(120.0).items()
    assert (node, nomination.since) == ("m", 120.0)


@pytest.mark.parametrize(
    "end",
    [
        lambda pods: pods.bind(POD.uid, "n"),
        lambda pods: pods.watch(POD.uid, "n"),
        lambda pods: pods.delete(POD.uid),
    ],
)
def test_a_pod_that_is_bound_or_deleted_is_no_longer_nominated(end: Callable[[PodRegistry], None]) -> None:
    pods = _nominated(watched=True)
    end(pods)

    assert not pods.nominations(101.0)
    if pods.get(POD.uid).bound_to:  # a late event of the watch of nominated pods, or a late filter call
        pods.nominate(POD, 7, "n", 102.0)
        pods.describe(POD, 7, "n", 102.0)
    assert not pods.nominations(102.0)


@pytest.mark.parametrize(
    ("priority", "since", "precedes"), [(6, 50.0, True), (7, 150.0, True), (7, 50.0, False), (8, 150.0, False)]
)
def test_a_nomination_goes_before_lower_priorities_and_later_equals(
    priority: int, since: float, *, precedes: bool
) -> None:
    (nomination,) = _nominated().nominations(100.0)["n"]

    assert nomination.precedes("other", priority, since) is precedes
    assert not nomination.precedes(POD.uid, priority, since)


def test_proposed_victims_count_for_a_while() -> None:
    pods = _nominated()
    pods.propose(POD.uid, {"n": ("v",)}, 100.0)
    known = pods.get(POD.uid)

    assert known.victims_on("n", 100.0) == {"v"}
    assert known.victims_on("m", 100.0) == frozenset()
    assert known.victims_on("n", 100.0 + DELETE_SECONDS) == frozenset()


def test_refused_pods_are_listed_with_the_last_call_first_and_expire() -> None:
    pods = PodRegistry(10, refused_seconds=60.0)
    for i, pod in enumerate(OTHERS):
        pods.answer(pod, float(i), refused=True)

    assert [pod.name for pod in pods.refused(70.0)] == [f"p{i}" for i in range(19, 9, -1)]
    pods.answer(OTHERS[10], 75.0, refused=True)
    pods.answer(OTHERS[15], 75.0)
    assert [pod.name for pod in pods.refused(75.0)] == ["p10", "p19", "p18", "p17", "p16"]
    pods.watch("uid-p19", "n")
    pods.bind("uid-p18", "n")
    assert [pod.name for pod in pods.refused(76.0)] == ["p10", "p17", "p16"]
    assert pods.refused(900.0) == []
    pods.expire(900.0)
    assert _described(pods, "uid-p16") is None, "the scheduler would have sent it again"
    assert _described(pods, "uid-p15") is not None


def test_an_offered_pod_may_be_bound_for_a_while() -> None:
    pods = PodRegistry(10)
    for pod in OTHERS[:4]:
        pods.answer(pod, 100.0, offered=True)
    pods.describe(OTHERS[1], 0, "", 100.5)
    pods.watch(OTHERS[2].uid, "n")
    pods.give_up_waiting({OTHERS[3].uid, "uid-unknown"}, 100.5)

    assert pods.offered(100.0 + OFFER_SECONDS) == {OTHERS[0].uid}
    assert pods.offered(100.1 + OFFER_SECONDS) == set()


def test_exits_count_from_the_first_deferral_for_them_and_nodes_from_the_last_of_any_kind() -> None:
    pods = PodRegistry(10)

    pods.defer("u", "n", 5.0)
    assert pods.defer_for_exits("u", "m", 20.0) == 0.0
    assert pods.defer_for_exits("u", "n", 23.0) == 3.0
    assert pods.get("u").deferred_from == {"n": 23.0, "m": 20.0}


def test_the_nodes_that_deferred_a_pod_last_are_kept() -> None:
    pods = PodRegistry(10)
    for number in range(MAX_DEFERRALS + 2):
        pods.defer("u", f"n{number}", 1.0)
    pods.defer("u", "n2", 2.0)

    assert len(pods.get("u").deferred_from) == MAX_DEFERRALS
    assert list(pods.get("u").deferred_from)[-1] == "n2"
    assert "n1" not in pods.get("u").deferred_from


def test_a_pod_without_a_uid_has_no_record() -> None:
    pods = PodRegistry(10)
    pods.describe(pod_from_json({**pod_of(), "metadata": {"name": "p"}}), 0, "n", 1.0)

    assert len(pods) == 0


HOLDS: dict[str, Callable[[PodRegistry], object]] = {
    "bound": lambda pods: pods.bind(POD.uid, "n"),
    "in doubt": lambda pods: pods.doubt(POD.uid, "n", 1.0),
    "nominated": lambda pods: pods.nominate(POD, 0, "n", 1.0),
}


@pytest.mark.parametrize("hold", HOLDS)
def test_a_pod_that_holds_room_is_dropped_after_all_pods_that_hold_none(hold: str) -> None:
    pods = PodRegistry(10)
    pods.describe(POD, 0, "", 0.0)
    HOLDS[hold](pods)
    for pod in OTHERS:
        pods.describe(pod, 0, "", 2.0)

    assert len(pods) == 10
    assert pods.get(POD.uid).holds_room
    assert [each.name for each in OTHERS if _described(pods, each.uid)] == [f"p{i}" for i in range(11, 20)]
    for pod in OTHERS:
        pods.describe(pod, 0, "", 3.0)
        pods.bind(pod.uid, "m")
    assert len(pods) == 10
    assert not pods.get(POD.uid).holds_room, "all pods hold room: the one that changed longest ago is dropped"


def test_pods_that_the_watch_shows_are_never_dropped() -> None:
    pods = PodRegistry(2)
    for pod in OTHERS:
        pods.watch(pod.uid, "n")
        pods.describe(pod, 0, "", 1.0)

    assert len(pods) == 0
    assert {pods.get(pod.uid).bound_to for pod in OTHERS} == {"n"}
    pods.delete(OTHERS[0].uid)
    assert pods.get(OTHERS[0].uid).bound_to is None


NODES = st.sampled_from(["n", "m"])
SOME = st.sampled_from(OTHERS[:6])
CHANGES = st.one_of(
    st.builds(lambda pod, node: ("describe", pod, 0, node), SOME, st.sampled_from(["", "n", "m"])),
    st.builds(lambda pod, node: ("nominate", pod, 0, node), SOME, NODES),
    st.builds(lambda pod: ("clear_nomination", pod.uid), SOME),
    st.builds(lambda pod, node: ("defer", pod.uid, node), SOME, NODES),
    st.builds(lambda pod, node: ("bind", pod.uid, node), SOME, NODES),
    st.builds(lambda pod, node: ("doubt", pod.uid, node), SOME, NODES),
    st.builds(lambda pod, node: ("watch", pod.uid, node), SOME, NODES),
    st.builds(lambda pod: ("delete", pod.uid), SOME),
    st.builds(lambda pod: ("offer", pod), SOME),
    st.builds(lambda pod: ("refuse", pod), SOME),
    st.just(("expire",)),
)


def _apply(pods: PodRegistry, change: tuple[Any, ...], now: float) -> None:
    match change:
        case ("offer", pod):
            pods.answer(pod, now, offered=True)
        case ("refuse", pod):
            pods.answer(pod, now, refused=True)
        case ("bind" | "watch" | "delete" as name, *args):
            getattr(pods, name)(*args)
        case (name, *args):
            getattr(pods, name)(*args, now)


@given(st.lists(st.tuples(CHANGES, st.sampled_from([0.0, 0.5, 20.0])), max_size=30))
def test_the_lists_say_what_the_records_say(changes: list[tuple[tuple[Any, ...], float]]) -> None:
    """After any changes, of at most four pods: each list has the pods of which the records say so, and no other."""
    pods, now = PodRegistry(4, refused_seconds=30.0), 100.0
    for change, seconds in changes:
        now += seconds
        _apply(pods, change, now)
        records: list[KnownPod] = [pods.get(pod.uid) for pod in OTHERS[:6]]
        assert len(pods) <= 4

        for node in ("n", "m"):
            unseen = {each.uid for each in records if each.pod and node in (each.bound_to, each.in_doubt_on)}
            assert {pod.uid for pod in pods.unseen_on(node)} == unseen
            nominations = [held for each in records if (held := each.nominated(now)) and held.node_name == node]
            assert sorted(pods.nominations(now).get(node, ()), key=repr) == sorted(nominations, key=repr)
        assert pods.offered(now) == {each.uid for each in records if now - each.offered_at <= OFFER_SECONDS}
        assert {pod.uid for pod in pods.refused(now)} == {each.uid for each in records if now - each.refused_at <= 30}


def test_pods_of_one_namespace_drop_none_of_others_who_have_less() -> None:
    """Seen red: the pod that changed longest ago was dropped, whoever filled the limit."""
    pods = PodRegistry(20)
    for pod in OTHERS[:5]:
        pods.describe(pod, 0, "", 1.0)

    for i in range(40):
        pods.describe(replace(POD, uid=f"flood-{i}", namespace="flood"), 0, "", 2.0)

    assert all(_described(pods, pod.uid) is not None for pod in OTHERS[:5])
    assert _described(pods, "flood-39") is not None
    assert len(pods) == 20


def test_a_pod_that_no_call_names_any_more_is_forgotten() -> None:
    """Seen red: pods that were filtered and then deleted were kept until 50,000 others had come."""
    pods = PodRegistry(1000)
    pods.describe(OTHERS[0], 0, "", 1.0)
    pods.nominate(OTHERS[1], 0, "n", 1.0)
    pods.describe(OTHERS[2], 0, "", 500.0)

    pods.expire(1.0 + SEEN_SECONDS + 1)

    assert _described(pods, OTHERS[0].uid) is None
    assert _described(pods, OTHERS[2].uid) is not None
    assert pods.get(OTHERS[1].uid).holds_room


def test_heavy_pods_are_limited_by_their_bytes() -> None:
    """Seen red: 50,000 pods were kept, whatever each takes."""
    pods = PodRegistry(1000)
    pods.describe(OTHERS[0], 0, "", 1.0)

    for i in range(40):
        pods.describe(replace(POD, uid=f"heavy-{i}", namespace="flood", weight_bytes=400_000), 0, "", 2.0)

    kept = [i for i in range(40) if _described(pods, f"heavy-{i}") is not None]
    assert kept == list(range(30, 40)), "the last ones, within 1,000 times 4 kB"
    assert _described(pods, OTHERS[0].uid) is not None
