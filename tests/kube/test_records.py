"""What is kept of pods, nodes and budgets; and what hostile objects do: nothing."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.features.preemption.running import decode_budget
from extender.kube.nodes import NodeObject, decode_node
from extender.kube.pods import PodDecoder, PodRecord
from extender.questions.node_context import Taint, WatchedPod
from extender.questions.node_pods import _read
from extender.scheduling.victims import DisruptionBudget
from extender.wire.pods import pod_from_json
from tests.kube.watching import pod

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def decoded(value: dict[str, object]) -> PodRecord:
    found = PodDecoder()(value)
    assert found is not None
    return found[1]


def full_pod() -> dict[str, Any]:
    value = pod("web-0", "node-a", priority=7, initContainers=[{"name": "init", "restartPolicy": "Always"}])
    value["metadata"] |= {
        "uid": "u-1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionTimestamp": "2026-01-02T03:05:05Z",
        "managedFields": [{"manager": "kubelet"}] * 20,
    }
    value["status"] |= {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
        "startTime": "2026-01-02T03:04:06Z",
        "containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "2"}, "imageID": "x" * 500}],
    }
    return value


def test_a_pod_keeps_what_others_read() -> None:
    record = decoded(full_pod())

    assert (record.uid, record.name, record.namespace, record.node_name) == ("u-1", "web-0", "default", "node-a")
    assert (record.phase, record.reason, record.priority) == ("Failed", "TopologyAffinityError", 7)
    assert record.message.startswith("Pod was rejected: ")
    assert (record.created_at, record.started_at, record.deleted_at) == (1767323045, 1767323046, 1767323105)
    assert (record.finished, record.terminating, record.mirror) == (True, True, False)
    assert record.labels == {"app": "demo"}


def test_the_reduced_pod_replays_as_the_whole_one() -> None:
    whole = full_pod()
    record = decoded(whole)

    assert pod_from_json(record.manifest()) == pod_from_json(whole)
    assert len(record.reduced) < 600 < len(orjson.dumps(whole))


def test_a_pod_without_labels_is_read_by_questions() -> None:
    """Seen red: advice answered with 500 where a watched pod had no labels."""
    value = full_pod()
    del value["metadata"]["labels"]
    record = decoded(value)
    watched = WatchedPod(
        uid="u-1", namespace="default", name="web-0", priority=0, created_at=None, started_at=None, terminating=False,
        mirror=False, manifest=record.reduced, api_uid="u-1",
    )  # fmt: skip

    found = _read(watched)

    assert found is not None
    assert found.labels == {}


def test_a_mirror_pod_is_known_to_the_kubelet_under_another_uid() -> None:
    value = full_pod()
    value["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    record = decoded(value)

    assert (record.uid, record.kubelet_uid, record.mirror) == ("u-1", "hash", True)


def test_equal_pods_share_their_spec() -> None:
    decode = PodDecoder()
    records = []
    for i in range(3):
        value = full_pod()
        value["metadata"] |= {"uid": f"u-{i}", "name": f"web-{i}"}
        found = decode(value)
        assert found is not None
        records.append(found[1])

    assert records[0].reduced is records[1].reduced is records[2].reduced
    assert [r.manifest()["metadata"]["name"] for r in records] == ["web-0", "web-1", "web-2"]


@pytest.mark.parametrize("path", [("metadata", "uid"), ("metadata", "name"), ("spec", "nodeName")])
def test_a_pod_without_identity_or_node_is_left_out(path: tuple[str, str]) -> None:
    value = full_pod()
    del value[path[0]][path[1]]

    assert PodDecoder()(value) is None


def test_a_node() -> None:
    value = {
        "metadata": {"name": "node-a", "uid": "n-1", "labels": {"zone": "1"}},
        "spec": {"unschedulable": True, "taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "62", "memory": "128Gi"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
            "nodeInfo": {"kubeletVersion": "v1.34.1", "bootID": "b"},
        },
    }

    assert decode_node(value) == (
        "node-a",
        NodeObject(
            name="node-a",
            uid="n-1",
            labels={"zone": "1"},
            allocatable={"cpu": "62", "memory": "128Gi"},
            taints=(Taint(key="dedicated", value="x", effect="NoSchedule"),),
            unschedulable=True,
            kubelet_version="v1.34.1",
        ),
    )


def budget(selector: object) -> DisruptionBudget:
    value = {
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {"web-3": "2026-01-01T00:00:00Z"}},
    }
    found = decode_budget(value)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("selector", "labels", "covered"),
    [
        (None, {"app": "web"}, False),
        ({}, {}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "web", "x": "y"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "db"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, {"app": "b"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, {}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {"app": "a"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": ""}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"app": ""}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Like", "values": ["1"]}]}, {"app": "2"}, False),
    ],
)
def test_what_a_budget_covers(selector: object, labels: dict[str, str], *, covered: bool) -> None:
    assert budget(selector).covers("default", labels) is covered
    assert not budget(selector).covers("elsewhere", labels)


def test_a_budget_counts() -> None:
    assert (budget({}).disruptions_allowed, budget({}).already_disrupted) == (1, frozenset({"web-3"}))


TERMS = st.fixed_dictionaries({"key": JSON_VALUES, "operator": JSON_VALUES, "values": JSON_VALUES})
SELECTORS = st.fixed_dictionaries({"matchLabels": JSON_VALUES, "matchExpressions": JSON_VALUES | st.lists(TERMS)})
PARTS = JSON_VALUES | st.builds(
    lambda known, foreign: foreign | known,
    st.just({"name": "n", "uid": "u", "nodeName": "x"}),
    st.dictionaries(
        st.sampled_from(["namespace", "labels", "taints", "containers", "containerStatuses", "selector", "conditions"]),
        JSON_VALUES | st.lists(st.dictionaries(st.sampled_from(["name", "key", "resources"]), JSON_VALUES)) | SELECTORS,
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries({"metadata": PARTS, "spec": PARTS, "status": PARTS}))
def test_hostile_objects_are_read_or_left_out(value: dict[str, object]) -> None:
    for decode in (PodDecoder(), decode_node, decode_budget):
        found = decode(value)
        if isinstance(found, tuple) and isinstance(found[1], PodRecord):
            found[1].manifest()
