"""ResourceSlices and ResourceClaims: which devices a node has, where they are, and who has them."""

from collections.abc import Mapping
from typing import Any

import pytest

from extender.dra.extended import container_of
from extender.dra.objects import Attribute
from extender.dra.rules import rules_for
from extender.features.claims.feed import AllocatedClaim, NamedSlice, decode_claim, decode_slice, numa_of
from extender.features.claims.objector import claimed_by
from extender.features.claims.objects import ClaimObjects
from extender.kubelet.sets import iter_bits
from extender.questions.node_context import DynamicDevice
from extender.replay.pod import ClaimedDevice
from extender.wire.dra import device_from_json
from extender.wire.pods import pod_from_json

Json = dict[str, Any]
STANDARD = "resource.kubernetes.io/numaNode"
GOOD: Json = {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}


def attributes_of(attributes: Json) -> Mapping[str, Attribute]:
    return device_from_json({"name": "device", "attributes": attributes}, "").attributes


@pytest.mark.parametrize(
    ("attributes", "numa"),
    [
        ({STANDARD: {"int": 1}}, [1]),
        ({STANDARD: {"ints": [2, 3]}}, [2, 3]),
        ({STANDARD: {"ints": [1, 1, 0]}}, [0, 1]),
        ({STANDARD: {"ints": [0, -1]}}, []),
        ({"numaNode": {"int": 1}}, [1]),
        ({"gpu.example.com/numaNode": {"int": 3}}, [3]),
        ({"numaNodeID": {"int": 0}}, [0]),
        ({"dra.net/numaNode": {"int": 1}}, [1]),
        ({"dra.net/numaNode": {"int": 1}, STANDARD: {"int": 0}}, [0]),
        ({"other.example.com/numaNode": {"int": 1}}, []),
        ({STANDARD: {"int": -1}}, []),
        ({STANDARD: {"int": 1 << 40}}, []),
        ({STANDARD: {"string": "1"}}, []),
        ({STANDARD: {"ints": []}}, []),
        ({}, []),
    ],
)
def test_the_numa_nodes_to_which_a_device_is_local(attributes: Json, numa: list[int]) -> None:
    assert list(iter_bits(numa_of("gpu.example.com", attributes_of(attributes)))) == numa


@pytest.mark.parametrize("driver", ["dra.cpu", "dra.memory"])
def test_cpus_and_memory_are_on_the_first_numa_node_of_a_list(driver: str) -> None:
    assert list(iter_bits(numa_of(driver, attributes_of({STANDARD: {"ints": [2, 3]}})))) == [2]


@pytest.mark.parametrize(
    ("request_name", "annotation", "owners", "expected"),
    [
        ("container-1-request-0", "true", [{"kind": "Pod", "uid": "u"}], ("u", 1)),
        ("container-1-request-0", "false", [{"kind": "Pod", "uid": "u"}], ("", 1)),
        ("container-1-request-0", "true", [{"kind": "Job", "uid": "u"}], ("", 1)),
        ("container-1-request-0", "true", 3, ("", 1)),
        ("container-x", "true", [{"kind": "Pod", "uid": "u"}], ("u", -1)),
        (3, "true", [{"kind": "Pod", "uid": "u"}], ("u", -1)),
    ],
)
def test_a_claim_for_extended_resources_names_its_pod_and_containers(
    request_name: object, annotation: str, owners: object, expected: object
) -> None:
    results = [{"request": request_name, "driver": "d", "pool": "p", "device": "a"}]
    annotations = {"resource.kubernetes.io/extended-resource-claim": annotation}
    metadata = {"name": "c", "namespace": "n", "annotations": annotations, "ownerReferences": owners}
    found = decode_claim({"metadata": metadata, "status": {"allocation": {"devices": {"results": results}}}})

    assert found is not None
    (device,) = found[1].exact.allocated or ()
    assert (found[1].extended_of, container_of(device.request)) == expected
    assert found[1].devices == (("d", "p", "a"),)


@pytest.mark.parametrize("value", [{}, {"metadata": {}}, {"metadata": {"name": 3}}, {"metadata": None}])
def test_an_object_without_a_name_is_skipped(value: Json) -> None:
    assert decode_slice(value) is None
    assert decode_claim(value) is None


@pytest.mark.parametrize(
    "spec",
    [
        None,
        3,
        {"devices": 3},
        {"devices": [3, {}]},
        {"pool": [], "driver": 1, "nodeName": 2},
        *({**GOOD, "devices": [{"name": "a", "attributes": {STANDARD: of}}]} for of in ({"int": True}, {"ints": 3}, 1)),
    ],
)
def test_a_slice_that_cannot_be_read_has_no_devices(spec: object) -> None:
    found = decode_slice({"metadata": {"name": "s"}, "spec": spec})

    assert found is not None
    assert (found[1].devices, found[1].exact) == ({}, None)


@pytest.mark.parametrize("status", [None, {}, {"allocation": None}, {"allocation": {"devices": {"results": 3}}}])
def test_a_claim_without_an_allocation_has_no_devices(status: object) -> None:
    found = decode_claim({"metadata": {"name": "c", "namespace": "n"}, "status": status})

    assert found is not None
    assert (found[1].name, found[1].devices) == ("n/c", ())


def no_devices() -> ClaimObjects:
    return ClaimObjects(rules_for("1.36"), lambda: 0.0)


