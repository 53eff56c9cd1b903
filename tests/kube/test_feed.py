"""What watches mean to the cluster."""

from collections.abc import Mapping
from typing import Any

import pytest

from extender.cluster.events import AdmissionResult, SettledPod
from extender.cluster.ledger import EMPTY
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.kube.changes import Batch, Changed, Gone, Seen
from extender.kube.feed import ClusterFeed, Refused
from extender.kube.nodes import WatchedSurroundings
from extender.kube.pods import PodRecord
from extender.wire.pods import pod_from_json
from tests.observations import observation_of
from tests.reports import pod_of, sample
from tests.world.kubelet import Kubelet
from tests.world.watched import node_object, pod_record

NODE = sample()


class World:
    def __init__(self) -> None:
        self.settled: list[SettledPod] = []
        self.cluster = NodeStore(stale_after_seconds=1000, max_nodes=10, settled=self.settled.append)
        self.pods = PodRegistry(100)
        self.batches, self.reports, self.now = 0, 1, 10.0
        self.refused: list[Refused] = []
        self.feed = ClusterFeed(self.cluster, self.pods, lambda: self.now, self._count)
        self.feed.on_refused = self.refused.append
        self.cluster.observe(observation_of("n", NODE), 0.0)

    def _count(self) -> None:
        self.batches += 1

    def report_with(self, *uids: str, cpus: int = 4) -> None:
        """The kubelet has admitted these pods."""
        kubelet = Kubelet.of(NODE)
        for uid in uids:
            pod = pod_of(cpus, name=uid)
            pod["metadata"]["uid"] = uid
            assert kubelet.admit(pod)["admit"]
        self.reports += 1
        self.cluster.observe(observation_of("n", NODE, self.reports, kubelet.state), self.now)

    def record(self, name: str, *, status: Mapping[str, Any] | None = None, **metadata: Any) -> PodRecord:
        pod = pod_of(4, name=name)
        pod["metadata"].update(metadata)
        pod["status"].update(status or {})
        return pod_record(pod, "n")

    def free(self) -> int:
        record = self.cluster.get("n")
        assert record is not None
        assert record.state is not None
        return record.state.cpu.default.bit_count()


@pytest.fixture
def world() -> World:
    return World()


