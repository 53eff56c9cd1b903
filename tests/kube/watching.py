"""A consumer that applies what a watch tells it, and objects to watch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from extender.kube.changes import Batch, Changed, Gone, Seen
from extender.kube.client import KubeClient
from extender.kube.errors import Backoff
from extender.kube.pods import PODS, PodDecoder, PodRecord
from extender.kube.watch import Watch, WatchSettings
from tests.fakes.apiserver import FakeApiServer
from tests.waiting import PATIENCE_SECONDS

QUICK = WatchSettings(
    page_size=7,
    batch_size=5,
    page_seconds=30.0,
    idle_seconds=30.0,
    stream_seconds=300.0,
    backoff=Backoff(base_seconds=0.01, cap_seconds=0.05),
)


@dataclass
class Consumer:
    """Applies batches to a dict, and holds the watch to its word: only known pods change or go."""

    pods: dict[str, PodRecord] = field(default_factory=dict)
    batches: list[Batch[PodRecord]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def __call__(self, batch: Batch[PodRecord]) -> None:
        self.batches.append(batch)
        for change in batch.changes:
            self.kinds.append(type(change).__name__)
            match change:
                case Seen(value):
                    assert value.uid not in self.pods
                    self.pods[value.uid] = value
                case Changed(old, value):
                    assert self.pods[value.uid] == old
                    assert old != value
                    self.pods[value.uid] = value
                case Gone(value):
                    assert self.pods.pop(value.uid) == value


def truth(server: FakeApiServer) -> dict[str, PodRecord]:
    """What the watch must arrive at."""
    decode = PodDecoder()
    decoded = (decode(pod) for pod in server.pods.list("spec.nodeName!="))
    return dict(item for item in decoded if item is not None)


@contextmanager
def followed(client: KubeClient, consumer: Consumer, settings: WatchSettings = QUICK) -> Iterator[Watch[PodRecord]]:
    """A running watch of pods; it must have ended cleanly when the test is over."""
    watch = Watch(client, PODS, consumer, settings)
    watch.start()
    try:
        yield watch
    finally:
        assert watch.stop(PATIENCE_SECONDS)
        assert watch.status().broken == ""


def pod(name: str, node: str = "", *, cpu: str = "2", **spec: Any) -> dict[str, Any]:
    """A guaranteed pod of one container in `default`."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "app", "image": "app", "resources": {"requests": amounts, "limits": amounts}}
    placed = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "demo"}},
        "spec": {"containers": [container], **placed, **spec},
        "status": {"phase": "Running" if node else "Pending", "qosClass": "Guaranteed"},
    }