def published(name: str, generation: int, *devices: str, node: str = "node-a") -> NamedSlice:
    pool = {"name": "p", "generation": generation, "resourceSliceCount": 1}
    listed = [{"name": each, "attributes": {STANDARD: {"int": 0}}} for each in devices]
    spec = {"driver": "d", "pool": pool, "devices": listed, **({"nodeName": node} if node else {"allNodes": True})}
    found = decode_slice({"metadata": {"name": name}, "spec": spec})
    assert found is not None
    return found[1]


def claim(*devices: str) -> AllocatedClaim:
    results = [{"driver": "d", "pool": "p", "device": each} for each in devices]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    found = decode_claim({"metadata": {"name": "c", "namespace": "n"}, "status": status})
    assert found is not None
    return found[1]


def names_of(devices: ClaimObjects, node: str = "node-a") -> list[tuple[str, str]]:
    return [(device.name, device.claim) for device in devices.devices_on(node)]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    devices = no_devices()
    devices.set_slice("one", published("one", 1, "a", "b"))
    devices.set_slice("two", published("two", 2, "a"))
    assert names_of(devices) == [("a", "")]

    devices.set_slice("two", None)
    assert names_of(devices) == [("a", ""), ("b", "")]
    devices.set_slice("one", None)
    assert names_of(devices) == []


def test_a_claim_holds_devices_until_it_is_gone() -> None:
    devices = no_devices()
    devices.set_slice("one", published("one", 1, "a", "b"))
    before = devices.devices_on("node-a")
    assert devices.devices_on("node-a") is before, "the same object while nothing changes"

    devices.set_claim("n/c", claim("a"))
    assert names_of(devices) == [("a", "n/c"), ("b", "")]
    devices.set_claim("n/c", claim("b"))
    assert names_of(devices) == [("a", ""), ("b", "n/c")]
    devices.set_claim("n/c", claim())
    assert names_of(devices) == [("a", ""), ("b", "")]
    devices.complete = True
    assert devices.devices_of("n/c", "node-a") is None


def test_a_device_in_two_generations_keeps_its_claim_when_the_older_slice_goes() -> None:
    devices = no_devices()
    devices.set_slice("one", published("one", 1, "a"))
    devices.set_slice("two", published("two", 2, "a"))
    devices.set_slice("one", None)
    assert names_of(devices) == [("a", "")]

    devices.set_claim("n/c", claim("a"))
    assert names_of(devices) == [("a", "n/c")]


def test_the_devices_of_a_claim_are_those_of_the_node_and_those_that_nobody_lists() -> None:
    devices = no_devices()
    devices.set_slice("one", published("one", 1, "a"))
    devices.set_slice("two", published("two", 1, "far", node="node-b"))
    devices.set_slice("net", published("net", 1, "fabric", node=""))
    devices.set_claim("n/c", claim("a", "far", "fabric", "gone"))
    assert devices.devices_of("n/c", "node-a") is None, "not all is listed yet"

    devices.complete = True
    assert devices.devices_of("n/c", "node-a") == (
        DynamicDevice("d", "p", "a", 1, "n/c"),
        DynamicDevice("d", "p", "gone", claim="n/c"),
    )
    assert devices.devices_of("n/other", "node-a") is None


def test_devices_that_name_their_own_nodes_count_as_not_listed() -> None:
    spec = {**GOOD, "perDeviceNodeSelection": True, "devices": [{"name": "a", "nodeName": "node-a"}]}
    found = decode_slice({"metadata": {"name": "s"}, "spec": spec})

    assert found is not None
    assert found[1].exact is not None
    assert found[1].devices == {}


def test_the_order_in_which_slices_and_claims_arrive_does_not_matter() -> None:
    devices = no_devices()
    devices.set_claim("n/c", claim("a"))
    assert names_of(devices) == []
    devices.set_slice("one", published("one", 1, "a"))
    assert names_of(devices) == [("a", "n/c")]


def test_a_device_that_moves_to_another_node_takes_its_claim_along() -> None:
    devices = no_devices()
    devices.set_slice("one", published("one", 1, "a"))
    devices.set_claim("n/c", claim("a"))
    devices.set_slice("one", published("one", 2, "a", node="node-b"))

    assert names_of(devices) == []
    assert names_of(devices, "node-b") == [("a", "n/c")]
    devices.set_claim("n/c", claim())
    assert names_of(devices, "node-b") == [("a", "")]


def test_a_claim_that_a_pod_names_again_and_again_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen red: 30 containers with 1,000 names for one claim took 0.65 s of the event loop for each node."""
    devices, looked_up = no_devices(), list[str]()
    devices.complete = True
    devices.set_slice("s", published("s", 1, "d0", "d1"))
    devices.set_claim("n/c", claim("d1"))
    names = [{"name": f"c{i}"} for i in range(1000)]
    containers = [{"name": f"app-{i}", "image": "i", "resources": {"claims": names}} for i in range(3)]
    claims = [{**each, "resourceClaimName": "c"} for each in names]
    spec = {"containers": containers, "resourceClaims": claims}
    pod = pod_from_json({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec})
    original = ClaimObjects.devices_of

    def counted(self: ClaimObjects, claim: str, node_name: str) -> tuple[DynamicDevice, ...] | None:
        looked_up.append(claim)
        return original(self, claim, node_name)

    monkeypatch.setattr(ClaimObjects, "devices_of", counted)
    assert claimed_by(pod, devices, "node-a") == {f"app-{i}": (ClaimedDevice(1),) for i in range(3)}

    assert len(looked_up) <= 2, "the claim, and the one of extended resources"
