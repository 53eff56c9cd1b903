"""One hostile object among honest ones: a list or a stream always yields exactly the honest ones.

The fields that are made hostile are those that a reader asks for, as it reads an honest object, and those that the
honest object has.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.app import make_service
from extender.config.settings import Settings
from extender.features.claims.feed import CLAIMS, SLICES, TEMPLATES, NamedSlice
from extender.features.groups.feed import sized_objects
from extender.features.namespaces.feature import NAMESPACES
from extender.features.preemption.nominated import NOMINATED
from extender.features.preemption.running import BUDGETS
from extender.features.topologies.feature import TOPOLOGIES
from extender.kube.access import plain
from extender.kube.changes import Batch
from extender.kube.client import KubeClient
from extender.kube.nodes import NODES
from extender.kube.objects import name_of, parse_events, read_head, read_object, read_page
from extender.kube.pods import PODS
from extender.kube.source import ObjectReader, Source
from extender.kube.watch import Watch
from extender.runtime.connection import ApiConnection
from extender.wire.errors import WireError
from extender.wire.groups import APIS
from extender.wire.parsing import MAX_CUTS, MAX_DEPTH, repaired
from extender.wire.pods import pod_from_json
from tests.fakes.apiserver import FakeApiServer, Objects
from tests.kube.watching import QUICK, pod
from tests.waiting import PATIENCE_SECONDS, until

Json = dict[str, Any]
Path = tuple[str | int, ...]
LOG = logging.getLogger(__name__)
DEEP = b'{"f:a":' * 1100 + b"1" + b"}" * 1100
NODE_AFFINITY: Json = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}
}
RICH_SPEC: Json = {
    "priority": 5,
    "priorityClassName": "system-node-critical",
    "overhead": {"cpu": "1m"},
    "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule", "tolerationSeconds": 5}],
    "affinity": {"nodeAffinity": NODE_AFFINITY},
    "resourceClaims": [{"name": "r", "resourceClaimName": "c"}],
    "schedulingGroup": {"podGroupName": "g"},
    "workloadRef": {"name": "w", "podGroup": "g", "podGroupReplicaKey": "0"},
    "initContainers": [{"name": "init", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
}
RICH_STATUS: Json = {
    "phase": "Failed",
    "reason": "TopologyAffinityError",
    "message": "Pod was rejected: x",
    "startTime": "2026-01-01T00:00:00Z",
    "containerStatuses": [
        {
            "name": "app",
            "allocatedResources": {"cpu": "2"},
            "state": {"waiting": {"reason": "CreateContainerError", "message": "topology-aware: x"}},
        }
    ],
    "resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}],
    "extendedResourceClaimStatus": {"requestMappings": [{"containerName": "app", "resourceName": "gpu"}]},
}
RICH_METADATA: Json = {
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"app": "demo"},
    "annotations": {
        "kubernetes.io/config.mirror": "m",
        "numa-extender.io/group": "g",
        "numa-extender.io/group-size": "2",
        "numa-extender.io/alignment": "required",
        "cpu.preserve.resource-policy.nri.io/pod": "true",
    },
    "ownerReferences": [{"kind": "ReplicaSet", "controller": True, "uid": "o"}],
    "managedFields": [{"manager": "m", "fieldsV1": {"f:zones": {}}}],
}


def rich_pod(node: str) -> Json:
    made = pod("x", node)
    made["metadata"] |= RICH_METADATA
    made["spec"] |= RICH_SPEC
    made["status"] |= RICH_STATUS | ({} if node else {"nominatedNodeName": "n"})
    return made


def named(**rest: object) -> Json:
    return {"metadata": {"name": "x", "namespace": "default", **RICH_METADATA}, **rest}


ZONE = {
    "name": "node-0",
    "type": "Node",
    "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}],
}
EXPRESSION = {"key": "a", "operator": "In", "values": ["b"]}
GANG = {"gang": {"minCount": 2}}
SERVICE = make_service(Settings(port=0, gangs="on", janitor="on"))
CHECKED_PODS = replace(PODS, check=ApiConnection(SERVICE, KubeClient(plain("http://127.0.0.1:1")), QUICK).read_pod)
KINDS: Mapping[str, tuple[Source[Any], Json]] = {
    "pods": (CHECKED_PODS, rich_pod("n")),
    "nominations": (NOMINATED, rich_pod("")),
    "nodes": (
        NODES,
        named(
            spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "unschedulable": True},
            status={"allocatable": {"cpu": "4"}, "nodeInfo": {"kubeletVersion": "v1.36.2"}},
        ),
    ),
    "namespaces": (NAMESPACES, named()),
    "budgets": (
        BUDGETS,
        named(
            spec={"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [EXPRESSION]}},
            status={"disruptionsAllowed": 1, "disruptedPods": {"p": "2026-01-01T00:00:00Z"}},
        ),
    ),
    "slices": (
        SLICES,
        named(
            spec={
                "driver": "d", "nodeName": "n", "perDeviceNodeSelection": False,
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "g", "attributes": {"resource.kubernetes.io/numaNode": {"ints": [1]}}}],
            }
        ),
    ),
    "claims": (
        CLAIMS,
        named(
            spec={"devices": {"config": [{"opaque": {"driver": "d", "parameters": {}}}]}},
            status={"allocation": {"devices": {"results": [{"driver": "d", "pool": "p", "device": "g"}]}}},
        ),
    ),
    "templates": (
        TEMPLATES,
        named(spec={"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}),
    ),
    "topologies": (
        TOPOLOGIES,
        named(topologyPolicies=["None"], attributes=[{"name": "topologyManagerPolicy", "value": "x"}], zones=[ZONE]),
    ),
    **{
        api: (
            sized_objects(api),
            named(
                spec={
                    "minMember": 2, "schedulingPolicy": GANG, "podGroups": [{"name": "g", "policy": GANG}],
                    "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
                    "replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2}}}],
                }
            ),
        )
        for api in APIS
    },
}  # fmt: skip


class Asked(dict[str, Any]):
    """A JSON object that records which keys are asked for, in itself and below."""

    def __init__(self, value: Json, path: Path, seen: set[Path]) -> None:
        super().__init__({key: asked(each, (*path, key), seen) for key, each in value.items()})
        self._path, self._seen = path, seen

    def get(self, key: str, default: object = None) -> object:
        self._seen.add((*self._path, key))
        return super().get(key, default)

    def __getitem__(self, key: str) -> object:
        self._seen.add((*self._path, key))
        return super().__getitem__(key)


def asked(value: object, path: Path, seen: set[Path]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return Asked(value, path, seen)
    if isinstance(value, list):
        return [asked(each, (*path, i), seen) for i, each in enumerate(value)]
    return value


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """Every place of a document, itself left out."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in entries:
        yield (*path, key)
        yield from places(each, (*path, key))


