"""Memory stays bounded: per pod, under churn, and with readers that do not read."""

import gc
import socket
import tracemalloc
from collections.abc import Callable

import orjson
import pytest

from extender.kube.client import JSON, KubeClient
from extender.kube.feed import pod_of
from extender.kube.pods import MAX_READ_BYTES, MAX_REDUCED_BYTES, PodDecoder, PodRecord, read_reduced
from extender.recent import PARTS
from extender.wire.errors import CapError
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.k8s import store as fake_store
from tests.fakes.k8s.resources import PODS
from tests.kube.watching import Consumer, followed, pod, truth
from tests.waiting import until


def test_a_pod_costs_less_than_a_kilobyte() -> None:
    raws = []
    for i in range(3000):
        value = pod(f"pod-{i}", f"node-{i % 50}")
        value["metadata"] |= {"uid": f"00000000-0000-4000-8000-{i:012d}", "labels": {"pod-name": f"pod-{i}"}}
        value["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}] * 20
        raws.append(orjson.dumps(value))
    decode = PodDecoder()
    tracemalloc.start()
    records = dict(filter(None, (decode(orjson.loads(raw)) for raw in raws)))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(records) == 3000
    assert used / 3000 < 1000


def test_churn_leaves_nothing_behind(client: KubeClient, server: FakeApiServer) -> None:
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: watch.status().synced)
        for i in range(2000):
            server.pods.create(pod(f"pod-{i}", "node-a"))
            server.pods.delete(f"pod-{i}")
        until(lambda: watch.status().resource_version == str(server.store.revision))

        assert consumer.pods == truth(server) == {}
        assert watch.status().objects == 0


def test_the_history_of_the_fake_is_bounded() -> None:
    with FakeApiServer(history=100) as server:
        for i in range(300):
            server.pods.create(pod(f"pod-{i}", "node-a"))

        collection = server.store.collections[PODS]
        assert len(collection.log) == 100
        assert collection.compacted == server.store.revision - 100


def test_a_reader_that_does_not_read_is_expired(server: FakeApiServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.sendall(b"GET /api/v1/pods?watch=true&resourceVersion=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: server.open_streams == 1)
        (watcher,) = next(iter(server.store.collections[PODS].watchers.values()))
        padding = "x" * 4000
        for i in range(fake_store.BACKLOG + 4000):
            if watcher.expired:
                break
            value = pod(f"pod-{i % 100}", "node-a")
            if i < 100:
                server.pods.create(value | {"status": {"message": padding}})
            else:
                server.pods.patch(f"pod-{i % 100}", {"status": {"reason": str(i)}})

        assert watcher.expired
        assert len(watcher.backlog) == 0


MAP = "[" + ",".join(["{0}"] * 4000) + "]"
LONG: dict[str, Callable[[int], JSON]] = {
    "annotations": lambda i: {
        "metadata": {"annotations": {f"x{k}.resource-policy.nri.io/pod": f"{i}{MAP}" for k in range(15)}}
    },
    "labels": lambda i: {"metadata": {"labels": {f"l{i}-{k}": "x" * 60 for k in range(3000)}}},
    "tolerations": lambda i: {"spec": {"tolerations": [{"key": f"{i}-{k}-{'x' * 60}"} for k in range(3000)]}},
    "affinity": lambda i: {
        "spec": {"affinity": {"nodeAffinity": {"x": [{"key": f"{i}-{k}-{'x' * 60}"} for k in range(3000)]}}}
    },
}


@pytest.mark.parametrize("part", LONG)
def test_what_its_author_chooses_of_a_pod_is_kept_within_a_bound(part: str) -> None:
    """Each of these pods is looked at in every way. Seen red: 250 to 600 kB a pod, also of pods that were deleted."""
    documents = []
    for i in range(20):
        value = pod(f"pod-{i}", "node-a", cpu="2")
        for key, changes in LONG[part](i).items():
            value[key] |= changes
        documents.append(orjson.dumps(value | {"metadata": value["metadata"] | {"uid": f"u{i}"}}))
    decode = PodDecoder()

    def look(document: bytes) -> PodRecord:
        decoded = decode(orjson.loads(document))
        assert decoded is not None
        record = decoded[1]
        shape = pod_of(record)
        assert shape is not None
        assert shape.containers[0].requests_milli["cpu"] == 2000
        read_reduced(record.reduced)
        return record

    look(documents.pop())
    tracemalloc.start()
    records = [look(document) for document in documents]
    held, _ = tracemalloc.get_traced_memory()
    del records
    gc.collect()
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / len(documents) < 1.1 * MAX_REDUCED_BYTES
    assert left / len(documents) < MAX_READ_BYTES // PARTS, "nothing of pods that are gone, unless it is small"


def test_annotations_that_are_cut_are_still_more_than_are_read() -> None:
    """Otherwise a verdict of the NRI policy would rest on a part of them."""
    value = pod("p", "node-a")
    value["metadata"] |= {"uid": "u", **LONG["annotations"](1)["metadata"]}
    decoded = PodDecoder()(value)
    assert decoded is not None

    shape = pod_of(decoded[1])

    assert shape is not None
    assert "metadata.annotations" in shape.metadata.excess


def test_a_pod_that_admission_reads_more_of_than_is_kept_cannot_be_read() -> None:
    value = pod("p", "node-a")
    amounts = {"limits": {f"vendor.example/{k}-{'x' * 40}": "1" for k in range(200)}}
    value["spec"]["containers"] = [{"name": f"c{k}", "resources": amounts} for k in range(20)]

    with pytest.raises(CapError, match="bytes that admission reads"):
        PodDecoder()(value | {"metadata": value["metadata"] | {"uid": "u"}})
