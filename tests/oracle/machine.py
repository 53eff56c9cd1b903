"""The machine as the kubelet's CPU manager knows it (§6.1), and all its NUMA nodes."""

from dataclasses import dataclass
from typing import Any

from tests.oracle.errors import NaiveKubeletError


@dataclass(frozen=True)
class Cpu:
    id: int
    core: int
    socket: int
    numa: int
    uncore: int


class Machine:
    """Plain tables over a scenario's machine."""

    def __init__(self, scenario_machine: dict[str, Any]) -> None:
        self.numa_records: dict[int, dict[str, Any]] = {node["id"]: node for node in scenario_machine["numa"]}
        self.numa_ids = sorted(self.numa_records)
        if any(node >= 64 or node < 0 for node in self.numa_ids):
            raise NaiveKubeletError("a NUMA id of 64 or more cannot be represented")
        lowest: dict[tuple[int, int, int], int] = {}
        for cpu, core_id, socket, numa, _ in scenario_machine["cpus"]:
            key = (numa, socket, core_id)
            lowest[key] = min(cpu, lowest.get(key, cpu))
        self.cpus: dict[int, Cpu] = {}
        for cpu, core_id, socket, numa, uncore in sorted(scenario_machine["cpus"], key=lambda row: int(row[0])):
            core = lowest[numa, socket, core_id]
            self.cpus[cpu] = Cpu(cpu, core, socket, numa, socket if uncore is None else uncore)
        self.all_cpus = frozenset(self.cpus)
        self.core = {cpu.id: cpu.core for cpu in self.cpus.values()}
        self.socket = {cpu.id: cpu.socket for cpu in self.cpus.values()}
        self.numa = {cpu.id: cpu.numa for cpu in self.cpus.values()}
        self.uncore = {cpu.id: cpu.uncore for cpu in self.cpus.values()}
        self.cpus_of_core = _group(self.core)
        self.cpus_of_socket = _group(self.socket)
        self.cpus_of_numa = _group(self.numa)
        self.cpus_of_uncore = _group(self.uncore)
        self.cpu_numa_ids = sorted(self.cpus_of_numa)
        self.num_sockets = int(scenario_machine.get("num_sockets") or len(self.cpus_of_socket))
        self.per_core = _divide(len(self.cpus), len(self.cpus_of_core))
        self.per_socket = _divide(len(self.cpus), self.num_sockets)
        self.per_uncore = _divide(len(self.cpus), len(self.cpus_of_uncore))
        self.numa_first = self.num_sockets >= len(self.cpu_numa_ids)

    def sockets_of(self, nodes: frozenset[int]) -> set[int]:
        """The sockets that these NUMA nodes touch."""
        return {cpu.socket for cpu in self.cpus.values() if cpu.numa in nodes}


def _group(table: dict[int, int]) -> dict[int, frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for cpu, element in table.items():
        groups.setdefault(element, set()).add(cpu)
    return {element: frozenset(cpus) for element, cpus in groups.items()}


def _divide(whole: int, parts: int) -> int:
    return whole // parts if parts else 0
