"""The caches of pods that no longer exist are limited in bytes, for any number of pods and any content."""

import gc
import threading
from dataclasses import replace
from typing import Any

import pytest

from extender.kube import pods
from extender.kube.changes import Batch, Gone
from extender.kube.client import KubeClient
from extender.kube.feed import pod_of
from extender.kube.nodes import WatchedSurroundings
from extender.kube.pods import MAX_READ_BYTES, PODS, PodDecoder, PodRecord, read_reduced
from extender.kube.watch import STREAM_CHANGES, Watch
from extender.recent import RecentBytes
from extender.replay.pod import Pod
from extender.wire.pods import pod_from_json
from tests.fakes.apiserver import FakeApiServer
from tests.kube.watching import QUICK
from tests.waiting import until


def reduced_specs(count: int) -> list[bytes]:
    """As the watch keeps pods of 110 containers that are all different: 2 KiB each, and 60 KiB as a Pod."""
    decode = PodDecoder()
    containers = [{"name": f"c{i}", "image": "i"} for i in range(110)]
    found = []
    for number in range(count):
        pod: dict[str, Any] = {
            "metadata": {"uid": f"u{number}", "name": f"p{number}", "labels": {"number": str(number)}},
            "spec": {"nodeName": "node-a", "containers": containers},
        }
        decoded = decode(pod)
        assert decoded is not None
        found.append(decoded[1].reduced)
    return found


def kept_pods() -> int:
    gc.collect()
    return sum(isinstance(each, Pod) for each in gc.get_objects())


def test_pods_that_are_gone_keep_a_limited_number_of_bytes() -> None:
    """Seen red: 20,000 specs of up to 4 KiB each were remembered, with a Pod of up to 100 kB for each."""
    specs, before = reduced_specs(500), kept_pods()
    weight = read_reduced(specs[0]).pod.weight_bytes
    assert len(specs) * weight > 1.5 * MAX_READ_BYTES

    for spec in specs:
        read_reduced(spec)

    assert kept_pods() - before <= MAX_READ_BYTES // weight


def test_the_last_results_are_kept_and_none_is_made_twice_while_it_is() -> None:
    made: list[int] = []

    def make(number: int) -> str:
        made.append(number)
        return str(number)

    recent: RecentBytes[int, str] = RecentBytes(10_000, lambda *_: 30)
    for number in (*range(400), 399, 398, 397):
        assert recent.of(number, lambda number=number: make(number)) == str(number)  # type: ignore[misc]

    assert made == list(range(400))
    assert recent.of(0, lambda: "again") == "again", "it has been forgotten"


def test_a_key_in_use_stays_whatever_else_comes() -> None:
    recent: RecentBytes[int, int] = RecentBytes(10_000, lambda *_: 30)
    for number in range(1000):
        recent.of(number, lambda number=number: number)  # type: ignore[misc]
        assert recent.of(-1, lambda number=number: number) == 0  # type: ignore[misc]


def test_what_consumers_need_of_a_pod_is_read_once_and_by_the_watch(
    client: KubeClient, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen red: pods too large for the cache were read three times, twice of it on the event loop, 70 ms a batch."""
    readers: list[str] = []
    consumers: list[int] = []
    surroundings = WatchedSurroundings()

    def counted(document: object) -> Pod:
        readers.append("consumer" if consumers else "watch")
        return pod_from_json(document)

    def consume(batch: Batch[PodRecord]) -> None:
        consumers.append(threading.get_ident())
        surroundings.apply_pods(batch)
        for change in batch.changes:
            assert isinstance(change, Gone) or pod_of(change.value) is not None
        consumers.pop()

    monkeypatch.setattr(pods, "pod_from_json", counted)
    watch = Watch(client, replace(PODS, check=lambda record: read_reduced(record.reduced)), consume, QUICK)
    watch.start()
    try:
        until(lambda: watch.status().streams)
        for number in range(20):
            server.pods.create(large_pod(number))
        for number in range(20):
            server.pods.delete(f"large-{number}")
        until(lambda: watch.status().resource_version == str(server.store.revision))
    finally:
        watch.stop()

    assert readers.count("watch") == 20
    assert readers.count("consumer") == 0
    assert surroundings("node-a").requested_milli is not None
    assert not surroundings("node-a").requested_milli


def large_pod(number: int) -> dict[str, Any]:
    """A pod unlike all others, whose `Pod` takes more memory than an entry of the cache may have."""
    containers = [{"name": f"c{i}", "image": "i"} for i in range(110)]
    return {
        "metadata": {"name": f"large-{number}", "namespace": "default", "labels": {"number": str(number)}},
        "spec": {"nodeName": "node-a", "containers": containers},
    }


def test_a_stream_is_delivered_in_small_batches(client: KubeClient, server: FakeApiServer) -> None:
    """Each batch is applied at once on the event loop, where other calls wait."""
    sizes: list[int] = []
    block = threading.Event()

    def consume(batch: Batch[PodRecord]) -> None:
        block.wait(10)
        sizes.append(len(batch.changes))

    watch = Watch(client, PODS, consume, QUICK)
    watch.start()
    try:
        until(lambda: watch.status().streams or sizes)
        for number in range(5 * STREAM_CHANGES):
            server.pods.create({**large_pod(number), "spec": {"nodeName": "n", "containers": [{"name": "c"}]}})
        block.set()
        until(lambda: sum(sizes) == 5 * STREAM_CHANGES)
    finally:
        block.set()
        watch.stop()

    assert max(sizes) <= STREAM_CHANGES
