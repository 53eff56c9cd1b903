"""The rights named at the head of each module are enough, and each is used."""

import asyncio
from pathlib import Path
from typing import Any

import yaml

from extender.config.settings import Settings
from extender.features.autoscaling import objects as autoscaling
from extender.features.autoscaling.autoscaler import Autoscaler, Wish
from extender.features.autoscaling.cluster_autoscaler import ClusterAutoscaler
from extender.features.autoscaling.documents import Record, template_of
from extender.features.autoscaling.karpenter import Karpenter
from extender.features.autoscaling.pools import KARPENTER_POOL, NodePool
from extender.features.claims.cpus import controller as claim_choice
from extender.features.claims.cpus.choice import Choice
from extender.features.claims.feed import CLAIMS, CLASSES, SLICES, TEMPLATES
from extender.features.groups.feed import sized_objects
from extender.features.janitor.feature import Janitor
from extender.features.kueue import objects as kueue
from extender.features.namespaces.feature import NAMESPACES
from extender.features.preemption.nominated import NOMINATED
from extender.features.preemption.running import BUDGETS
from extender.features.requeue.feature import OBJECT, touch
from extender.features.room import cluster as room
from extender.features.room.cluster import Cluster
from extender.features.room.record import RecordStore
from extender.kube.access import Access, plain
from extender.kube.binder import Binder
from extender.kube.changes import Batch, Seen
from extender.kube.client import KubeClient
from extender.kube.leases import Elector, LeaseSettings
from extender.kube.nodes import NODES
from extender.kube.objects import ObjectName
from extender.kube.pod_objects import read_pod, write_event
from extender.kube.pods import PODS
from extender.kube.reviews import Identity, Reviews
from extender.kube.shapes import shapes_in
from extender.kube.watch import Watch
from extender.observability.metrics import Metrics
from extender.scheduling.binder import Binding, PodBound
from extender.wire.groups import APIS
from tests.fakes.apiserver import FakeApiServer
from tests.features.janitor.test_janitor import failed_pod
from tests.features.pod_events.test_pod_events import write_an_event
from tests.kube.watching import pod
from tests.waiting import PATIENCE_SECONDS, until
from tests.world.watched import pod_record

NAMESPACE = "numa-extender"


