"""The rights named at the head of each module are enough, and each is used."""

import asyncio
from typing import Any

from extender.config.settings import Settings
from extender.kube.access import Access, plain
from extender.kube.binder import Binder, Binding, BindingWritten
from extender.kube.changes import Batch, Seen
from extender.kube.client import KubeClient
from extender.kube.leases import Elector, LeaseSettings
from extender.kube.namespaces import watch_namespaces
from extender.kube.node_annotations import NodeToucher, Touched
from extender.kube.nodes import watch_nodes
from extender.kube.nominated import watch_nominated
from extender.kube.pdbs import watch_budgets
from extender.kube.pods import PodDecoder, watch_pods
from extender.kube.reviews import Identity, Reviews
from extender.kube.watch import Watch
from extender.observability.metrics import Metrics
from extender.runtime.janitor import Janitor
from tests.fakes.apiserver import FakeApiServer
from tests.kube.watching import pod, until
from tests.runtime.test_janitor import failed_pod

GRANTS = {
    ("list", "pods"),
    ("watch", "pods"),
    ("get", "pods"),
    ("delete", "pods"),
    ("create", "pods/binding"),
    ("list", "nodes"),
    ("watch", "nodes"),
    ("patch", "nodes"),
    ("list", "namespaces"),
    ("watch", "namespaces"),
    ("list", "policy/poddisruptionbudgets"),
    ("watch", "policy/poddisruptionbudgets"),
    ("get", "coordination.k8s.io/leases"),
    ("create", "coordination.k8s.io/leases"),
    ("update", "coordination.k8s.io/leases"),
    ("create", "authentication.k8s.io/tokenreviews"),
    ("create", "authorization.k8s.io/subjectaccessreviews"),
}


class Token:
    """One that does not change."""

    def authorization(self) -> str | None:
        return "Bearer t"

    def renew(self) -> bool:
        return False


def test_the_rights_are_enough_and_none_is_idle(server: FakeApiServer) -> None:
    server.access.tokens = {"t": "extender"}
    server.access.grants = {"extender": GRANTS}
    server.access.reviews["theirs"] = {"authenticated": True, "user": {"username": "somebody"}}
    server.nodes.create({"metadata": {"name": "node-a"}})
    uid = server.pods.create(pod("a"))["metadata"]["uid"]
    client = KubeClient(Access(plain(server.url).configuration, Token()))
    watches: list[Watch[Any]] = [
        watch_pods(client, lambda _: None),
        watch_nodes(client, lambda _: None),
        watch_budgets(client, lambda _: None),
        watch_nominated(client, lambda _: None),
        watch_namespaces(client, lambda _: None),
    ]
    for watch in watches:
        watch.start()
    until(lambda: server.open_streams == 5)

    binder = Binder(client)
    binding = Binding(namespace="default", name="a", uid=uid, node_name="node-a")
    assert (binder.bind(binding), binder.bind(binding)) == (BindingWritten(), BindingWritten())
    elector = Elector(client, LeaseSettings(namespace="numa", name="extender", identity="me"))
    elector.step()
    elector.step()
    assert elector.leads
    reviews = Reviews(client)
    identity = reviews.authenticate("theirs")
    assert isinstance(identity, Identity)
    assert not reviews.allowed(identity, verb="get", path="/v1/nodes")
    assert NodeToucher(client).touch("node-a", "1", 0.0) == Touched()
    now = [0.0]
    failed = server.pods.create(failed_pod("failed"))
    janitor = Janitor(client, Settings(janitor="on", janitor_after_seconds=60), Metrics(), lambda: True, lambda: now[0])
    record = PodDecoder()(failed)
    assert record is not None
    janitor.apply(Batch((Seen(record[1]),)))
    now[0] = 61.0
    assert asyncio.run(janitor.step()) is not None
    assert server.pods.get("failed") is None
    for watch in watches:
        assert watch.stop()

    assert server.access.used() == GRANTS
