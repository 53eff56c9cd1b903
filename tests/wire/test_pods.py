"""v1.Pod documents: what is read, what is defaulted, and where a fault is."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kubelet.pod import ContainerKind, QOSClass
from extender.kubelet.resolve import has_pod_level_resources, qos_class, resolve
from extender.kubelet.rules import Rules
from extender.wire.errors import WireError
from extender.wire.parsing import parse_milli, parse_whole
from extender.wire.pods import pod_from_json

NEWEST = Rules.of("1.36", {}, {})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def _pod(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    spec = spec or {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("1", 1000),
        (2, 2000),
        ("2.0", 2000),
        ("1500m", 1500),
        ("0.1", 100),
        ("100u", 1),
        ("1n", 1),
        ("0", 0),
        ("1Ki", 1024_000),
        ("1.5Gi", 3 * 2**29 * 1000),
        ("1k", 1_000_000),
        ("1E", 10**21),
        ("1e3", 1_000_000),
        ("+5", 5000),
        (".5", 500),
        ("5.", 5000),
        ("9223372036854775808", 2**63 * 1000),
        ("1e99", 2**63 * 1000),
    ],
)
def test_quantities(text: object, milli: int) -> None:
    assert parse_milli(text, "f") == milli


@pytest.mark.parametrize(
    "text", ["", "x", "1K", "1Gb", "-1", "NaN", "inf", "1 Gi", "0x10", "1e9999", True, None, [], "9" * 99, "\uff11"]
)
def test_quantities_that_are_none(text: object) -> None:
    with pytest.raises(WireError, match="not a quantity") as caught:
        parse_milli(text, "limits.cpu")

    assert caught.value.field == "limits.cpu"


def test_whole_quantities_round_up() -> None:
    assert parse_whole("1500m", "f") == 2


def test_requests_default_to_limits() -> None:
    container = pod_from_json(_pod()).containers[0]

    assert container.requests_milli == container.limits_milli == {"cpu": 2000, "memory": 2**30 * 1000}
    assert qos_class(pod_from_json(_pod()), NEWEST) is QOSClass.GUARANTEED


def test_kinds_and_order_of_containers() -> None:
    spec = {
        "containers": [{"name": "app"}],
        "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
    }

    containers = pod_from_json(_pod(spec)).containers

    assert [(c.name, c.kind) for c in containers] == [
        ("setup", ContainerKind.INIT),
        ("proxy", ContainerKind.SIDECAR),
        ("app", ContainerKind.APP),
    ]


def test_status_beats_computation_since_1_29() -> None:
    pod = pod_from_json(_pod(qosClass="Burstable"))

    assert qos_class(pod, NEWEST) is QOSClass.BURSTABLE
    assert qos_class(pod, Rules.of("1.28", {}, {})) is QOSClass.GUARANTEED


def test_pod_level_requests_default_to_what_containers_request() -> None:
    spec = {
        "resources": {"limits": {"cpu": "8", "memory": "4Gi"}},
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "3"}}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "5"}}}],
    }
    pod = pod_from_json(_pod(spec))

    assert has_pod_level_resources(pod)
    assert pod.pod_requests_milli == {"cpu": 5000, "memory": 4 * 2**30 * 1000}


def test_devices_that_dra_satisfies_are_not_asked_of_plugins() -> None:
    limits = {"cpu": "1", "memory": "1Gi", "a.example/gpu": "1"}
    mapping = {"containerName": "c", "resourceName": "a.example/gpu", "requestName": "r"}
    document = _pod(
        {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        extendedResourceClaimStatus={"requestMappings": [mapping]},
    )

    assert resolve(pod_from_json(document), NEWEST).containers[0].dra_resources == {"a.example/gpu"}
    assert resolve(pod_from_json(document), Rules.of("1.34", {}, {})).containers[0].dra_resources == frozenset()


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (None, "Pod"),
        ([], "Pod"),
        ({}, "Pod.metadata"),
        ({"metadata": {}}, "Pod.spec"),
        ({"metadata": {}, "spec": {}}, "Pod.spec.containers"),
        ({"metadata": {}, "spec": {"containers": {}}}, "Pod.spec.containers"),
        ({"metadata": {}, "spec": {"containers": [{}]}}, "Pod.spec.containers[0].name"),
        ({"metadata": {"uid": 5}, "spec": {"containers": [{"name": "c"}]}}, "Pod.metadata.uid"),
        (
            {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "x"}}}]}},
            "Pod.spec.containers[0].resources.limits.cpu",
        ),
        ({"metadata": {}, "spec": {"containers": [{"name": "c"}, {"name": "c"}]}}, "Pod.spec.containers"),
        (
            {"metadata": {}, "spec": {"containers": [{"name": "c"}]}, "status": {"qosClass": "Gold"}},
            "Pod.status.qosClass",
        ),
    ],
)
def test_faults_name_their_place(document: object, field: str) -> None:
    with pytest.raises(WireError) as caught:
        pod_from_json(document)

    assert caught.value.field == field


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({"metadata": JSON, "spec": JSON, "status": JSON}) | JSON)
def test_any_document_is_read_or_refused(document: object) -> None:
    with contextlib.suppress(WireError):
        assert pod_from_json(document).containers