def test_a_pod_is_charged_once_however_often_it_changes(world: World) -> None:
    before = world.free()
    first = world.record("p")
    running = world.record("p", status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"})
    world.feed.apply_pods(Batch((Seen(first),)))
    world.feed.apply_pods(Batch((Changed(first, running),)))

    assert world.free() == before - 4
    assert world.pods.get("uid-p").bound_to == "n"
    assert world.batches == 2
    world.feed.apply_pods(Batch((Gone(running),)))
    assert world.free() == before
    assert world.pods.get("uid-p").bound_to is None


def test_a_rejection_is_told_from_any_other_failure(world: World) -> None:
    first = world.record("p")
    second = world.record("q")
    world.feed.apply_pods(Batch((Seen(first), Seen(second))))
    rejected = world.record(
        "p", status={"phase": "Failed", "reason": "SMTAlignmentError", "message": "Pod was rejected: x"}
    )
    evicted = world.record(
        "q", status={"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}
    )
    world.feed.apply_pods(Batch((Changed(first, rejected), Changed(second, evicted))))

    assert [(s.pod.uid, s.result, s.reason) for s in world.settled] == [
        ("uid-p", AdmissionResult.REFUSED, "SMTAlignmentError")
    ]


def test_a_static_pod_is_known_by_the_uid_that_its_kubelet_gave_it(world: World) -> None:
    mirror = world.record("s", annotations={"kubernetes.io/config.mirror": "kubelets-own"})
    world.feed.apply_pods(Batch((Seen(mirror),)))
    assert world.cluster.pods_of("n").ledger.find("kubelets-own") is not None

    assert world.free() == 28

    world.report_with("kubelets-own")
    world.feed.apply_pods(Batch((Gone(mirror),)))
    assert world.free() == 28, "the kubelet runs it, with or without its mirror"


def test_the_first_list_is_taken_in_the_order_of_age(world: World) -> None:
    young = world.record("a", creationTimestamp="2026-01-02T00:00:00Z")
    old = world.record("b", creationTimestamp="2026-01-01T00:00:00Z")
    world.feed.apply_pods(Batch((Seen(young), Seen(old))))

    assert [admit.uid for admit in world.cluster.pods_of("n").ledger.admits] == ["uid-b", "uid-a"]


def test_a_node_made_anew_under_its_name_starts_with_nothing(world: World) -> None:
    for uid, held in (("u1", True), ("u2", False)):
        world.feed.apply_nodes(Batch((Seen(node_object("n", uid=uid)),)))
        assert (world.cluster.get("n") is not None) is held
    assert world.cluster.node_objects.may_exist("n")
    assert not world.cluster.node_objects.may_exist("other")


def test_what_an_exporter_reports_of_a_node_that_is_gone_says_nothing_of_the_next_one(world: World) -> None:
    """The exporter of a node that is being removed runs a little longer than the Node object."""
    nodes = [node_object("n", uid=uid) for uid in ("u1", "u2")]
    world.feed.apply_nodes(Batch((Seen(nodes[0]),)))
    observation = world.cluster.observation("n")
    assert observation is not None
    world.feed.apply_nodes(Batch((Gone(nodes[0]),)))
    world.cluster.observe(observation, 10.0)

    world.feed.apply_nodes(Batch((Seen(nodes[1]),)))

    assert world.cluster.get("n") is None


def test_pods_that_are_bound_to_a_node_are_on_it_when_it_comes_back(world: World) -> None:
    """The Node object is deleted while the kubelet runs on. The watch of pods says nothing new then."""
    surroundings = WatchedSurroundings()
    world.feed.pods_on = lambda name: surroundings(name).pods
    young = world.record("b", creationTimestamp="2026-01-02T00:00:00Z")
    old = world.record("a", creationTimestamp="2026-01-01T00:00:00Z", deletionTimestamp="2026-01-03T00:00:00Z")
    pods, nodes = Batch((Seen(young), Seen(old))), [node_object("n", uid=uid) for uid in ("u1", "u2")]
    world.feed.apply_nodes(Batch((Seen(nodes[0]),)))
    surroundings.apply_pods(pods)
    world.feed.apply_pods(pods)

    world.feed.apply_nodes(Batch((Gone(nodes[0]),)))
    world.feed.apply_nodes(Batch((Seen(nodes[1]),)))

    ledger = world.cluster.pods_of("n").ledger
    assert [admit.uid for admit in ledger.admits] == ["uid-a", "uid-b"]
    assert set(ledger.leaving) == {"uid-a"}


MIRROR = "kubernetes.io/config.mirror"


@pytest.mark.parametrize("value", ["any", "", "uid-s"])
def test_a_pod_that_only_says_that_it_is_a_mirror_holds_room_until_it_is_gone(world: World, value: str) -> None:
    mirror = world.record("s", annotations={MIRROR: value})
    world.feed.apply_pods(Batch((Seen(mirror),)))
    assert world.free() == 28

    world.feed.apply_pods(Batch((Gone(mirror),)))

    assert world.free() == 32
    assert world.cluster.pods_of("n").ledger == EMPTY


@pytest.mark.parametrize("value", ["any", "", "uid-s"])
def test_a_static_pod_that_reports_do_not_show_holds_no_room(world: World, value: str) -> None:
    """Its object can stay for ever: its author may have given it a finalizer."""
    mirror = world.record("s", annotations={MIRROR: value})
    world.feed.apply_pods(Batch((Seen(mirror),)))
    world.now = 14.0
    world.report_with()
    assert world.free() == 28

    world.now = 15.0
    world.report_with()

    assert world.free() == 32


def test_a_mirror_that_is_being_deleted_holds_no_room(world: World) -> None:
    first = world.record("s", annotations={MIRROR: "any"})
    deleted = world.record("s", annotations={MIRROR: "any"}, deletionTimestamp="2026-01-01T00:00:00Z")
    world.feed.apply_pods(Batch((Seen(first), Changed(first, deleted))))

    assert world.free() == 32


@pytest.mark.parametrize("mirror_first", [True, False])
def test_a_mirror_with_the_uid_of_another_pod_changes_nothing_of_it(world: World, mirror_first: bool) -> None:  # noqa: FBT001
    pod, mirror = world.record("p"), world.record("s", annotations={MIRROR: "uid-p"})
    seen = (Seen(mirror), Seen(pod)) if mirror_first else (Seen(pod), Seen(mirror))
    world.feed.apply_pods(Batch(seen))
    deleted = world.record("s", annotations={MIRROR: "uid-p"}, deletionTimestamp="2026-01-01T00:00:00Z")
    world.feed.apply_pods(Batch((Changed(mirror, deleted),)))
    world.feed.apply_pods(Batch((Gone(deleted),)))
    assert world.free() == 28
    assert world.cluster.get("n") is not None
    assert len(world.cluster.get("n").states) == 1  # type: ignore[union-attr]

    world.report_with("uid-p")
    world.feed.apply_pods(Batch((Seen(mirror),)))
    world.feed.apply_pods(Batch((Gone(mirror),)))
    world.now = 1000.0
    world.report_with("uid-p")
    assert world.free() == 28
    assert [settled.result for settled in world.settled] == [AdmissionResult.ADMITTED]


def test_mirrors_that_come_and_go_leave_nothing_behind(world: World) -> None:
    for number in range(50):
        mirror = world.record("s", annotations={MIRROR: f"any-{number}"})
        world.feed.apply_pods(Batch((Seen(mirror),)))
        world.feed.apply_pods(Batch((Gone(mirror),)))

    tracker = world.cluster._trackers["n"]
    assert (tracker.ledger, tracker._mirrors, tracker._watched) == (EMPTY, {}, set())


@pytest.mark.parametrize("metadata", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}])
def test_a_pod_that_its_kubelet_does_not_start_holds_no_room_for_ever(
    world: World, metadata: Mapping[str, Any]
) -> None:
    """A finalizer keeps the object of a pod that the kubelet has never seen."""
    world.feed.apply_pods(Batch((Seen(world.record("p", **metadata)),)))
    world.now = 129.0
    world.report_with()
    assert world.free() == 28

    world.now = 130.0
    world.report_with()

    assert world.free() == 32
    assert [settled.result for settled in world.settled] == [AdmissionResult.LOST]
    world.report_with("uid-p")
    assert world.free() == 28


