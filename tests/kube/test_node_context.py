"""Totals, labels and taints of nodes from the watches, for people's questions."""

from dataclasses import replace
from typing import Any

import pytest

from extender.kube.changes import Batch, Changed, Gone, Seen
from extender.kube.nodes import NodeObject, WatchedSurroundings
from extender.kube.pods import PodRecord
from extender.questions.node_context import NOTHING_KNOWN, NodeContext
from tests.reports import pod_of
from tests.world.watched import node_object, pod_record

GPU = "vendor.example/gpu"


def _node(name: str = "a", allocatable: dict[str, str] | None = None) -> NodeObject:
    return node_object(
        name,
        uid="u",
        labels={"zone": "z"},
        spec={"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
        status={"allocatable": allocatable if allocatable is not None else {"cpu": "3500m", "memory": "1Gi"}},
    )


def _pod(name: str, cpu: int, **spec: Any) -> PodRecord:
    return pod_record(pod_of(cpu, name=name, devices={GPU: 1}), "a", **spec)


def test_a_node_is_told_as_its_object_says() -> None:
    known = WatchedSurroundings()
    known.apply_nodes(Batch((Seen(_node()), Seen(_node("b", {"cpu": "x"})), Seen(_node("c", {})))))

    around = known("a")

    assert (around.labels, around.unschedulable) == ({"zone": "z"}, True)
    assert around.allocatable_milli == {"cpu": 3500, "memory": 1000 << 30}
    assert around.taints is not None
    assert around.taints[0].key == "k"
    assert around.requested_milli is None
    assert known("b").allocatable_milli is known("c").allocatable_milli is None
    known.apply_nodes(Batch((Gone(_node()),)))
    assert known("a") == NOTHING_KNOWN


def test_requests_are_the_sum_of_the_pods_there_once_all_are_known() -> None:
    known = WatchedSurroundings()
    one, two = _pod("p", 2), _pod("q", 3, overhead={"cpu": "1"})
    known.apply_pods(Batch((Seen(one),), complete=False))
    assert known("a").requested_milli is None

    known.apply_pods(Batch((Seen(two),)))
    assert known("a").requested_milli == {"cpu": 6000, "memory": 2000 << 30, GPU: 2000}
    pods = known("a").pods
    assert pods is not None
    assert [pod.name for pod in pods] == ["p", "q"]
    assert known("a").pods is pods
    assert known("b").requested_milli == {}

    known.apply_pods(Batch((Changed(two, replace(two, phase="Succeeded")), Gone(one))))
    assert known("a") == NodeContext(requested_milli={}, pods=())
    known.apply_pods(Batch((Gone(replace(two, phase="Succeeded")),)))
    assert known("a").requested_milli == {}


@pytest.mark.parametrize(
    ("cpu", "allocated", "reason", "counted"),
    [
        ("4", {}, "", 4000),  # the kubelet has not admitted it yet
        ("4", {"cpu": "2"}, "", 4000),  # it grows
        ("4", {"cpu": "2"}, "Deferred", 4000),
        ("1", {"cpu": "2"}, "", 2000),  # it becomes smaller, and has not yet
        ("4", {"cpu": "2"}, "Infeasible", 2000),
    ],
)
def test_a_resize_counts_as_kube_scheduler_counts_it(
    cpu: str, allocated: dict[str, str], reason: str, counted: int
) -> None:
    pod = pod_of(cpu, name="p")
    name = pod["spec"]["containers"][0]["name"]
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    pod["status"] = {"containerStatuses": [{"name": name, "allocatedResources": allocated}], "conditions": conditions}
    known = WatchedSurroundings()

    known.apply_pods(Batch((Seen(pod_record(pod, "a")),)))

    requested = known("a").requested_milli
    assert requested is not None
    assert requested["cpu"] == counted


def test_a_pod_that_cannot_be_read_counts_as_nothing() -> None:
    known = WatchedSurroundings()
    unreadable = _pod("p", 2)
    unreadable = replace(unreadable, reduced=unreadable.reduced.replace(b'"2"', b'"two"'))

    known.apply_pods(Batch((Seen(unreadable), Seen(_pod("q", 1)))))

    assert known("a").requested_milli == {"cpu": 1000, "memory": 1000 << 30, GPU: 1000}


def test_finished_pods_are_summed_by_the_uid_of_the_kubelet_until_their_objects_go() -> None:
    known = WatchedSurroundings()
    running = [_pod("p", 2), _pod("q", 3)]
    known.apply_pods(Batch(tuple(map(Seen, running))))
    finished = [replace(pod, phase="Succeeded") for pod in running]
    known.apply_pods(Batch(tuple(map(Changed, running, finished))))
    uids = [pod.kubelet_uid for pod in finished]

    assert known("a").requested_milli == {}
    assert known.finished("a", uids)["cpu"] == 5000
    assert known.finished("a", uids[:1])["cpu"] == 2000
    assert known.finished("b", uids) == {}

    known.apply_pods(Batch(tuple(map(Gone, finished))))
    assert known.finished("a", uids) == {}
