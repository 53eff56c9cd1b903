"""Annotations of the NRI topology-aware policy: each fault has a sentence, and right ones have none."""

import pytest

from extender.nri.objects import MALFORMED
from extender.wire.nri_annotations import MAX_ANNOTATIONS, MAX_FAULTS, FaultKind, annotation_faults
from extender.wire.nri_pods import metadata_of
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
    ("text", "document"),
    [
        ("a: 1\n---\nb: [", {"a": 1}),
        ("---\n---\na: 1", None),
        ("\ufeffa: 1", {"a": 1}),
        (" ", None),
        ("b: [", MALFORMED),
        ("a: \udfff", MALFORMED),
    ],
)
def test_only_the_first_document_of_an_annotation_counts(text: str, document: object) -> None:
    """Seen red: a fault in the second one made the annotation malformed, and an empty first one was skipped."""
    assert metadata_of({}, {AFFINITY: text}).late.parsed.documents == {text: document}


def test_a_cold_start_is_not_read_where_memory_is_left_alone() -> None:
    """Seen red: a lint rule said that the policy refuses the container."""
    annotations = {f"cold-start{SUFFIX}/pod": "duration: often", f"memory.preserve{SUFFIX}/container.app": "true"}

    assert annotation_faults(annotations, ["app"]) == []
    assert [fault.kind for fault in annotation_faults(annotations, ["app", "side"])] == [FaultKind.REFUSED]


@pytest.mark.parametrize(
    ("hints", "switch", "kind", "words"),
    [
        ("a: {provider: 'podresourceapi:x', cpus: 1-x}", "pick-resources-by-hints", FaultKind.CRASH, "are not a list"),
        ("a: {provider: x, cpus: 1-x}", "pick-resources-by-hints", None, ""),
        ("a: {provider: x, numas: '63'}", "strict.topologyhints", FaultKind.CRASH, "no machine has"),
        ("a: {provider: x, numas: '62'}", "strict.topologyhints", None, ""),
        ("a: {provider: x, numas: '63'}", "prefer-shared-cpus", None, ""),
        (
            "{a: {provider: x, cpus: 0-3}, b: {provider: y, cpus: 4-7}}",
            "strict.topologyhints", FaultKind.REFUSED, "without a common CPU",
        ),
        ("{a: {provider: x, cpus: 0-4}, b: {provider: y, cpus: 4-7}}", "strict.topologyhints", None, ""),
    ],
)  # fmt: skip
def test_hints_that_no_machine_can_meet(hints: str, switch: str, kind: FaultKind | None, words: str) -> None:
    annotations = {f"test.topologyhints{SUFFIX}/pod": hints, f"{switch}{SUFFIX}/pod": "true"}

    found = [fault for fault in annotation_faults(annotations, ["app"]) if "is for tests" not in fault.text]

    assert [(fault.kind, words in fault.text) for fault in found] == ([] if kind is None else [(kind, True)])


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        (f"prefer-shared-cpu{SUFFIX}/pod", "true", "did you mean prefer-shared-cpus.resource-policy.nri.io?"),
        (f"whatever{SUFFIX}/pod", "true", "not one of the NRI topology-aware policy"),
        (f"prefer-shared-cpus{SUFFIX}/pods", "true", "neither in /pod nor in /container.NAME"),
        (f"prefer-shared-cpus{SUFFIX}/container.ap", "true", "a container that the pod does not have"),
        (f"prefer-shared-cpus{SUFFIX}/pod", "yes", "does not know: it has no effect"),
        (f"unlimited-burstable{SUFFIX}/pod", "socket", "does not know: it has no effect"),
        (f"prefer-isolated-cpus{SUFFIX}", "true", "ignored without /pod"),
        (f"cold-start{SUFFIX}/pod", "duration: often", "refuses to create the container"),
        (f"irq-affinity{SUFFIX}/pod", "mode: never", "refuses to create the container"),
        (AFFINITY, "app: [", "refuses to create the container"),
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

    assert [words in fault.text for fault in faults] == [True]
    assert faults[0].key == key


def test_questions_about_a_pod_show_its_faults() -> None:
    container = {"name": "app", "image": "x"}
    metadata = {"name": "p", "annotations": {f"prefer-shared-cpus{SUFFIX}/container.ap": "true"}}

    workload = workload_from_json({"kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}})

    assert len(workload.unknown) == 1
    assert "a container that the pod does not have" in workload.unknown[0]


def test_the_number_of_faults_is_bounded() -> None:
    faults = annotation_faults({f"k{i}{SUFFIX}": "" for i in range(MAX_ANNOTATIONS + 5)}, ["app"])

    assert len(faults) == MAX_FAULTS + 1
    assert faults[-1].text == f"{MAX_ANNOTATIONS - MAX_FAULTS} more faults and 5 more annotations are left out"


def test_annotations_that_are_too_long_are_not_read() -> None:
    """Otherwise 256 KiB of YAML would be parsed for a question."""
    (fault,) = annotation_faults({AFFINITY: "app: [" + "x, " * 30_000 + "]"}, ["app"])

    assert "not checked" in fault.text
