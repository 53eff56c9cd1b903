"""The lists of known fields are those of the Kubernetes client that is installed."""

from kubernetes.client import V1Container, V1PodSpec, V1ResourceRequirements

from extender.wire import workloads


def test_no_field_of_the_api_is_called_unknown() -> None:
    assert set(V1PodSpec.attribute_map.values()) <= workloads._SPEC
    assert set(V1Container.attribute_map.values()) <= workloads._CONTAINER
    assert set(V1ResourceRequirements.attribute_map.values()) <= workloads._RESOURCES
    assert set(V1PodSpec.attribute_map.values()) | {"workloadRef"} == workloads._SPEC
