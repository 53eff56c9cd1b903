"""Builds a NodeReport from a NodeSnapshot. Pure: joins facts of several sources, and reports contradictions.

Rules of the zones
- They are amounts per NUMA node, for people and for NodeResourceTopology. The replay does not read them.
- Everything counts once: a memory block by the amounts that the kubelet reserved on each node (machine state), and not
  by its size; a device of several NUMA nodes in the zone of that group. A device without topology is in no zone.
- CPUs of init containers are in use (the state file has them, podresources does not). Shared CPUs are free.
- Managers that are off are shown as consumers of NodeResourceTopology expect: without CPUs that can be allocated under
  CPU policy none, and without any memory under memory policy None.
- Zones are sorted by NUMA id, resources by name, so that nothing changes unless an amount does.
"""

from collections.abc import Mapping

from node_exporter import report
from node_exporter.checkpoints import cpu_texts
from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.files import mapping
from node_exporter.observation import NodeSnapshot
from node_exporter.pods import Devices, Remembered, join_devices, join_pods, state_holdings

NOTHING_REMEMBERED: Remembered = {}
MAX_PROBLEMS = 500
"""Limit for one report. A node on which everything is wrong has a problem for each CPU."""


def build_report(
    observation: NodeSnapshot,
    *,
    node_name: str,
    rules: Mapping[str, bool] | None = None,
    remembered: Remembered = NOTHING_REMEMBERED,
    podresources_service: report.PodResourcesService | None = None,
    nri: report.ReportedNriPolicy | None = None,
) -> report.NodeReport:
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
    return report.NodeReport(
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
        pcie_roots=observation.fixed.pcie_roots,
    )


