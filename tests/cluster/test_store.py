"""Order of reports, heartbeats, freshness, classes."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.events import Watching
from extender.cluster.node import ClusterFullError, Observation, OutdatedError, UnknownNodeError
from extender.cluster.node_class import UNKNOWN, ClassTable
from extender.cluster.store import CATCH_UP, NodeStore
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.verdict import Provider
from extender.replay import free_amounts
from extender.replay.possible_states import PossibleStates
from extender.samples.nodes import SampleNode, Workload
from tests.cluster.reading import classes_at
from tests.reports import sample

EMPTY = sample()
BUSY = sample(workloads=[Workload(name="w", resources={"cpu": 4, "memory": "1Gi"})])


def _observation(
    name: str = "n", *, node: SampleNode = EMPTY, boot: str = "b1", sequence: int = 1, digest: str = "d"
) -> Observation:
    return Observation(
        node_name=name,
        boot_id=boot,
        sequence=sequence,
        digest=digest,
        observed_at=0.0,
        kubelet=node.kubelet,
        state=node.state,
    )


def _cluster(max_nodes: int = 100) -> NodeStore:
    return NodeStore(stale_after_seconds=60, max_nodes=max_nodes)


def test_equal_nodes_share_a_class_and_other_nodes_do_not() -> None:
    cluster = _cluster()
    for name, node in (("a", EMPTY), ("b", sample("other-name")), ("c", BUSY)):
        cluster.observe(_observation(name, node=node), 0)

    a, b, c, nobody = classes_at(cluster, ["a", "b", "c", "nobody"], 0)

    assert a is b
    assert a is not c
    assert nobody is UNKNOWN
    assert cluster.class_count == 2
    assert cluster.get("b") is not None
    assert cluster.get("nobody") is None


def test_a_class_goes_with_its_last_node_and_its_id_is_not_used_again() -> None:
    cluster = _cluster()
    cluster.observe(_observation(), 0)
    (before,) = classes_at(cluster, ["n"], 0)
    cluster.observe(_observation(node=BUSY, sequence=2), 0)
    cluster.observe(_observation(sequence=3), 0)
    (after,) = classes_at(cluster, ["n"], 0)

    assert cluster.class_count == 1
    assert after.id > before.id
    assert len(cluster.classes.rules) == 1


def test_an_equal_kubelet_is_compared_once_and_its_layout_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet, other = sample().kubelet, replace(sample().kubelet)
    counts: Counter[str] = Counter()
    identity_of, cores_of = vars(Kubelet)["identity"], free_amounts._cores

    def identity(self: Kubelet) -> object:
        counts["identity"] += 1
        return identity_of.fget(self)

    def cores(machine: Machine) -> object:
        counts["cores"] += 1
        return cores_of(machine)

    monkeypatch.setattr(Kubelet, "identity", property(identity))
    monkeypatch.setattr(free_amounts, "_cores", cores)
    table = ClassTable()
    held = [table.hold(kubelet, PossibleStates((node.state,)), frozenset(), stale=False) for node in (EMPTY, BUSY) * 5]
    assert held[0].kubelet is kubelet
    assert counts == {"identity": 1, "cores": 1}

    assert table.hold(other, PossibleStates((EMPTY.state,)), frozenset(), stale=False) is held[0]
    for node_class in (*held, held[0]):
        table.drop(node_class)
    assert (len(table), counts["cores"]) == (0, 1)
    assert table.hold(other, PossibleStates((EMPTY.state,)), frozenset(), stale=False).kubelet is other


def test_hidden_managers_make_another_class() -> None:
    cluster = _cluster()
    cluster.observe(_observation("a"), 0)
    cluster.observe(replace(_observation("b"), hidden=frozenset({Provider.CPU})), 0)

    a, b = classes_at(cluster, ["a", "b"], 0)

    assert a is not b


def test_a_node_that_nothing_follows_from_is_unknown_but_listed() -> None:
    cluster = _cluster()
    cluster.observe(replace(_observation(), kubelet=None, state=None), 0)

    assert classes_at(cluster, ["n"], 0) == [UNKNOWN]
    assert [record.name for record in cluster] == ["n"]
    assert cluster.class_count == 0


@pytest.mark.parametrize(
    ("boot", "sequence", "digest", "said"),
    [
        ("b1", 4, "d", "sequence 4 is older"),
        ("b1", 5, "other", "sequence 5 was used for another report"),
        ("b0", 9, "d", "boot 'b0' is over"),
    ],
)
def test_what_is_older_changes_nothing(boot: str, sequence: int, digest: str, said: str) -> None:
    cluster = _cluster()
    cluster.observe(_observation(boot="b0", sequence=7), 0)
    cluster.observe(_observation(boot="b1", sequence=5), 0)
    held = cluster.get("n")

    with pytest.raises(OutdatedError, match=said):
        cluster.observe(_observation(node=BUSY, boot=boot, sequence=sequence, digest=digest), 1)

    assert cluster.get("n") is held


def test_the_same_report_again_is_a_sign_of_life() -> None:
    cluster = _cluster()
    cluster.observe(_observation(), 0)
    cluster.observe(_observation(), 50)

    assert not classes_at(cluster, ["n"], 100)[0].stale


def test_nodes_become_stale_and_fresh_again() -> None:
    cluster = _cluster()
    for name in ("a", "b"):
        cluster.observe(_observation(name), 0)
    (fresh,) = classes_at(cluster, ["a"], 60)
    cluster.heartbeat("b", boot_id="b1", sequence=1, digest="d", now=60)

    a, b = classes_at(cluster, ["a", "b"], 61)

    assert b is fresh
    assert a.stale
    assert a.state is not None
    assert a.state.key == EMPTY.state.key
    cluster.heartbeat("a", boot_id="b1", sequence=1, digest="d", now=62)
    assert classes_at(cluster, ["a"], 62) == [fresh]
    assert cluster.class_count == 1


def test_only_expire_applies_timeouts() -> None:
    store = _cluster()
    store.observe(_observation(), 0)
    before = store.index["n"]
    for late in (_observation("other"), _observation("other", sequence=2)):
        store.observe(late, 1000)

    assert not store.classes_of(["n"])[0].stale
    assert store.index["n"] is before
    store.expire(1000)
    assert store.classes_of(["n"])[0].stale


def test_a_change_of_the_pod_watch_reaches_many_nodes_in_steps() -> None:
    store = _cluster(max_nodes=3 * CATCH_UP)
    count = 2 * CATCH_UP + 500
    for number in range(count):
        store.observe(_observation(f"n{number}"), 0)

    store.set_watching(Watching.SILENT, 0)
    steps = [sum(record.node_class.stale for record in store)]
    while steps[-1] < count:
        store.expire(0)
        steps.append(sum(record.node_class.stale for record in store))
    assert steps == [CATCH_UP, 2 * CATCH_UP, count]

    store.set_watching(Watching.LIVE, 0)
    store.set_watching(Watching.SILENT, 0)
    store.expire(0)
    store.observe(_observation("n0", sequence=2), 1)
    assert store.classes_of(["n0"])[0].stale, "a node that reports shows it at once"


def test_a_heartbeat_must_fit_the_report_that_is_held() -> None:
    cluster = _cluster()
    with pytest.raises(UnknownNodeError):
        cluster.heartbeat("n", boot_id="b1", sequence=1, digest="d", now=0)
    cluster.observe(_observation(), 0)
    for boot, sequence, digest in (("b2", 1, "d"), ("b1", 2, "d"), ("b1", 1, "e")):
        with pytest.raises(OutdatedError):
            cluster.heartbeat("n", boot_id=boot, sequence=sequence, digest=digest, now=50)

    assert classes_at(cluster, ["n"], 61)[0].stale


def test_a_report_without_version_is_wanted_again_when_the_node_object_names_another() -> None:
    cluster = _cluster()
    cluster.observe(replace(_observation(), version_from_node=""), 0)
    cluster.heartbeat("n", boot_id="b1", sequence=1, digest="d", now=1)
    cluster.node_objects.see_version("n", "v1.36.2")

    with pytest.raises(OutdatedError, match=r"the Node object names kubelet 'v1.36.2'"):
        cluster.heartbeat("n", boot_id="b1", sequence=1, digest="d", now=2)
    cluster.observe(replace(_observation(sequence=2), version_from_node="v1.36.2"), 3)
    cluster.heartbeat("n", boot_id="b1", sequence=2, digest="d", now=4)
    cluster.drop_node("n")
    assert not cluster.node_objects.version_of("n")


def test_the_number_of_nodes_is_bounded() -> None:
    cluster = _cluster(max_nodes=1)
    cluster.observe(_observation("a"), 0)

    with pytest.raises(ClusterFullError):
        cluster.observe(_observation("b"), 0)

    cluster.observe(_observation("a", sequence=2), 0)
    assert len(cluster) == 1


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(1, 6), st.booleans()), max_size=40))
def test_whatever_arrives_the_newest_report_wins_and_no_class_is_lost(
    arrivals: list[tuple[str, int, int, bool]],
) -> None:
    """Boots follow each other: a late report of an earlier one is never taken for news."""
    cluster = _cluster()
    newest: dict[str, tuple[int, int]] = {}
    now = 0.0
    for name, boot, sequence, busy in arrivals:
        now += 17
        seen_boot, seen_sequence = newest.get(name, (-1, -1))
        is_news = boot > seen_boot or (boot == seen_boot and sequence > seen_sequence)
        if boot < seen_boot:
            continue  # only boots that were seen are known to be over
        observation = _observation(
            name, node=BUSY if busy else EMPTY, boot=f"b{boot}", sequence=sequence, digest=f"{boot}-{sequence}"
        )
        if is_news or (boot, sequence) == (seen_boot, seen_sequence):
            cluster.observe(observation, now)
            newest[name] = (boot, sequence)
        else:
            with pytest.raises(OutdatedError):
                cluster.observe(observation, now)

    held = {r.name: (int(r.observation.boot_id[1:]), r.observation.sequence) for r in cluster}
    classes = classes_at(cluster, held, now)

    assert held == newest
    assert cluster.class_count == len(set(classes))
    assert [r.node_class for r in cluster] == classes
