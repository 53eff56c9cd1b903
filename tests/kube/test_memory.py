"""Memory stays bounded: per pod, under churn, and with readers that do not read."""

import socket
import tracemalloc

import orjson

from extender.kube.client import KubeClient
from extender.kube.pods import PodDecoder
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.k8s import store as fake_store
from tests.fakes.k8s.resources import PODS
from tests.kube.watching import Consumer, followed, pod, truth
from tests.waiting import PATIENCE_SECONDS, until


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
        assert watch.wait_synced(PATIENCE_SECONDS)
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