def hostile_places(source: Source[Any], honest: Json) -> list[Path]:
    seen = set(places(honest))
    source.decode(asked(honest, (), seen))
    if source.path == PODS.path:
        pod_from_json(asked({**honest, "status": {**honest["status"], "qosClass": "Guaranteed"}}, (), seen))
    return sorted(seen, key=repr)


PLACES = {kind: hostile_places(source, honest) for kind, (source, honest) in KINDS.items()}
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20), st.sampled_from(["\x1b[31m", "\u202e", "", "9" * 600, "2026-13-01T00:00:00Z", "1e9999Gi"]),
)  # fmt: skip
EVIL = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
VERBATIM = st.sampled_from(
    [
        DEEP, b"[" * 1100 + b"]" * 1100, b"[" * 5000 + b"]" * 5000, b"[" * 300 + b"]" * 300, b'"\\ud800"',
        b'"\xff\xfe"',
        b"1e999999", b"9" * 5000, b'{"a":1,"a":[]}', b'["[{\\"]}", "\\\\"]',
    ]
)  # fmt: skip


@st.composite
def hostile(draw: st.DrawFn, kind: str) -> bytes:
    """An object of the kind with evil in one to three places. Its own names stay readable or not, as it comes."""
    value = orjson.loads(orjson.dumps(KINDS[kind][1]))
    value["metadata"] |= {"uid": "evil", "name": "evil", "resourceVersion": "7"}
    for number in range(draw(st.integers(1, 3))):
        put(value, draw(st.sampled_from(PLACES[kind])), draw(EVIL | st.just(f"@{number}@")))
    raw = json.dumps(value, separators=(",", ":")).encode()
    for number in range(3):
        raw = raw.replace(b'"@%d@"' % number, draw(VERBATIM))
    return raw


def put(value: Any, path: Path, evil: object) -> None:  # noqa: ANN401 - JSON
    for key in path[:-1]:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return
    if isinstance(value, dict | list):
        try:
            value[path[-1]] = evil  # type: ignore[index]
        except (LookupError, TypeError):
            return


def honest(kind: str, name: str) -> bytes:
    value = orjson.loads(orjson.dumps(KINDS[kind][1]))
    value["metadata"] |= {"uid": f"uid-{name}", "name": name, "resourceVersion": "3"}
    return orjson.dumps(value)


def reader_of(kind: str) -> ObjectReader[Any]:
    return ObjectReader(KINDS[kind][0], LOG, time.monotonic)