REJECTED = "Pod was rejected: "
ALLOCATION = REJECTED + "Allocate failed due to not enough cpus available to satisfy request, which is unexpected"


@pytest.mark.parametrize(
    ("reason", "message", "counts"),
    [
        ("TopologyAffinityError", REJECTED + "Resources cannot be allocated with Topology locality", True),
        ("SMTAlignmentError", REJECTED + "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2", True),
        ("UnexpectedAdmissionError", ALLOCATION, True),
        ("UnexpectedAdmissionError", REJECTED + "Unexpected error while attempting to recover", False),
        ("NodeAffinity", REJECTED + "Predicate NodeAffinity failed", False),
        ("OutOfcpu", REJECTED + "Node didn't have enough resource: cpu", False),
        ("TopologyAffinityError", "as its author says", False),
    ],
)
def test_only_refusals_of_the_managers_count(world: World, reason: str, message: str, counts: bool) -> None:  # noqa: FBT001
    first = world.record("p")
    world.feed.apply_pods(Batch((Seen(first),)))
    failed = world.record("p", status={"phase": "Failed", "reason": reason, "message": message})
    world.feed.apply_pods(Batch((Changed(first, failed),)))

    assert [each.reason for each in world.refused] == [reason] * counts
    assert not any(each.is_ours for each in world.refused), "its author has named the node"


@pytest.mark.parametrize("way", ["bound", "offered"])
def test_a_refused_pod_is_ours_if_we_offered_the_node(world: World, way: str) -> None:
    first = world.record("p")
    pod = pod_from_json(pod_of(4, name="p"))
    if way == "bound":
        world.cluster.assume("n", pod, 10.0)
    else:
        world.pods.answer(pod, 10.0, offered=True)
    world.feed.apply_pods(Batch((Seen(first),)))
    failed = world.record("p", status={"phase": "Failed", "reason": "TopologyAffinityError", "message": REJECTED})
    world.feed.apply_pods(Batch((Changed(first, failed),)))

    assert [(each.pod.uid, each.is_ours) for each in world.refused] == [("uid-p", True)]
    assert [settled.is_ours for settled in world.settled] == [True]


def test_pods_that_take_long_to_end_do_not_block_the_node(world: World) -> None:
    """Their authors choose how long: a grace period can be a year. The kubelet still counts them."""
    names = [f"p{number}" for number in range(8)]
    running = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    first = [world.record(name, status=running) for name in names]
    world.feed.apply_pods(Batch(tuple(map(Seen, first))))
    world.report_with(*(f"uid-{name}" for name in names), cpus=1)
    record = world.cluster.get("n")
    assert record is not None
    assert record.possible.is_certain

    ending = [world.record(name, status=running, deletionTimestamp="2027-01-01T00:00:00Z") for name in names]
    changes = tuple(Changed(*each) for each in zip(first, ending, strict=True))
    world.feed.apply_pods(Batch(changes))
    for seconds, is_certain in ((0.0, False), (59.0, False), (60.0, True), (3600.0, True)):
        world.now = 10.0 + seconds
        world.cluster.expire(world.now)
        record = world.cluster.get("n")
        assert record is not None
        assert record.possible.is_certain is is_certain
        assert world.cluster.pods_of("n").may_be_gone(world.now) == {f"uid-{name}" for name in names}

    world.report_with(*(f"uid-{name}" for name in names[:4]), cpus=1)
    assert world.free() == 28
    world.feed.apply_pods(Batch(tuple(map(Gone, ending))))
    assert world.free() == 32
    assert world.cluster.pods_of("n").ledger.leaving == {}
