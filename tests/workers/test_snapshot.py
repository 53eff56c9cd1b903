"""The copy of the nodes that workers hold is always that of the service."""

import pickle
import random
from collections.abc import Mapping
from dataclasses import replace

import orjson
import pytest

from extender.cluster.events import PodForgotten
from extender.cluster.node import UnknownNodeError
from extender.cluster.store import NodeStore
from extender.intake import observation_of
from extender.questions.node_context import NOTHING_KNOWN, NodeContext, Subject
from extender.questions.snapshot import Snapshot, SnapshotSender
from extender.samples.machines import GPU
from extender.samples.nodes import Workload
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.reports import pod_of, report_of, sample
from tests.subjects import live

NAMES = [f"node-{i}" for i in range(80)]


def _told(subject: Subject) -> tuple[object, ...]:
    """All that a question can see of a node."""
    c = subject.node_class
    parts = (c.id, c.states, c.hidden, c.stale, c.complete, c.score_only, c.counts, c.awaited)
    return subject.name, parts, subject.kubelet and subject.kubelet.identity, subject.states, subject.around


@pytest.mark.parametrize("seed", range(4))
def test_what_is_sent_makes_the_same_nodes(seed: int) -> None:
    chance = random.Random(seed)
    cluster = NodeStore(stale_after_seconds=50, max_nodes=100)
    around: dict[str, NodeContext] = {}
    sender, copy = SnapshotSender(), Snapshot()
    now = 0.0

    def look_up(name: str) -> NodeContext:
        return replace(around.get(name, NOTHING_KNOWN))  # another object each time, as the watch gives

    for step in range(120):
        now += 1
        name = chance.choice(NAMES)
        kind = chance.choice(["report", "report", "report", "assume", "forget", "drop", "around", "heartbeat"])
        held = cluster.get(name)
        if kind == "report":
            load = Workload(name="w", copies=chance.randint(0, 3), resources={"cpu": 2, "memory": "1Gi"})
            node = sample(name, workloads=[load] if load.copies else [], devices={GPU: [0, 1]})
            body = orjson.dumps(report_of(node, sequence=step + 1))
            cluster.observe(observation_of(read_report(body), body), now)
        elif kind == "assume" and held is not None:
            cluster.assume(name, replace(pod_from_json(pod_of(2)), uid=f"uid-{step}"), now)
        elif kind == "forget":
            cluster.apply(PodForgotten(name, f"uid-{step - 1}"), now=now)
        elif kind == "drop":
            cluster.drop_node(name)
        elif kind == "around":
            requested: Mapping[str, int] = {"cpu": chance.randint(1, 9) * 1000}
            around[name] = NodeContext(labels={"step": str(step)}, requested_milli=requested)
        if chance.random() < 0.3:
            cluster.expire(now)
            for update in sender.updates(list(cluster), look_up):
                if update is not None:
                    copy.apply(pickle.loads(pickle.dumps(update)))
            records = sorted(cluster, key=lambda record: record.name)
            assert [_told(s) for s in copy.subjects(None)] == [_told(live(r, look_up)) for r in records]
            classes = {s.node_class.id: s.node_class for s in copy.subjects(None)}
            assert all(s.node_class is classes[s.node_class.id] for s in copy.subjects(None)), "one object a class"
            for record in records:
                found = copy.find(record.name)
                assert found is not None
                assert found.facts == {"pods": record.observation.facts.get("pods")}
    assert len(cluster) > 10


def test_nothing_is_sent_twice() -> None:
    cluster = NodeStore(stale_after_seconds=50, max_nodes=100)
    for name in NAMES:
        body = orjson.dumps(report_of(sample(name)))
        cluster.observe(observation_of(read_report(body), body), 0.0)
    sender = SnapshotSender()

    def changed() -> tuple[int, int]:
        updates = [u for u in sender.updates(list(cluster), lambda _: NodeContext()) if u is not None]
        return sum(len(u.classes) for u in updates), sum(len(u.nodes) for u in updates)

    assert changed() == (1, len(NAMES))
    assert changed() == (0, 0)
    record = cluster.get("node-3")
    assert record is not None
    seen = record.observation
    cluster.heartbeat("node-3", boot_id=seen.boot_id, sequence=seen.sequence, digest=seen.digest, now=5.0)
    assert changed() == (0, 0), "a heartbeat changes nothing that a question sees"
    cluster.assume("node-3", replace(pod_from_json(pod_of(2)), uid="new"), 6.0)
    assert changed() == (1, 1)


def test_a_name_that_no_node_has() -> None:
    with pytest.raises(UnknownNodeError):
        Snapshot().subjects(["nobody"])
    assert Snapshot().find("nobody") is None