def read_each(reader: ObjectReader[Any], objects: list[bytes]) -> dict[str, Any]:
    return dict(found for raw in objects if (found := reader.read(raw, {}).entry) is not None)


def shown(read: Mapping[str, Any]) -> object:
    """Devices are equal to themselves alone, but are shown alike."""
    return {key: repr(each) if isinstance(each, NamedSlice) else each for key, each in read.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_places_that_only_its_reader_names(kind: str) -> None:
    """Otherwise the hostile objects below would miss fields."""
    source, value = KINDS[kind]
    assert read_each(reader_of(kind), [honest(kind, "a")]).keys() == {source.key(name_of(read_head(honest(kind, "a"))))}
    assert set(PLACES[kind]) >= set(places(value))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_list_or_a_stream_yields_exactly_the_honest_ones(kind: str, data: st.DataObject) -> None:
    evil, around = data.draw(hostile(kind)), [honest(kind, "a"), honest(kind, "b")]
    expected = read_each(reader_of(kind), around)
    assert len(expected) == 2
    objects = [around[0], evil, around[1]]

    raw = b'{"kind":"L","metadata":{"resourceVersion":"9"},"items":[' + b",".join(objects) + b"]}"
    page = read_page(raw)
    listed = read_each(reader_of(kind), [bytes(item) for item in page.items or ()])
    assert page.metadata.version == "9"
    assert shown({key: listed[key] for key in expected}) == shown(expected)
    assert len(listed) <= 3

    events = list(parse_events([b'{"type":"ADDED","object":' + each + b"}" for each in objects]))
    streamed = read_each(reader_of(kind), [event.object for event in events])
    assert shown({key: streamed[key] for key in expected}) == shown(expected)
    assert len(streamed) <= 3


@dataclass
class Told:
    """What a consumer was told: the values by key of the source."""

    source: Source[Any]
    names: set[str]

    def __call__(self, batch: Batch[Any]) -> None:
        for change in batch.changes:
            name = getattr(change.value, "name", "") or getattr(change.value, "claim", "") or repr(change.value)
            (self.names.discard if type(change).__name__ == "Gone" else self.names.add)(name)


SERVED: Mapping[str, str] = {
    "pods": "pods", "nominations": "pods", "nodes": "nodes", "namespaces": "namespaces", "budgets": "pdbs",
    "slices": "slices", "claims": "claims", "templates": "claim_templates", "topologies": "topologies",
    "scheduling.x-k8s.io/v1alpha1": "coscheduling", "scheduling.k8s.io/v1alpha1": "workloads",
    "scheduling.k8s.io/v1beta1": "pod_groups", "jobset.x-k8s.io/v1alpha2": "job_sets",
}  # fmt: skip
"""The objects of each kind on the fake server, for kinds that it has."""


@pytest.mark.parametrize("kind", SERVED)
@pytest.mark.parametrize("where", ["managedFields", "spec"])
def test_a_server_with_a_deep_object_is_listed_and_followed(
    server: FakeApiServer, client: KubeClient, kind: str, where: str
) -> None:
    """The deep object is there before the first list; a second one comes by the stream. Honest ones come after both."""
    server.store.verbatim[b'"@deep@"'] = DEEP
    source, value = KINDS[kind]
    objects: Objects = getattr(server, SERVED[kind])

    def create(name: str, *, deep: bool) -> None:
        made = orjson.loads(orjson.dumps(value))
        made["metadata"]["name"] = name
        if deep and where == "managedFields":
            made["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": "@deep@"}]
        elif deep:
            made.setdefault("spec", {})["x"] = "@deep@"
        objects.create(made)

    create("deep-1", deep=True)
    create("honest-1", deep=False)
    watch = Watch(client, source, Told(source, set()), QUICK)
    watch.start()
    try:
        until(lambda: watch.status().synced)
        assert watch.status().objects == 2  # nothing is skipped: what is deep is not what is read
        create("deep-2", deep=True)
        create("honest-2", deep=False)
        until(lambda: watch.status().objects == 4)
        objects.delete("deep-1")
        until(lambda: watch.status().objects == 3)
        status = watch.status()
        assert (status.lists, status.streams, status.unread, status.broken) == (1, 1, {}, "")
    finally:
        assert watch.stop(PATIENCE_SECONDS)