def _bounded(problems: list[report.Problem]) -> tuple[report.Problem, ...]:
    """At most `MAX_PROBLEMS` problems, the last of which says how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return tuple(problems)
    reason = f"{len(problems) - MAX_PROBLEMS} more problems are not listed"
    return (*problems[:MAX_PROBLEMS], report.Problem(source="report", path="problems", reason=reason))


def _devices_in_use(observation: NodeSnapshot, pods: tuple[report.ReportedPod, ...]) -> frozenset[tuple[str, str]]:
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


def _machine_disagreements(observation: NodeSnapshot) -> list[report.Problem]:
    """Policies and memory sizes that differ between the state files and the other sources.

    The kubelet reads the machine and its configuration once, when it starts. A difference means that something has
    changed since then, or that the configuration read is not the one in use.
    """
    problems: list[report.Problem] = []
    kubelet, state = observation.fixed.kubelet, observation.state
    for document, name, setting in (
        (state.cpu_manager_state, "cpu_manager_state", kubelet and kubelet.cpuManagerPolicy),
        (state.memory_manager_state, "memory_manager_state", kubelet and kubelet.memoryManagerPolicy),
    ):
        policy = document.get("policyName") if document else None
        if document is not None and setting is not None and policy != setting:
            reason = f"policyName is {policy!r}, but the configuration has {setting!r}"
            problems.append(report.Problem(source="kubelet state", path=name, reason=reason))
    machine_state = (state.memory_manager_state or {}).get("machineState")
    if isinstance(machine_state, Mapping) and machine_state:
        in_state = {str(node): _total_memory(record) for node, record in machine_state.items()}
        in_sysfs = {str(node.id): node.memory for node in observation.fixed.machine.numa}
        if in_state != in_sysfs:
            reason = f"memory by NUMA node is {in_state}, but sysfs has {in_sysfs}"
            problems.append(report.Problem(source="kubelet state", path="memory_manager_state", reason=reason))
    return problems


def _total_memory(record: object) -> object:
    return mapping(mapping(mapping(record).get("memoryMap")).get("memory")).get("total")


SOURCE = "zones"
Numa = tuple[int, ...]


def build_zones(
    machine: report.ReportedMachine,
    kubelet: report.ReportedKubeletConfig | None,
    state: report.KubeletState,
    devices: Devices | None,
    *,
    in_use: frozenset[tuple[str, str]],
    allocatable_cpus: frozenset[int] | None,
) -> tuple[tuple[report.Zone, ...], tuple[report.Problem, ...]]:
    """One zone for each NUMA node, then one for each group of nodes that has devices.

    `in_use`: (resource, id) of every device that a pod holds. `allocatable_cpus`: what podresources lists. If it is
    None, the reserved CPUs must be listed in the configuration, or the zones have no `cpu`.
    """
    amounts: dict[Numa, dict[str, report.Amount]] = {(node.id,): {} for node in machine.numa}
    problems: list[report.Problem] = []
    _add_cpus(amounts, machine, kubelet, state.cpu_manager_state, allocatable_cpus, problems)
    _add_memory(amounts, state.memory_manager_state, problems)
    _add_devices(amounts, devices or {}, in_use)
    costs = _costs(machine)
    zones = tuple(
        report.Zone(
            name="node-" + "-".join(str(node) for node in numa),
            type="Node" if len(numa) == 1 else "NodeGroup",
            numa=numa,
            costs=costs.get(numa, {}),
            resources=dict(sorted(resources.items())),
        )
        for numa, resources in sorted(amounts.items(), key=lambda item: (len(item[0]), item[0]))
    )
    return zones, tuple(problems)


def _add_cpus(
    amounts: dict[Numa, dict[str, report.Amount]],
    machine: report.ReportedMachine,
    kubelet: report.ReportedKubeletConfig | None,
    state: report.JsonObject | None,
    allocatable_cpus: frozenset[int] | None,
    problems: list[report.Problem],
) -> None:
    """CPUs: all logical ones; those that are not reserved; those that are neither reserved nor held by a container."""
    numa_of = {cpu: numa for cpu, _, _, numa, _ in machine.cpus}
    if kubelet is None or kubelet.cpuManagerPolicy != "static":
        allocatable, held = frozenset[int](), frozenset[int]()
    else:
        try:
            held = frozenset[int]().union(*(parse_cpu_list(text) for text in cpu_texts(state or {})))
            reserved = parse_cpu_list(kubelet.reservedSystemCPUs)
        except ValueError as error:
            problems.append(report.Problem(source=SOURCE, path="cpu", reason=f"left out: not a CPU list: {error}"))
            return
        if not reserved and not allocatable_cpus:
            problems.append(report.Problem(source=SOURCE, path="cpu", reason="left out: the reserved CPUs are unknown"))
            return
        allocatable = allocatable_cpus or frozenset(numa_of) - reserved
    for (numa, *_), resources in amounts.items():
        cpus = {cpu for cpu, of_cpu in numa_of.items() if of_cpu == numa}
        resources["cpu"] = report.Amount(
            capacity=len(cpus), allocatable=len(cpus & allocatable), free=len((cpus & allocatable) - held)
        )


def _add_memory(
    amounts: dict[Numa, dict[str, report.Amount]], state: report.JsonObject | None, problems: list[report.Problem]
) -> None:
    """Memory and hugepages in bytes, from the memory manager's machine state; none without policy Static."""
    machine = (state or {}).get("machineState")
    if (state or {}).get("policyName") != "Static" or not isinstance(machine, Mapping):
        return
    try:
        for node, record in machine.items():
            for kind, table in record["memoryMap"].items():
                amounts.setdefault((_node_id(node),), {})[str(kind)] = report.Amount(
                    capacity=_bytes(table["total"]),
                    allocatable=_bytes(table["allocatable"]),
                    free=_bytes(table["free"]),
                )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"not a memory manager state: {type(error).__name__}: {error}"
        problems.append(report.Problem(source=SOURCE, path="memory", reason=reason[:200]))


def _add_devices(
    amounts: dict[Numa, dict[str, report.Amount]], devices: Devices, in_use: frozenset[tuple[str, str]]
) -> None:
    for resource, all_devices in devices.items():
        by_numa: dict[Numa, list[tuple[bool, bool]]] = {}
        for device in all_devices:
            if device.numa:
                held = (resource, device.id) in in_use
                by_numa.setdefault(tuple(device.numa), []).append((device.healthy, device.healthy and not held))
        for numa, flags in by_numa.items():
            amounts.setdefault(numa, {})[resource] = report.Amount(
                capacity=len(flags), allocatable=sum(ok for ok, _ in flags), free=sum(free for _, free in flags)
            )


def _costs(machine: report.ReportedMachine) -> dict[Numa, dict[str, int]]:
    """Distances by zone name. A row that does not match the number of nodes is ignored."""
    names = [f"node-{node.id}" for node in machine.numa]
    return {
        (node.id,): dict(zip(names, node.distances, strict=True))
        for node in machine.numa
        if node.distances is not None and len(node.distances) == len(names)
    }


def _node_id(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ValueError(f"not a NUMA id: {text!r:.40}")
    return int(text)


def _bytes(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"not a number of bytes: {value!r:.40}")
    return value
