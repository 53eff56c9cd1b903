"""The lists of known fields are those of the Kubernetes client that is installed."""

from kubernetes.client import V1Container, V1PodSpec, V1ResourceRequirements

from extender.wire import known_fields
from extender.wire.known_fields import POD_SPEC


def test_no_field_of_the_api_is_called_unknown() -> None:
    assert set(V1PodSpec.attribute_map.values()) <= POD_SPEC.keys()
    assert set(V1Container.attribute_map.values()) <= known_fields._CONTAINER.keys()
    assert set(V1ResourceRequirements.attribute_map.values()) <= known_fields._RESOURCES.keys()
    assert set(V1PodSpec.attribute_map.values()) | {"workloadRef"} == POD_SPEC.keys()