def test_a_pod_that_cannot_be_read_is_shown_stays_and_goes(
    server: FakeApiServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A list as the key of a toleration ended the watch for good. The pod keeps its node, so that it is not absent."""
    records: dict[str, Any] = {}

    def take(batch: Batch[Any]) -> None:
        for change in batch.changes:
            if type(change).__name__ == "Gone":
                del records[change.value.name]
            else:
                records[change.value.name] = change.value

    with caplog.at_level(logging.WARNING, logger="extender.kube.watch"):
        watch = Watch(client, CHECKED_PODS, take, QUICK)
        watch.start()
        until(lambda: watch.status().synced)
        bad = pod("bad\x1b[31m", "n")
        bad["spec"]["tolerations"] = [{"key": ["a"]}]
        server.pods.create(bad)
        for i in range(20):
            server.pods.patch("bad\x1b[31m", {"metadata": {"annotations": {"n": str(i)}}})
        server.pods.create(pod("good", "n"))
        until(lambda: "good" in records)

        (unread,) = watch.status().unread.values()
        assert unread.name == "default/bad\\x1b[31m"
        assert "unhashable" in unread.reason
        assert records["bad\x1b[31m"].node_name == "n"
        lines = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
        assert len(lines) == 1
        assert "\x1b" not in lines[0]
        assert unread.name in lines[0]

        server.pods.patch("bad\x1b[31m", {"spec": {"tolerations": []}})
        until(lambda: not watch.status().unread)
        server.pods.patch("bad\x1b[31m", {"spec": {"tolerations": [{"key": {}}]}})
        until(lambda: watch.status().unread)
        assert b"app" in records["bad\x1b[31m"].reduced  # what was known stays known
        server.pods.delete("bad\x1b[31m")
        until(lambda: records.keys() == {"good"})
        assert not watch.status().unread
        assert watch.stop(PATIENCE_SECONDS)
        assert watch.status().broken == ""


def test_a_pod_named_like_the_uid_of_another_removes_only_itself(server: FakeApiServer, client: KubeClient) -> None:
    victim = server.pods.create(pod("victim", "n"))
    uid = victim["metadata"]["uid"]
    evil = pod(uid, "n")
    evil["spec"]["tolerations"] = [{"key": []}]
    server.pods.create(evil)
    watch = Watch(client, CHECKED_PODS, lambda _batch: None, QUICK)
    watch.start()
    until(lambda: watch.status().synced)
    assert watch.status().objects == 2
    server.pods.delete(uid)
    until(lambda: watch.status().objects < 2)  # not the number of events: a bookmark is one too

    assert list(watch._mirror.values) == [uid]
    assert watch.stop(PATIENCE_SECONDS)


def test_an_object_that_was_unread_before_a_list_is_forgotten_with_it(
    server: FakeApiServer, client: KubeClient
) -> None:
    evil = pod("evil", "n")
    evil["spec"]["tolerations"] = [{"key": []}]
    server.pods.create(evil)
    watch = Watch(client, CHECKED_PODS, lambda _batch: None, QUICK)
    watch.start()
    until(lambda: watch.status().unread and server.open_streams == 1)
    server.faults.fail(10_000, 503, verb="watch")
    server.break_streams()
    until(lambda: watch.status().failures > 1)
    server.pods.delete("evil")
    server.compact()
    server.faults.clear()
    until(lambda: watch.status().lists == 2)

    assert not watch.status().unread
    assert watch.stop(PATIENCE_SECONDS)


def test_an_object_that_changes_again_and_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    seconds = iter(range(0, 100_000, 100))

    def decode(value: Mapping[str, Any]) -> tuple[str, str]:
        return "uid", str(int(value["kind"]))

    reader = ObjectReader(Source(path="/pods", decode=decode), LOG, lambda: next(seconds))
    good, bad = (orjson.dumps({"kind": kind, "metadata": {"name": "a", "uid": "uid"}}) for kind in ("1", "x"))
    with caplog.at_level(logging.WARNING, logger=LOG.name):
        for _ in range(5):
            reader.read(bad, {})
        assert len(caplog.records) == 1
        reader.read(good, {})
        assert not reader.unread
        reader.read(bad, {})

    assert len(caplog.records) == 2


def test_what_is_cut_has_a_limit() -> None:
    wide = b'{"a":' * MAX_DEPTH + b",".join([b"[]"] * (MAX_CUTS + 1)) + b"}" * MAX_DEPTH

    with pytest.raises(WireError, match=str(MAX_CUTS + 1)):
        repaired(wide)


def test_brackets_in_texts_do_not_count() -> None:
    value = {"metadata": {"name": 'a"]}', "labels": {"\\": '{"managedFields":[', 'b\\"[': "]]"}}, "spec": {"x": "@"}}
    raw = orjson.dumps(value).replace(b'"@"', DEEP)
    found = read_object(raw)

    assert found["metadata"] == value["metadata"]
    assert found["spec"]["x"]["f:a"]
