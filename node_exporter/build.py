"""Builds a NodeReport from a NodeSnapshot. Pure: joins facts of several sources and reports contradictions."""

from collections.abc import Mapping

from node_exporter.devices import Remembered, join_devices
from node_exporter.files import mapping
from node_exporter.observation import NodeSnapshot
from node_exporter.pods import join_pods, state_holdings
from node_exporter.report import NodeReport, PodResourcesService, Problem, ReportedNriPolicy, ReportedPod
from node_exporter.zones import build_zones

NOTHING_REMEMBERED: Remembered = {}
MAX_PROBLEMS = 500
"""Limit for one report. A node on which everything is wrong has a problem for each CPU."""


def build_report(
    observation: NodeSnapshot,
    *,
    node_name: str,
    rules: Mapping[str, bool] | None = None,
    remembered: Remembered = NOTHING_REMEMBERED,
    podresources_service: PodResourcesService | None = None,
    nri: ReportedNriPolicy | None = None,
) -> NodeReport:
    """Put one snapshot into the published form. The sender fills in `sequence` and `observed_at`.

    `rules`, `podresources_service` and `nri`: see `NodeReport`.
    `remembered`: devices that earlier snapshots listed as healthy since the kubelet started, with their NUMA ids.
    """
    podresources = observation.podresources
    checkpoint = {} if observation.never_had_devices else observation.state.kubelet_internal_checkpoint
    devices, device_problems = join_devices(podresources, checkpoint, remembered)
    pods, pod_problems = join_pods(
        podresources, observation.state, observation.pod_logs, observation.fixed.kubelet_version
    )
    zones, zone_problems = build_zones(
        observation.fixed.machine,
        observation.fixed.kubelet,
        observation.state,
        devices,
        in_use=_devices_in_use(observation, pods or ()),
        allocatable_cpus=podresources.allocatable_cpus if podresources else None,
    )
    problems = (*observation.problems, *_machine_disagreements(observation), *device_problems, *pod_problems)
    return NodeReport(
        node_name=node_name,
        boot_id=observation.fixed.boot_id,
        sequence=0,
        observed_at=0.0,
        kubelet_version=observation.fixed.kubelet_version,
        machine=observation.fixed.machine,
        kubelet=observation.fixed.kubelet,
        devices=devices,
        state=observation.state,
        pods=pods,
        zones=zones,
        problems=_bounded(sorted({*problems, *zone_problems})),
        rules=dict(sorted((rules or {}).items())),
        podresources=podresources_service,
        nri=nri,
    )


def _bounded(problems: list[Problem]) -> tuple[Problem, ...]:
    """At most `MAX_PROBLEMS` problems, the last of which says how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    reason = f"{len(problems) - MAX_PROBLEMS} more problems are not listed"
    return (*problems[:MAX_PROBLEMS], Problem(source="report", path="problems", reason=reason))


def _devices_in_use(observation: NodeSnapshot, pods: tuple[ReportedPod, ...]) -> frozenset[tuple[str, str]]:
    """Devices of listed pods, and of pods in the checkpoint that may still exist."""
    gone = {pod.uid for pod in pods if pod.counted is False}
    listed = {
        (resource, id_)
        for pod in pods
        for container in pod.containers
        for resource, ids in container.devices.items()
        for id_ in ids
    }
    in_checkpoint = {
        held
        for uid, holdings in state_holdings(observation.state).items()
        if uid not in gone
        for held in holdings
        if isinstance(held, tuple)
    }
    return frozenset(listed | in_checkpoint)


def _machine_disagreements(observation: NodeSnapshot) -> list[Problem]:
    """Policies and memory sizes that differ between the state files and the other sources.

    The kubelet reads the machine and its configuration once, when it starts. A difference means that something has
    changed since then, or that the configuration read is not the one in use.
    """
    problems: list[Problem] = []
    kubelet, state = observation.fixed.kubelet, observation.state
    for document, name, setting in (
        (state.cpu_manager_state, "cpu_manager_state", kubelet and kubelet.cpuManagerPolicy),
        (state.memory_manager_state, "memory_manager_state", kubelet and kubelet.memoryManagerPolicy),
    ):
        policy = document.get("policyName") if document else None
        if document is not None and setting is not None and policy != setting:
            reason = f"policyName is {policy!r}, but the configuration has {setting!r}"
            problems.append(Problem(source="kubelet state", path=name, reason=reason))
    machine_state = (state.memory_manager_state or {}).get("machineState")
    if isinstance(machine_state, Mapping) and machine_state:
        in_state = {str(node): _total_memory(record) for node, record in machine_state.items()}
        in_sysfs = {str(node.id): node.memory for node in observation.fixed.machine.numa}
        if in_state != in_sysfs:
            reason = f"memory by NUMA node is {in_state}, but sysfs has {in_sysfs}"
            problems.append(Problem(source="kubelet state", path="memory_manager_state", reason=reason))
    return problems


def _total_memory(record: object) -> object:
    return mapping(mapping(mapping(record).get("memoryMap")).get("memory")).get("total")
