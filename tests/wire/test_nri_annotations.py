"""Annotations of the NRI topology-aware policy: each fault has a sentence, and right ones have none."""

import pytest

from extender.wire.nri_annotations import MAX_FAULTS, annotation_faults
from extender.wire.workloads import workload_from_json

SUFFIX = ".resource-policy.nri.io"
AFFINITY = "resource-policy.nri.io/affinity"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (f"prefer-shared-cpus{SUFFIX}/pod", "true"),
        (f"prefer-isolated-cpus{SUFFIX}/container.app", "F"),
        (f"memory-type{SUFFIX}", "dram,HBM"),
        (f"unlimited-burstable{SUFFIX}/pod", "numa"),
        (f"cold-start{SUFFIX}/pod", "duration: 60s"),
        (AFFINITY, "app: [side]"),
        ("example.org/other", "anything"),
    ],
)
def test_right_annotations_have_no_fault(key: str, text: str) -> None:
    assert annotation_faults({key: text}, ["app", "side"]) == []


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        (f"prefer-shared-cpu{SUFFIX}/pod", "true", "not one of the NRI topology-aware policy"),
        (f"prefer-shared-cpus{SUFFIX}/pods", "true", "neither in /pod nor in /container.NAME"),
        (f"prefer-shared-cpus{SUFFIX}/container.ap", "true", "a container that the pod does not have"),
        (f"prefer-shared-cpus{SUFFIX}/pod", "yes", "does not know: it has no effect"),
        (f"unlimited-burstable{SUFFIX}/pod", "socket", "does not know: it has no effect"),
        (f"prefer-isolated-cpus{SUFFIX}", "true", "ignored without /pod"),
        (f"cold-start{SUFFIX}/pod", "duration: often", "refuses to create container app"),
        (f"irq-affinity{SUFFIX}/pod", "mode: never", "refuses to create container app"),
        (AFFINITY, "app: [", "refuses to create container app"),
        (
            AFFINITY,
            "app: [{match: {key: name, operator: Exists}}, null]",
            "ends the process of the NRI topology-aware policy",
        ),
        (f"test.topologyhints{SUFFIX}/pod", "{}", "is for tests"),
    ],
)
def test_each_fault_has_a_sentence(key: str, text: str, words: str) -> None:
    faults = annotation_faults({key: text}, ["app"])

    assert len(faults) == 1
    assert words in faults[0]


def test_questions_about_a_pod_show_its_faults() -> None:
    container = {"name": "app", "image": "x"}
    metadata = {"name": "p", "annotations": {f"prefer-shared-cpus{SUFFIX}/container.ap": "true"}}

    workload = workload_from_json({"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})

    assert len(workload.unknown) == 1
    assert "a container that the pod does not have" in workload.unknown[0]


def test_the_number_of_faults_is_bounded() -> None:
    faults = annotation_faults({f"k{i}{SUFFIX}": "" for i in range(50)}, ["app"])

    assert len(faults) == MAX_FAULTS + 1
    assert faults[-1] == "30 more faults of annotations are left out"
