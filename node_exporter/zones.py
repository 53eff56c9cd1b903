"""Amounts per NUMA node for people and for NodeResourceTopology. The replay does not read them.

Rules of this file
- Everything counts once: a memory block by the amounts that the kubelet charged to each node (machine state), not by
  its size; a device with several NUMA nodes in the zone of that group; a device without topology in no zone.
- CPUs of init containers are in use (the state file has them, podresources does not). Shared CPUs are free.
- Managers that are off are shown as consumers of NodeResourceTopology expect: policy none has no allocatable CPU,
  memory policy None has no memory at all.
- Zones are sorted by NUMA id, resources by name, so that nothing changes unless an amount does.
"""

from collections.abc import Mapping

from node_exporter.checkpoints import cpu_texts
from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.devices import Devices
from node_exporter.report import Amount, JsonObject, KubeletState, Problem, ReportedKubeletConfig, ReportedMachine, Zone

SOURCE = "zones"

Numa = tuple[int, ...]


def build_zones(
    machine: ReportedMachine,
    kubelet: ReportedKubeletConfig | None,
    state: KubeletState,
    devices: Devices | None,
    *,
    in_use: frozenset[tuple[str, str]],
    allocatable_cpus: frozenset[int] | None,
) -> tuple[tuple[Zone, ...], tuple[Problem, ...]]:
    """One zone for each NUMA node, then one for each group of nodes that has devices.

    `in_use`: (resource, id) of every device that a pod holds. `allocatable_cpus`: what podresources lists. If it is
    None, the reserved CPUs must be listed in the configuration, or the zones have no `cpu`.
    """
    amounts: dict[Numa, dict[str, Amount]] = {(node.id,): {} for node in machine.numa}
    problems: list[Problem] = []
    _add_cpus(amounts, machine, kubelet, state.cpu_manager_state, allocatable_cpus, problems)
    _add_memory(amounts, state.memory_manager_state, problems)
    _add_devices(amounts, devices or {}, in_use)
    costs = _costs(machine)
    zones = tuple(
        Zone(
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
    amounts: dict[Numa, dict[str, Amount]],
    machine: ReportedMachine,
    kubelet: ReportedKubeletConfig | None,
    state: JsonObject | None,
    allocatable_cpus: frozenset[int] | None,
    problems: list[Problem],
) -> None:
    """CPUs: all logical ones; those that are not reserved; and of these the ones that no container holds."""
    numa_of = {cpu: numa for cpu, _, _, numa, _ in machine.cpus}
    if kubelet is None or kubelet.cpuManagerPolicy != "static":
        allocatable, held = frozenset[int](), frozenset[int]()
    else:
        try:
            held = frozenset[int]().union(*(parse_cpu_list(text) for text in cpu_texts(state or {})))
            reserved = parse_cpu_list(kubelet.reservedSystemCPUs)
        except ValueError as error:
            problems.append(Problem(source=SOURCE, path="cpu", reason=f"left out: not a CPU list: {error}"))
            return
        if not reserved and not allocatable_cpus:
            problems.append(Problem(source=SOURCE, path="cpu", reason="left out: the reserved CPUs are unknown"))
            return
        allocatable = allocatable_cpus or frozenset(numa_of) - reserved
    for (numa, *_), resources in amounts.items():
        cpus = {cpu for cpu, of_cpu in numa_of.items() if of_cpu == numa}
        resources["cpu"] = Amount(
            capacity=len(cpus), allocatable=len(cpus & allocatable), free=len((cpus & allocatable) - held)
        )


def _add_memory(amounts: dict[Numa, dict[str, Amount]], state: JsonObject | None, problems: list[Problem]) -> None:
    """Memory and hugepages in bytes, from the memory manager's machine state; none without policy Static."""
    machine = (state or {}).get("machineState")
    if (state or {}).get("policyName") != "Static" or not isinstance(machine, Mapping):
        return
    try:
        for node, record in machine.items():
            for kind, table in record["memoryMap"].items():
                amounts.setdefault((_node_id(node),), {})[str(kind)] = Amount(
                    capacity=_bytes(table["total"]),
                    allocatable=_bytes(table["allocatable"]),
                    free=_bytes(table["free"]),
                )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"not a memory manager state: {type(error).__name__}: {error}"
        problems.append(Problem(source=SOURCE, path="memory", reason=reason[:200]))


def _add_devices(amounts: dict[Numa, dict[str, Amount]], devices: Devices, in_use: frozenset[tuple[str, str]]) -> None:
    for resource, all_devices in devices.items():
        by_numa: dict[Numa, list[tuple[bool, bool]]] = {}
        for device in all_devices:
            if device.numa:
                held = (resource, device.id) in in_use
                by_numa.setdefault(tuple(device.numa), []).append((device.healthy, device.healthy and not held))
        for numa, flags in by_numa.items():
            amounts.setdefault(numa, {})[resource] = Amount(
                capacity=len(flags), allocatable=sum(ok for ok, _ in flags), free=sum(free for _, free in flags)
            )


def _costs(machine: ReportedMachine) -> dict[Numa, dict[str, int]]:
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
