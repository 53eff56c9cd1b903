"""Facts of several sources joined: devices, pods, zones, and the problems where they disagree."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from node_exporter.build import build_report
from node_exporter.observation import DeviceNuma, Fixed, ListedPod, NodeSnapshot, PodResources
from node_exporter.report import (
    Amount,
    KubeletState,
    NodeReport,
    NumaNode,
    ReportedContainer,
    ReportedDevice,
    ReportedKubeletConfig,
    ReportedMachine,
    Zone,
)
from tests.node_exporter.nodes import MACHINE, MEMORY, cpu_state, device_state, memory_state

GPU, NIC = "example.com/gpu", "example.com/nic"


def report(
    *,
    state: KubeletState | None = None,
    pods: Sequence[ListedPod] | None = (),
    devices: Mapping[str, DeviceNuma] | None = None,
    logs: Mapping[tuple[str, str], frozenset[str]] | None = None,
    version: str = "v1.36.0",
    cpu_manager: str = "static",
    remembered: Mapping[str, DeviceNuma] | None = None,
) -> NodeReport:
    """The report of the small machine; `pods` None: podresources does not answer."""
    podresources = None
    if pods is not None:
        podresources = PodResources(
            pods=tuple(pods), devices=devices or {}, allocatable_cpus=frozenset({1, 2, 3, 5, 6, 7})
        )
    fixed = Fixed(
        boot_id="b",
        kubelet_dir=Path("/var/lib/kubelet"),
        machine=ReportedMachine(
            cpus=tuple(tuple(cpu) for cpu in MACHINE["cpus"]),
            numa=tuple(NumaNode(**node) for node in MACHINE["numa"]),
            num_sockets=2,
        ),
        kubelet_version=version,
        kubelet=ReportedKubeletConfig(
            cpuManagerPolicy=cpu_manager, memoryManagerPolicy="Static", reservedSystemCPUs="0,4"
        ),
    )
    observation = NodeSnapshot(
        fixed=fixed,
        state=state or KubeletState(cpu_manager_state=cpu_state(), memory_manager_state=memory_state()),
        podresources=podresources,
        pod_logs=logs,
    )
    return build_report(observation, node_name="n", remembered=remembered or {})


def listed(name: str, cpus: Sequence[int] = (), devices: Mapping[str, Sequence[str]] | None = None) -> ListedPod:
    return ListedPod(
        namespace="d", name=name, containers=(ReportedContainer(name="c0", cpus=cpus, devices=devices or {}),)
    )


def devices_only(**documents: Any) -> KubeletState:
    return KubeletState(
        cpu_manager_state=cpu_state(),
        memory_manager_state=memory_state(),
        kubelet_internal_checkpoint=device_state(**documents),
    )


def zone(node_report: NodeReport, name: str) -> Zone:
    return next(zone for zone in node_report.zones if zone.name == name)


def test_nothing_unusual_is_no_problem() -> None:
    assert report().problems == ()


def test_devices_are_joined_from_podresources_and_checkpoint() -> None:
    state = devices_only(registered={GPU: ["g0", "g1", "gone"]}, entries=[("p", GPU, {"1": ["sick"]})])

    found = report(state=state, devices={GPU: {"g0": frozenset({1, 0}), "g1": None}})

    assert found.devices == {
        GPU: (
            ReportedDevice(id="g0", numa=(0, 1), healthy=True),
            ReportedDevice(id="g1", numa=None, healthy=True),
            ReportedDevice(id="gone", numa=None, healthy=False),
            ReportedDevice(id="sick", numa=(1,), healthy=False),
        )
    }
    reasons = [problem.reason for problem in found.problems if problem.path == GPU]
    assert reasons == ["devices in the checkpoint and not in podresources: gone; counted as not healthy"]


def test_without_podresources_the_checkpoint_tells_what_it_can() -> None:
    state = devices_only(registered={GPU: ["g0", "g1"]}, entries=[("p", GPU, {"0": ["g0"], "1": ["g0"]})])

    found = report(state=state, pods=None)

    assert found.pods is None
    assert found.devices == {
        GPU: (ReportedDevice(id="g0", numa=(0, 1), healthy=True), ReportedDevice(id="g1", numa=None, healthy=True))
    }
    assert "the NUMA nodes of g1 are unknown" in " ".join(problem.reason for problem in found.problems)


def test_without_either_source_devices_are_unknown_not_absent() -> None:
    assert report(pods=None).devices is None
    assert report(pods=()).devices == {}


def test_sick_device_keeps_the_numa_node_it_was_seen_with() -> None:
    found = report(devices={GPU: {"g0": frozenset({0})}}, remembered={GPU: {"g1": frozenset({1})}})

    assert found.devices == {
        GPU: (ReportedDevice(id="g0", numa=(0,), healthy=True), ReportedDevice(id="g1", numa=(1,), healthy=False))
    }


def test_device_lists_of_the_old_format_and_without_topology_are_read() -> None:
    old: Any = ["g0"]
    state = devices_only(registered={GPU: ["g0"], NIC: ["n0"]}, entries=[("p", GPU, old), ("p", NIC, {"-1": ["n0"]})])

    found = report(state=state, pods=None)

    assert found.devices == {
        GPU: (ReportedDevice(id="g0", numa=None, healthy=True),),
        NIC: (ReportedDevice(id="n0", numa=None, healthy=True),),
    }


def test_garbled_device_checkpoint_is_a_problem() -> None:
    for data in (
        "x",
        {"PodDeviceEntries": [1]},
        {"PodDeviceEntries": [{"ResourceName": "r", "DeviceIDs": {"x": ["y"]}}]},
    ):
        found = report(state=KubeletState(kubelet_internal_checkpoint={"Data": data}))

        assert "not a device manager checkpoint" in " ".join(problem.reason for problem in found.problems)


def test_uid_comes_from_what_a_pod_holds_or_from_its_log_directory() -> None:
    state = KubeletState(cpu_manager_state=cpu_state({"u1": {"c0": "1,5"}}, "0,2-4,6-7"))
    logs = {("d", "a"): frozenset({"old"}), ("d", "b"): frozenset({"u2"}), ("d", "c"): frozenset({"u3", "u4"})}

    pods = report(state=state, pods=[listed("a", [1, 5]), listed("b"), listed("c")], logs=logs).pods or ()

    assert {pod.name: pod.uid for pod in pods} == {"a": "u1", "b": "u2", "c": None}


def test_listed_pods_are_counted_for_sure_only_where_the_version_lists_active_ones() -> None:
    for version, counted in (("v1.28.15", None), ("1.33", None), ("v1.34.0", True), ("v1.36.2+k3s1", True), ("", None)):
        pods = report(pods=[listed("a")], version=version).pods or ()

        assert [pod.counted for pod in pods] == [counted], version


def test_pod_that_is_no_longer_listed_is_not_counted_if_its_name_is_known() -> None:
    state = KubeletState(
        cpu_manager_state=cpu_state({"gone": {"c0": "1"}, "same-name": {"c0": "2"}, "unknown": {"c0": "3"}}, "0,4-7")
    )
    logs = {("d", "finished"): frozenset({"gone"}), ("d", "a"): frozenset({"same-name"})}

    pods = report(state=state, pods=[listed("a")], logs=logs).pods or ()

    assert {pod.uid: pod.counted for pod in pods if pod.uid} == {"gone": False, "same-name": None, "unknown": None}


def test_zones_count_cpus_memory_and_hugepages() -> None:
    state = KubeletState(
        cpu_manager_state=cpu_state({"p": {"init": "1,5", "c0": "1"}}, "0,2-4,6-7"),
        memory_manager_state=memory_state({"p": (0, 1 << 30)}),
    )

    found = report(state=state)

    allocatable = MEMORY - (32 << 20) - (1 << 30)
    assert zone(found, "node-0") == Zone(
        name="node-0",
        type="Node",
        numa=(0,),
        costs={"node-0": 10, "node-1": 21},
        resources={
            "cpu": Amount(capacity=4, allocatable=2, free=0),
            "hugepages-2Mi": Amount(capacity=32 << 20, allocatable=32 << 20, free=32 << 20),
            "memory": Amount(capacity=MEMORY, allocatable=allocatable, free=allocatable - (1 << 30)),
        },
    )
    assert zone(found, "node-1").resources["cpu"] == Amount(capacity=4, allocatable=4, free=4)
    assert list(zone(found, "node-0").resources) == sorted(zone(found, "node-0").resources)


def test_device_of_two_numa_nodes_counts_once() -> None:
    both, none = frozenset({0, 1}), None
    devices: dict[str, DeviceNuma] = {GPU: {"g0": frozenset({0}), "g1": both, "g2": both, "g3": none}}

    found = report(devices=devices, pods=[listed("a", devices={GPU: ["g1"]})])

    assert zone(found, "node-0").resources[GPU] == Amount(capacity=1, allocatable=1, free=1)
    assert zone(found, "node-0-1").resources == {GPU: Amount(capacity=2, allocatable=2, free=1)}
    assert zone(found, "node-0-1").type == "NodeGroup"
    assert GPU not in zone(found, "node-1").resources


def test_managers_that_are_off_have_no_allocatable_cpu_and_no_memory() -> None:
    state = KubeletState(cpu_manager_state={"policyName": "none"}, memory_manager_state={"policyName": "None"})

    found = report(state=state, cpu_manager="none")

    assert zone(found, "node-0").resources == {"cpu": Amount(capacity=4, allocatable=0, free=0)}


def test_configuration_and_state_that_disagree_are_named_with_both_values() -> None:
    state = KubeletState(
        cpu_manager_state={"policyName": "none"},
        memory_manager_state={"policyName": "Static", "machineState": {"0": {"memoryMap": {"memory": {"total": 1}}}}},
    )

    reasons = " | ".join(problem.reason for problem in report(state=state).problems)

    assert "policyName is 'none', but the configuration has 'static'" in reasons
    assert f"memory by NUMA node is {{'0': 1}}, but sysfs has {{'0': {MEMORY}, '1': {MEMORY}}}" in reasons
