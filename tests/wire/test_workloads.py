"""Manifests of people: every kind with a pod template, and where a fault in one is."""

from typing import Any

import pytest

from extender.wire.errors import WireError
from extender.wire.workloads import workload_from_json
from tests.reports import pod_of

SPEC = pod_of(4, "2Gi")["spec"]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "Pod": ({"spec": SPEC}, "spec"),
    "PodTemplate": ({"template": {"spec": SPEC}}, "template.spec"),
    "Deployment": ({"spec": {"replicas": 3, "template": {"spec": SPEC}}}, "spec.template.spec"),
    "ReplicaSet": ({"spec": {"replicas": 3, "template": {"spec": SPEC}}}, "spec.template.spec"),
    "ReplicationController": ({"spec": {"replicas": 3, "template": {"spec": SPEC}}}, "spec.template.spec"),
    "StatefulSet": ({"spec": {"replicas": 3, "template": {"spec": SPEC}}}, "spec.template.spec"),
    "DaemonSet": ({"spec": {"template": {"spec": SPEC}}}, "spec.template.spec"),
    "Job": ({"spec": {"parallelism": 3, "template": {"spec": SPEC}}}, "spec.template.spec"),
    "CronJob": (
        {"spec": {"jobTemplate": {"spec": {"parallelism": 3, "template": {"spec": SPEC}}}}},
        "spec.jobTemplate.spec.template.spec",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_with_a_template_is_a_workload(kind: str) -> None:
    workload = workload_from_json({"kind": kind, "metadata": {"name": "w", "namespace": "ns"}, **KINDS[kind][0]})

    assert (workload.kind, workload.namespace, workload.name) == (kind, "ns", "w")
    assert workload.replicas == (3 if kind not in ("Pod", "PodTemplate", "DaemonSet") else 1)
    assert workload.pod.containers[0].requests_milli["cpu"] == 4000
    assert workload.copy(5).uid == "what-if-5"


@pytest.mark.parametrize("prefix", ["", "pod", "pods[3].pod"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_names_its_path_in_the_document_as_sent(kind: str, prefix: str) -> None:
    bad = {"containers": [{"name": "c", "resources": {"limits": {"cpu": "four"}}}]}
    document = _with_spec(KINDS[kind][0], bad)

    with pytest.raises(WireError) as fault:
        workload_from_json({"kind": kind, **document}, prefix)

    path = f"{prefix}.{KINDS[kind][1]}" if prefix else KINDS[kind][1]
    assert fault.value.field == f"{path}.containers[0].resources.limits.cpu"


def _with_spec(document: Any, spec: object) -> Any:  # noqa: ANN401 - JSON
    if document is SPEC:
        return spec
    return {key: _with_spec(value, spec) for key, value in document.items()} if isinstance(document, dict) else document


FAULTS: dict[str, tuple[object, str]] = {
    "no object": ([], ""),
    "unknown kind": ({"kind": "Service"}, "kind"),
    "kind of the wrong type": ({"kind": ["Pod"]}, "kind"),
    "list": ({"kind": "List", "items": []}, "kind"),
    "machine without memory": (
        {"kind": "VirtualMachineInstance", "spec": {"domain": {"cpu": {"cores": 2}}}},
        "spec.domain.memory.guest",
    ),
    "count by shape": ({"kind": "Rollout", "spec": {"replicas": -1, "template": {"spec": SPEC}}}, "spec.replicas"),
    "no spec": ({"kind": "Deployment"}, "spec"),
    "no template": ({"kind": "Deployment", "spec": {}}, "spec.template"),
    "no pod spec": ({"kind": "Deployment", "spec": {"template": {}}}, "spec.template.spec"),
    "replicas": ({"kind": "Deployment", "spec": {"replicas": -1, "template": {"spec": SPEC}}}, "spec.replicas"),
    "metadata": ({"metadata": [], "spec": SPEC}, "metadata"),
    "name": ({"metadata": {"name": 7}, "spec": SPEC}, "metadata.name"),
    "selector": ({"spec": {**SPEC, "nodeSelector": {"a": 1}}}, "spec.nodeSelector.a"),
    "affinity": ({"spec": {**SPEC, "affinity": []}}, "spec.affinity"),
    "operator": (
        {
            "spec": {
                **SPEC,
                "affinity": {
                    "nodeAffinity": {
                        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}
                    }
                },
            }
        },
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
    ),
    "toleration": ({"spec": {**SPEC, "tolerations": [{"effect": "Now"}]}}, "spec.tolerations[0].effect"),
    "overhead": ({"spec": {**SPEC, "overhead": {"cpu": "x"}}}, "spec.overhead.cpu"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_workload_is_told_with_its_path(fault: str) -> None:
    document, path = FAULTS[fault]

    with pytest.raises(WireError) as error:
        workload_from_json(document)

    assert error.value.field == path


def test_a_copy_takes_nothing_over_from_the_pod_that_was_pasted() -> None:
    pod = pod_of(4)
    pod["status"]["containerStatuses"] = [{"name": "app", "allocatedResources": {"cpu": "1"}}]

    workload = workload_from_json(pod)

    assert workload.pod.containers[0].allocated_milli == {"cpu": 1000}
    assert workload.copy(0).containers[0].allocated_milli is None


@pytest.mark.parametrize("instancetype", [{"name": "cx1.large"}, {"inferFromVolume": "root"}])
def test_a_machine_with_an_instancetype_says_that_its_amounts_are_not_known(instancetype: dict[str, str]) -> None:
    """It was answered as a pod of 100m CPU, without a word, or refused because its memory was missing."""
    template: dict[str, Any] = {"spec": {"domain": {"devices": {}}}}
    machine = {"kind": "VirtualMachine", "metadata": {"name": "vm"}, "spec": {"template": template}}
    with pytest.raises(WireError, match=r"memory\.guest: missing"):
        workload_from_json(machine)

    workload = workload_from_json({**machine, "spec": {"instancetype": instancetype, "template": template}})

    first, _ = workload.unknown
    assert "which is not read: the answer counts only what the document itself states" in first
    assert next(iter(instancetype.values())) in first


def test_a_machine_without_an_instancetype_says_nothing_of_one() -> None:
    domain = {"memory": {"guest": "1Gi"}, "cpu": {"cores": 2}}
    machine = {
        "kind": "VirtualMachine",
        "spec": {"template": {"spec": {"domain": domain}}, "preference": {"name": "x"}},
    }
    assert len(workload_from_json(machine).unknown) == 1
