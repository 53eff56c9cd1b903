"""What differs between kubelet versions, one rule at a time."""

from typing import Any

import pytest

from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.pod import PodRequest, QOSClass
from extender.kubelet.resolve import resolve
from extender.kubelet.rules import Rules
from extender.kubelet.verdict import Rejected
from extender.wire.pods import pod_from_json
from tests.replay.by_hand import M1, Json, Node, container, pod

DEVICE = "vendor.example/nic"


def request(document: Json, version: str, **gates: bool) -> PodRequest:
    return resolve(pod_from_json(document), Rules.of(version, gates, {}))


def with_devices(count: int, *, always: bool = False) -> Json:
    return container(1, more={DEVICE: str(count)}, always=always)


@pytest.mark.parametrize(("version", "devices", "cpus"), [("1.27", 2, 1), ("1.28", 3, 1), ("1.29", 3, 2)])
def test_totals_count_sidecars_since_1_29_and_those_of_devices_since_1_28(
    version: str, devices: int, cpus: int
) -> None:
    document = pod("a", with_devices(1), init=(with_devices(2, always=True),))

    found = request(document, version)

    assert (found.total_devices[DEVICE], found.total_cpus) == (devices, cpus)


@pytest.mark.parametrize("version", ["1.28", "1.30", "1.32"])
def test_the_managers_do_not_look_at_the_gate_of_sidecars(version: str) -> None:
    document = pod("a", with_devices(1), init=(with_devices(2, always=True),))

    assert request(document, version, SidecarContainers=False) == request(document, version, SidecarContainers=True)


@pytest.mark.parametrize(
    ("version", "gates", "expected"),
    [
        ("1.33", {}, QOSClass.GUARANTEED),  # the gate PodLevelResources is off by default
        ("1.36", {}, QOSClass.BEST_EFFORT),
        ("1.37", {}, QOSClass.GUARANTEED),
        ("1.37", {"PodLevelResourcesFixKubeletQOSClass": False}, QOSClass.BEST_EFFORT),
    ],
)
@pytest.mark.parametrize("resources", [{}, {"requests": {}}, {"limits": {}, "requests": {}}])
def test_empty_pod_level_resources_decide_the_qos_class_up_to_1_36(
    version: str, gates: dict[str, bool], expected: QOSClass, resources: Json
) -> None:
    document = pod("a", container(2))
    document["spec"]["resources"] = resources

    assert request(document, version, **gates).qos is expected


@pytest.mark.parametrize(("version", "is_refused"), [("1.36", True), ("1.37", False)])
def test_since_1_37_a_pod_that_runs_is_admitted_again_on_a_node_without_free_cores(
    version: str, *, is_refused: bool
) -> None:
    node = Node(M1, version, cpuManagerPolicyOptions={"full-pcpus-only": "true"})
    node.verdict(pod("a", container(10)))

    assert isinstance(node.verdict(pod("a", container(10))), Rejected) is is_refused


POD_LEVEL: dict[str, Any] = {
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "reservation": {"cpu": "2", "memory": "1Gi"},
    "featureGates": {"PodLevelResourceManagers": True},
}
MIB = 1 << 20


def blocks(node: Node, uid: str, name: str) -> dict[str, int]:
    return {b.type: b.size for b in node.state.memory.entries[uid][name]}


@pytest.mark.parametrize(("init", "shared_pages"), [(False, 2**64 - 64 * MIB), (True, None)])
def test_hugepages_that_the_pod_level_does_not_have_wrap_around_for_app_containers(
    *, init: bool, shared_pages: int | None
) -> None:
    machine = {**M1, "numa": [{**n, "hugepages": {"2Mi": 512}} for n in M1["numa"]]}
    node = Node(machine, **POD_LEVEL)
    exclusive = container(1, "1Gi", {"hugepages-2Mi": "64Mi"}, always=init)
    shared: Json = {"resources": {}}
    document = pod(
        "a", *((shared,) if init else (exclusive, shared)), init=(exclusive,) if init else (),
        resources={"cpu": "4", "memory": "4Gi"},
    )  # fmt: skip

    node.verdict(document)

    left = blocks(node, "a", "c0" if init else "c1")
    assert (left["memory"], left.get("hugepages-2Mi")) == (3 << 30, shared_pages)


@pytest.mark.parametrize(
    ("version", "starts"), [("1.28", False), ("1.32", False), ("1.33", True)]
)  # locked on since 1.33
def test_cpu_options_with_their_gate_off_stop_the_kubelet_up_to_1_32(version: str, *, starts: bool) -> None:
    options = {"full-pcpus-only": "true"}
    gates = {"CPUManagerPolicyOptions": False}
    if starts:
        Node(M1, version, cpuManagerPolicyOptions=options, featureGates=gates)
        return
    with pytest.raises(KubeletConfigError) as fault:
        Node(M1, version, cpuManagerPolicyOptions=options, featureGates=gates)
    assert fault.value.reason == (
        'CPU Manager policy options map[full-pcpus-only:true] require feature gates "CPUManager", '
        '"CPUManagerPolicyOptions" enabled'
    )


@pytest.mark.parametrize(("version", "starts"), [("1.28", False), ("1.31", False), ("1.32", True)])
def test_topology_options_with_their_gate_off_stop_the_kubelet_up_to_1_31(version: str, *, starts: bool) -> None:
    kubelet: dict[str, Any] = {
        "topologyManagerPolicy": "restricted",
        "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
        "featureGates": {"TopologyManagerPolicyOptions": False},
    }
    if starts:
        Node(M1, version, **kubelet)
        return
    with pytest.raises(KubeletConfigError) as fault:
        Node(M1, version, **kubelet)
    assert fault.value.reason == (
        "topology manager policy options map[prefer-closest-numa-nodes:true] require feature gates "
        '"TopologyManagerPolicyOptions" enabled'
    )