def _user(account: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{account}"


def _right(api: str) -> str:
    return f"{api.partition('/')[0]}/{APIS[api][1]}"


ACCOUNTS = {
    room.ACCOUNT: {("create", "pods/eviction"), ("create", "events")},
    autoscaling.ACCOUNT: {
        ("get", "pods"),
        ("patch", "pods"),
        *((verb, "podtemplates") for verb in ("list", "create", "patch", "delete")),
        *((verb, "autoscaling.x-k8s.io/provisioningrequests") for verb in ("list", "create", "delete")),
        *((verb, "karpenter.sh/nodepools") for verb in ("get", "list")),
        *((verb, "karpenter.sh/nodeclaims") for verb in ("get", "list", "create", "patch", "delete")),
        ("patch", "nodes"),
        ("create", "events"),
    },
    claim_choice.ACCOUNT: {("get", "pods"), ("create", "resource.k8s.io/resourceclaims")},
    kueue.ACCOUNT: {
        ("get", "kueue.x-k8s.io/workloads"),
        *(("patch", f"kueue.x-k8s.io/{each}/status") for each in ("admissionchecks", "workloads")),
    },
}
"""What the accounts may do as which the extender writes."""
GRANTS = {
    *(
        (verb, f"kueue.x-k8s.io/{each}")
        for each in ("admissionchecks", "resourceflavors", "workloads")
        for verb in ("list", "watch")
    ),
    ("list", "pods"),
    ("watch", "pods"),
    ("get", "pods"),
    ("delete", "pods"),
    ("create", "pods/binding"),
    ("create", "events"),
    ("list", "resource.k8s.io/deviceclasses"),
    ("watch", "resource.k8s.io/deviceclasses"),
    ("list", "resource.k8s.io/resourceslices"),
    ("watch", "resource.k8s.io/resourceslices"),
    ("list", "resource.k8s.io/resourceclaims"),
    ("watch", "resource.k8s.io/resourceclaims"),
    ("list", "resource.k8s.io/resourceclaimtemplates"),
    ("watch", "resource.k8s.io/resourceclaimtemplates"),
    ("list", "nodes"),
    ("watch", "nodes"),
    ("patch", "storage.k8s.io/csistoragecapacities"),
    *((verb, f"{api.partition('/')[0]}/{plural}") for api, (_, plural) in APIS.items() for verb in ("list", "watch")),
    ("impersonate", "serviceaccounts"),
    ("create", "configmaps"),
    ("get", "configmaps"),
    ("update", "configmaps"),
    ("list", "configmaps"),
    ("watch", "configmaps"),
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
"""What the extender itself may do."""
APIS_SERVED = (
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1alpha1",
    "scheduling.x-k8s.io/v1alpha1",
    "jobset.x-k8s.io/v1alpha2",
)
"""The APIs of groups that the fake API server has."""
SERVED = {(verb, _right(api)) for api in APIS_SERVED for verb in ("list", "watch")}


ROLE = Path(__file__).parents[2] / "manifests/components/gangs/rbac.yaml"


def test_the_component_of_groups_grants_the_rights_on_every_api_with_sizes_and_no_others() -> None:
    role, _ = yaml.safe_load_all(ROLE.read_text())
    granted = {(group, plural) for rule in role["rules"] for group in rule["apiGroups"] for plural in rule["resources"]}
    assert granted == {(api.partition("/")[0], plural) for api, (_, plural) in APIS.items()}
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}


class Token:
    """One that does not change."""

    def authorization(self) -> str | None:
        return "Bearer t"

    def renew(self) -> bool:
        return False


def ask_for_nodes(server: FakeApiServer, client: KubeClient, name: ObjectName) -> None:
    """All that requests for nodes write and read, from their beginning to their end."""
    objects = autoscaling.Objects(client)
    karpenter = Karpenter(objects, lambda: 0.0)
    autoscalers: dict[str, Autoscaler] = {"pool": ClusterAutoscaler(objects), KARPENTER_POOL: karpenter}
    for label, autoscaler in autoscalers.items():
        pools = (NodePool(label, "big", "type-a"),)
        record = Record(namespace="default", name="r", pods=(name,), pools=pools, nodes=2, refused_on=(), since=0)
        objects.create_template(record, template_of(record, pod("a"), ()))
        manifest = objects.pod(name)
        assert manifest is not None
        assert autoscaler.limited(Wish({}, {}, manifest, [])) == {}
        autoscaler.ask(record, {name: manifest})
        assert objects.records() == [record]
        assert list(autoscaler.outcomes([record])) == [("default", "r")]
        objects.note(record)
        if autoscaler is karpenter:
            assert len(karpenter._new_claims) == 2
            status = {"nodeName": "node-a", "conditions": [{"type": "Registered", "status": "True"}]}
            server.node_claims.patch(server.node_claims.list()[0]["metadata"]["name"], {"status": status}, "")
        autoscaler.withdraw(record, {name: manifest})
        objects.delete_template(record)
    assert len(server.node_claims) == 1
    write_event(client, name, "NoPoolFits", "why", 0.0)


def create_a_claim(client: KubeClient, pod_name: ObjectName) -> None:
    """All that the choice of CPUs for a pod reads and writes."""
    assert read_pod(client, pod_name.namespace, pod_name.name, pod_name.uid) is not None
    assert claim_choice.create_claim(client, claim_choice.WaitingPod(pod_name, "cpus"), Choice("node-a", 1))


def answer_a_workload(server: FakeApiServer, objects: kueue.KueueObjects) -> None:
    """All that an answer to a Workload of Kueue writes and reads."""
    server.kueue_checks.create({"metadata": {"name": "aligned"}, "spec": {"controllerName": kueue.CONTROLLER}})
    status = {"admissionChecks": [{"name": "aligned", "state": "Pending"}]}
    _, head = kueue.decode_workload(server.kueue_workloads.create({"metadata": {"name": "w"}, "status": status}))
    assert (read := objects.workload(head)) is not None
    assert objects.activate(kueue.Check("aligned", is_active=False), 0.0)
    assert objects.answer(head, read, {"aligned": kueue.entry_of(kueue.CheckState.READY, "", 0.0, None)})


async def _make_room(server: FakeApiServer, client: KubeClient) -> None:
    """What the controller that makes room does: its record, the pods of a controller, an eviction and an event."""
    store, cluster = RecordStore(client, NAMESPACE), Cluster(client, client.acting_as(NAMESPACE, room.ACCOUNT))
    record = store.load()
    store.save(record)
    store.save(record)
    assert store.load().version == record.version
    evicted = server.pods.create({"metadata": {"name": "evicted", "labels": {"app": "x"}}, "spec": {}})
    uid = (await cluster.pod("default", "evicted"))["metadata"]["uid"]
    assert await cluster.owned_by("u", "default", evicted["metadata"]["labels"], 10) == []
    await cluster.evict("default", "evicted", uid)
    await cluster.tell("default", "evicted", uid, "MovedForRoom", "why", 0.0)


def test_the_rights_are_enough_and_none_is_idle(server: FakeApiServer) -> None:
    server.access.tokens = {"t": "extender"}
    server.access.grants = {"extender": GRANTS, **{_user(name): rights for name, rights in ACCOUNTS.items()}}
    server.access.reviews["theirs"] = {"authenticated": True, "user": {"username": "somebody"}}
    server.nodes.create({"metadata": {"name": "node-a"}})
    uid = server.pods.create(pod("a"))["metadata"]["uid"]
    client = KubeClient(Access(plain(server.url).configuration, Token()))
    watches: list[Watch[Any]] = [
        Watch(client, PODS, lambda _: None),
        Watch(client, NODES, lambda _: None),
        Watch(client, BUDGETS, lambda _: None),
        Watch(client, NOMINATED, lambda _: None),
        Watch(client, NAMESPACES, lambda _: None),
        Watch(client, shapes_in(NAMESPACE), lambda _: None),
        Watch(client, SLICES, lambda _: None),
        Watch(client, CLAIMS, lambda _: None),
        Watch(client, CLASSES, lambda _: None),
        Watch(client, TEMPLATES, lambda _: None),
        Watch(client, claim_choice.WAITING, lambda _: None),
        Watch(client, kueue.CHECKS, lambda _: None),
        Watch(client, kueue.FLAVORS, lambda _: None),
        Watch(client, kueue.WORKLOADS, lambda _: None),
        *(Watch(client, sized_objects(api), lambda _: None) for api in APIS_SERVED),
    ]
    for watch in watches:
        watch.start()
    until(lambda: server.open_streams == len(watches))

    binder = Binder(client)
    binding = Binding(namespace="default", name="a", uid=uid, node_name="node-a")
    assert (binder.bind(binding), binder.bind(binding)) == (PodBound(), PodBound())
    elector = Elector(client, LeaseSettings(namespace="numa", name="extender", identity="me"))
    elector.step()
    elector.step()
    assert elector.leads
    reviews = Reviews(client)
    identity = reviews.authenticate("theirs")
    assert isinstance(identity, Identity)
    assert not reviews.allowed(identity, verb="get", path="/v1/nodes")
    server.capacities.create({"metadata": {"name": OBJECT, "namespace": NAMESPACE}})
    touch(client, NAMESPACE, "1")
    now = [0.0]
    failed = server.pods.create(failed_pod("failed"))
    janitor = Janitor(client, Settings(janitor="on", janitor_after_seconds=60), Metrics(), lambda: True, lambda: now[0])
    janitor.apply(Batch((Seen(pod_record(failed)),)))
    now[0] = 61.0
    assert asyncio.run(janitor.step()) is not None
    assert server.pods.get("failed") is None
    asyncio.run(write_an_event(client))
    server.node_pools.create({"metadata": {"name": "big"}, "spec": {}})
    ask_for_nodes(server, client.acting_as(NAMESPACE, autoscaling.ACCOUNT), ObjectName(uid, "default", "a"))
    answer_a_workload(server, kueue.KueueObjects(client.acting_as(NAMESPACE, kueue.ACCOUNT)))
    asyncio.run(_make_room(server, client))
    create_a_claim(client.acting_as(NAMESPACE, claim_choice.ACCOUNT), ObjectName(uid, "default", "a"))
    for watch in watches:
        assert watch.stop(PATIENCE_SECONDS)

    unused = {(verb, _right(api)) for api in APIS for verb in ("list", "watch")} - SERVED
    assert server.access.used("extender") == GRANTS - unused
    assert {name: server.access.used(_user(name)) for name in ACCOUNTS} == ACCOUNTS
