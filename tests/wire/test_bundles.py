"""Several objects at once: files of several documents, lists, and kinds that are known by their shape only."""

from typing import Any

import pytest

from extender.wire.documents import MAX_DOCUMENTS, MAX_VALUES, read_documents
from extender.wire.errors import WireError
from extender.wire.templates import MAX_TEMPLATES, find_templates
from extender.wire.workloads import MAX_NESTED, MAX_OBJECTS, bundle_of, workload_from_json
from tests.reports import pod_of

SPEC = pod_of(4, "2Gi")["spec"]
TEMPLATE = {"spec": SPEC}
BY_SHAPE: dict[str, tuple[dict[str, Any], list[tuple[str, int]]]] = {
    "Rollout": ({"replicas": 3, "template": TEMPLATE}, [("w", 3)]),
    "JobSet": (
        {
            "replicatedJobs": [
                {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
                {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 4, "template": TEMPLATE}}},
            ]
        },
        [("w-driver", 1), ("w-workers", 8)],
    ),
    "LeaderWorkerSet": (
        {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}},
        [("w-leadertemplate", 2), ("w-workertemplate", 6)],
    ),
    "PyTorchJob": (
        {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}, "Worker": {"replicas": 7, "template": TEMPLATE}}},
        [("w-master", 1), ("w-worker", 7)],
    ),
    "MPIJob": (
        {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": TEMPLATE}, "Worker": {"template": TEMPLATE}}},
        [("w-launcher", 1), ("w-worker", 1)],
    ),
    "RayCluster": (
        {
            "headGroupSpec": {"template": TEMPLATE},
            "workerGroupSpecs": [{"groupName": "gpu", "replicas": 3, "numOfHosts": 2, "template": TEMPLATE}],
        },
        [("w-headgroupspec", 1), ("w-gpu", 6)],
    ),
    "OurOwnThing": ({"shards": {"replicas": 5, "podTemplate": TEMPLATE}}, [("w-podtemplate", 5)]),
}


@pytest.mark.parametrize("kind", BY_SHAPE)
def test_kinds_are_read_by_their_shape_with_the_pods_that_they_ask_for(kind: str) -> None:
    spec, expected = BY_SHAPE[kind]

    parts = bundle_of([{"kind": kind, "metadata": {"name": "w"}, "spec": spec}]).parts

    workloads = [workload_from_json(part.document, part.path) for part in parts]
    assert [(each.name, each.replicas) for each in workloads] == expected
    assert {each.kind for each in workloads} == {kind}
    assert all(each.pod.containers[0].requests_milli["cpu"] == 4000 for each in workloads)


def test_a_fault_below_several_templates_keeps_its_path() -> None:
    bad = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "four"}}}]}}
    job = {"kind": "JobSet", "spec": {"replicatedJobs": [{"template": TEMPLATE}, {"template": bad}]}}
    documents = [{"kind": "List", "items": [{"kind": "Service", "spec": {}}, job]}]

    first, second = bundle_of(documents).parts

    workload_from_json(first.document, first.path)
    with pytest.raises(WireError) as fault:
        workload_from_json(second.document, second.path)
    where = "items[1].spec.replicatedJobs[1].template.spec.containers[0].resources.limits.cpu"
    assert fault.value.field == where


def test_an_object_with_several_templates_is_no_single_workload() -> None:
    with pytest.raises(WireError, match="2 pod templates") as fault:
        workload_from_json({"kind": "MPIJob", "spec": BY_SHAPE["MPIJob"][0]}, "pod")

    assert fault.value.field == "pod"


def test_documents_lists_and_what_has_no_pods() -> None:
    text = """
# Source: chart/templates/service.yaml
kind: Service
spec: {}
---
---
kind: PodList
items:
  - {kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}
  - {kind: List, items: [{kind: Pod, metadata: {name: b}, spec: {containers: [{name: c}]}}]}
---
kind: ConfigMap
"""
    bundle = bundle_of(read_documents(text.encode(), ""))

    assert [(part.document["metadata"], part.path) for part in bundle.parts] == [
        ({"name": "a"}, "documents[1].items[0]"),
        ({"name": "b"}, "documents[1].items[1].items[0]"),
    ]
    assert bundle.passed_over == {"Service": 1, "ConfigMap": 1}


def _nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"kind": "Pod", "spec": SPEC}
    for _ in range(depth):
        inner = {"kind": "List", "items": [inner]}
    return inner


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ([], "nothing with a pod template"),
        ([{"kind": "Service"}], "nothing with a pod template: Service"),
        ([7], "is not an object"),
        ([_nested(MAX_NESTED + 1)], "lists within lists"),
        ([{"kind": "List", "items": [{"kind": "Service"}] * MAX_OBJECTS}], "objects"),
        ([{"kind": "X", "spec": {str(i): TEMPLATE for i in range(MAX_TEMPLATES + 1)}}], "pod templates"),
        ([{"kind": "X", "spec": {"replicas": 2**31 - 1, "a": {"replicas": 9, "template": TEMPLATE}}}], "more than"),
    ],
)
def test_what_is_too_much_or_nothing_is_an_error(documents: list[object], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        bundle_of(documents)


def test_the_bounds_of_yaml_hold_for_all_documents_together() -> None:
    one = "[" + "1," * (MAX_VALUES // 2) + "]\n"

    with pytest.raises(WireError, match="values"):
        read_documents(f"{one}---\n{one}---\n{one}".encode(), "application/yaml")
    with pytest.raises(WireError, match="documents"):
        read_documents(b"---\n" * (MAX_DOCUMENTS + 2), "application/yaml")


def test_the_search_for_templates_is_no_recursion() -> None:
    deep: dict[str, Any] = {"template": TEMPLATE}
    for _ in range(5000):
        deep = {"spec": deep}

    (found,) = find_templates(deep)

    assert len(found.keys) == 5001


def test_a_machine_with_dedicated_cpus_is_a_guaranteed_pod_and_says_that_it_is_estimated() -> None:
    domain = {
        "cpu": {"cores": 2, "sockets": 2, "threads": 2, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True},
        "memory": {"guest": "8Gi", "hugepages": {"pageSize": "1Gi"}},
        "devices": {"gpus": [{"name": "g", "deviceName": "vendor.example/gpu"}]},
    }
    machine = {"kind": "VirtualMachine", "metadata": {"name": "vm"}, "spec": {"template": {"spec": {"domain": domain}}}}

    workload = workload_from_json(machine)

    (container,) = workload.pod.containers
    assert container.requests_milli["cpu"] == 9000
    assert container.requests_milli["hugepages-1Gi"] == (8 << 30) * 1000
    assert container.requests_milli["vendor.example/gpu"] == 1000
    assert container.requests_milli == container.limits_milli
    assert "estimated" in workload.unknown[0]
    domain["cpu"] = {"cores": 4}
    shared = workload_from_json(machine).pod.containers[0]
    assert shared.requests_milli["cpu"] == 400
    assert "cpu" not in shared.limits_milli
