"""The group of a pod: every source, which one counts, and whatever else a document has."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.features.groups.templates import templates_of
from extender.wire.groups import (
    ANNOTATIONS,
    APIS,
    CONVENTIONS,
    GROUP,
    NAMES,
    SIZE,
    Group,
    ObjectKey,
    apis_of,
    group_of,
    sizes_of,
)
from tests.reports import pod_of

Json = dict[str, Any]
LWS, JOB_SET = "leaderworkerset.sigs.k8s.io/", "jobset.sigs.k8s.io/"


def pod(labels: Json | None = None, annotations: Json | None = None, **spec: object) -> Json:
    made = pod_of(2)
    made["metadata"] |= {"namespace": "ml", "labels": labels or {}, "annotations": annotations or {}}
    made["spec"] |= spec
    return made


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (pod(), None),
        (pod(annotations={GROUP: "g", SIZE: "8"}), Group(("annotation", "ml", "g"), 8)),
        (
            pod(schedulingGroup={"podGroupName": "g"}),
            Group(("pod_group", "ml", "g"), 0, ObjectKey("pod_group", "ml", "g")),
        ),
        (
            pod(workloadRef={"name": "w", "podGroup": "workers", "podGroupReplicaKey": "1"}),
            Group(("workload", "ml", "w/workers/1"), 0, ObjectKey("workload", "ml", "w/workers")),
        ),
        (
            pod({"scheduling.x-k8s.io/pod-group": "g"}, {SIZE: "3"}),
            Group(("coscheduling", "ml", "g"), 3, ObjectKey("coscheduling", "ml", "g")),
        ),
        (
            pod({f"{LWS}group-key": "k", f"{LWS}worker-index": "1"}, {f"{LWS}size": "4"}),
            Group(("leader_worker_set", "ml", "k"), 4, role="workertemplate"),
        ),
        (
            pod({f"{LWS}group-key": "k", f"{LWS}worker-index": "0"}, {f"{LWS}size": "4"}),
            Group(("leader_worker_set", "ml", "k"), 4, leads=True, role="leadertemplate"),
        ),
        (
            pod({f"{JOB_SET}jobset-name": "j", f"{JOB_SET}restart-attempt": "2"}),
            Group(("job_set", "ml", "j/2"), 0, ObjectKey("job_set", "ml", "j")),
        ),
        (
            pod({"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": "4"}),
            Group(("kueue", "ml", "g"), 4),
        ),
        (
            pod({"volcano.sh/job-name": "j"}, {"scheduling.k8s.io/group-name": "j-1"}),
            Group(
                ("volcano", "ml", "j-1"),
                0,
                ObjectKey("volcano", "ml", "j-1"),
                maker=ObjectKey("volcano_job", "ml", "j"),
            ),
        ),
        (
            pod(
                annotations={
                    "gang.scheduling.koordinator.sh/name": "g",
                    "gang.scheduling.koordinator.sh/min-available": "3",
                }
            ),
            Group(("koordinator", "ml", "g"), 3, ObjectKey("koordinator", "ml", "g")),
        ),
        (
            pod(
                {
                    "pod-group.scheduling.sigs.k8s.io/name": "g",
                    "pod-group.scheduling.sigs.k8s.io/min-available": "2",
                }
            ),
            Group(("koordinator", "ml", "g"), 2, ObjectKey("koordinator", "ml", "g")),
        ),
        (pod({"applicationId": "spark"}), None),
        (
            pod(
                {"applicationId": "spark"},
                {
                    "yunikorn.apache.org/task-group-name": "driver",
                    "yunikorn.apache.org/task-groups": '[{"name":"driver","minMember":1},{"name":"e","minMember":4}]',
                },
            ),
            Group(("yunikorn", "ml", "spark"), 5),
        ),
        (
            pod({"grove.io/podgang": "g-0", "grove.io/podclique": "g-0-decode"}),
            Group(("grove", "ml", "g-0"), 0, ObjectKey("grove", "ml", "g-0")),
        ),
        (pod(annotations={"pod-group-name": "g"}), Group(("kai", "ml", "g"), 0, ObjectKey("kai", "ml", "g"))),
        (
            pod({"training.kubeflow.org/job-name": "mpi", "training.kubeflow.org/replica-type": "launcher"}),
            Group(("training_job", "ml", "mpi"), 0, ObjectKey("training_job", "ml", "mpi"), role="launcher"),
        ),
        (
            pod({"ray.io/cluster": "r", "ray.io/group": "headgroup", "ray.io/node-type": "head"}),
            Group(("ray_cluster", "ml", "r"), 0, ObjectKey("ray_cluster", "ml", "r"), role="headgroupspec"),
        ),
        (
            pod({"scheduling.x-k8s.io/pod-group": "theirs", f"{LWS}group-key": "k"}, {GROUP: "ours"}),
            Group(("annotation", "ml", "ours")),
        ),
    ],
)
def test_the_first_source_that_a_pod_has_counts(manifest: Json, expected: Group | None) -> None:
    assert group_of(manifest) == expected


@pytest.mark.parametrize(
    "text", ["", "[", "{}", '[{"minMember":0}]', '[{"minMember":1},{"name":"x"}]', "[" * 20_000, '[{"minMember":true}]']
)
def test_task_groups_that_are_not_understood_state_no_size(text: str) -> None:
    annotations = {"yunikorn.apache.org/task-group-name": "t", "yunikorn.apache.org/task-groups": text}
    group = group_of(pod({"applicationId": "a"}, annotations))
    assert group is not None
    assert group.size == 0


@pytest.mark.parametrize("size", ["", "eight", "-1", "0", "1.5", "9" * 30, "٣", None, [], True])
def test_a_size_that_is_not_understood_is_none(size: object) -> None:
    group = group_of(pod(annotations={GROUP: "g", SIZE: size}))
    assert group is not None
    assert group.size == 0


def test_pods_that_exclude_each_other_from_a_node_are_found() -> None:
    def rule(key: str) -> Json:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]}}

    def one_a_node(**spec: Any) -> bool:
        group = group_of(pod(annotations={GROUP: "g"}, **spec))
        assert group is not None
        return group.one_a_node

    assert not one_a_node()
    assert one_a_node(affinity=rule("kubernetes.io/hostname"))
    assert not one_a_node(affinity=rule("topology.kubernetes.io/zone"))
    assert one_a_node(containers=[{"name": "a", "ports": [{"containerPort": 1, "hostPort": 1}]}])


def test_sizes_of_objects() -> None:
    metadata = {"name": "o", "namespace": "ml"}
    gang = {"gang": {"minCount": 4}}

    def sizes(kind: str, spec: object) -> dict[ObjectKey, int]:
        return sizes_of(kind, {"metadata": metadata, "spec": spec})

    assert sizes("coscheduling", {"minMember": 3}) == {ObjectKey("coscheduling", "ml", "o"): 3}
    for kind in ("volcano", "koordinator", "kai"):
        assert sizes(kind, {"minMember": 3}) == {ObjectKey(kind, "ml", "o"): 3}
    assert sizes("grove", {"podgroups": [{"minReplicas": 2}, {"minReplicas": 3}]}) == {ObjectKey("grove", "ml", "o"): 5}
    assert sizes("pod_group", {"schedulingPolicy": gang}) == {ObjectKey("pod_group", "ml", "o"): 4}
    assert sizes("pod_group", {"schedulingPolicy": {"basic": {}}}) == {}
    workload = {"podGroups": [{"name": "workers", "policy": gang}, {"name": "driver", "policy": {"basic": {}}}]}
    assert sizes("workload", workload) == {ObjectKey("workload", "ml", "o/workers"): 4}


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 4}}}]}, 8),
        ({"replicatedJobs": [{"template": {"spec": {}}}, {"replicas": 3, "template": {"spec": {}}}]}, 4),
        ({"replicatedJobs": [{"template": {"spec": {"parallelism": 4, "completions": 2}}}]}, 2),
        ({"replicatedJobs": [{"replicas": 0}]}, 0),
        ({"replicatedJobs": [{}, {"dependsOn": [{"name": "driver", "status": "Ready"}]}]}, 0),
        ({"replicatedJobs": [{}, {}], "startupPolicy": {"startupPolicyOrder": "InOrder"}}, 0),
        ({"replicatedJobs": [{}, {}], "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}, 2),
        ({}, 0),
    ],
)
def test_the_size_of_a_job_set_is_what_its_jobs_run_at_once(spec: Json, size: int) -> None:
    document = {"metadata": {"name": "j", "namespace": "ml"}, "spec": spec}
    assert sizes_of("job_set", document) == ({ObjectKey("job_set", "ml", "j"): size} if size else {})


@pytest.mark.parametrize("name", [GROUP, *(key for each in CONVENTIONS for key in (*each.labels, *each.annotations))])
def test_a_document_without_a_name_of_a_source_has_no_group(name: str) -> None:
    """The watch of pods looks for these names before it reads a document."""
    needed = next((each.only_with for each in CONVENTIONS if name in (*each.labels, *each.annotations)), "")
    document = pod({name: "g"}, {name: "g", needed: "g"})
    assert group_of(document) is not None
    assert {name, needed} & {*ANNOTATIONS} or not group_of(pod({}, {name: "g"})), "records of pods keep its annotations"
    assert any(each in orjson.dumps(document) for each in NAMES)
    assert not any(each in orjson.dumps(pod()) for each in NAMES)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["schedulingGroup", "workloadRef", "affinity", "containers", "podGroups", "schedulingPolicy", "replicatedJobs"]
)


@given(JSON, JSON, st.dictionaries(KEYS, JSON))
def test_whatever_a_document_has_is_no_error(labels: object, annotations: object, spec: Json) -> None:
    document = {"metadata": {"labels": labels, "annotations": annotations, "name": "n"}, "spec": spec}
    group_of(document)
    group_of({"metadata": {"annotations": {GROUP: "g"}}, "spec": spec})
    for kind, _ in APIS.values():
        sizes_of(kind, document)
        templates_of(kind, document)


def test_the_apis_of_a_setting() -> None:
    assert list(apis_of(" scheduling.k8s.io/v1beta1 , ")) == ["scheduling.k8s.io/v1beta1"]
    with pytest.raises(ValueError, match=r"unknown API 'v1'; use scheduling\.x-k8s\.io/v1alpha1, "):
        list(apis_of("v1"))


TEMPLATE = {"spec": {"containers": pod_of(4)["spec"]["containers"]}}
OWNERS: list[tuple[str, Json, list[tuple[str, int]]]] = [
    (
        "training_job",
        {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 3, "template": TEMPLATE}}},
        [("launcher", 1), ("worker", 3)],
    ),
    (
        "training_job",
        {"pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}},
        [("master", 1), ("worker", 2)],
    ),
    (
        "ray_cluster",
        {
            "headGroupSpec": {"template": TEMPLATE},
            "workerGroupSpecs": [{"groupName": "GPUs", "replicas": 2, "numOfHosts": 2, "template": TEMPLATE}],
        },
        [("headgroupspec", 1), ("gpus", 4)],
    ),
    (
        "job_set",
        {
            "replicatedJobs": [
                {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
                {"name": "workers", "replicas": 3, "template": {"spec": {"template": TEMPLATE}}},
            ]
        },
        [("driver", 1), ("workers", 3)],
    ),
]


@pytest.mark.parametrize(("kind", "spec", "roles"), OWNERS)
def test_objects_say_how_many_pods_of_each_role_they_make(kind: str, spec: Json, roles: list[tuple[str, int]]) -> None:
    document = {"metadata": {"name": "o", "namespace": "ml"}, "spec": spec}
    found = templates_of(kind, document)

    assert [(each.role, each.pods) for each in found] == roles
    assert all(each.pod.containers[0].requests_milli["cpu"] == 4000 for each in found)
    assert sizes_of(kind, document) == {ObjectKey(kind, "ml", "o"): sum(count for _, count in roles)}


def test_a_launcher_that_waits_for_its_workers_gives_no_size_and_a_faulty_template_gives_none() -> None:
    _, spec, _ = OWNERS[0]
    metadata = {"name": "o", "namespace": "ml"}
    assert not sizes_of(
        "training_job", {"metadata": metadata, "spec": {**spec, "launcherCreationPolicy": "WaitForWorkersReady"}}
    )
    faulty = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "x"}}}]}}
    assert not templates_of("training_job", {"spec": {"mpiReplicaSpecs": {"Launcher": {"template": faulty}}}})
