"""A kubelet's admission, restated naively (§4): every manager is asked in order, the first error refuses the pod."""

from random import Random
from typing import Any, Self

from tests.oracle import pod_level
from tests.oracle.amounts import format_cpus
from tests.oracle.cpu_manager import CpuManager
from tests.oracle.device_manager import DeviceManager
from tests.oracle.errors import AdmissionError
from tests.oracle.hints import Hint, Hints
from tests.oracle.machine import Machine
from tests.oracle.memory_manager import MemoryManager
from tests.oracle.pods import Container, Pod
from tests.oracle.rules import OracleRules
from tests.oracle.topology_manager import TopologyManager

NO_AFFINITY = Hint(None, preferred=False)
LOCALITY = "Resources cannot be allocated with Topology locality"
POD_LEVEL = "Pod Scope pod with pod-level resources failed admission"


class NaiveKubelet:
    def __init__(
        self,
        scenario_machine: dict[str, Any],
        scenario_kubelet: dict[str, Any],
        devices: dict[str, Any],
        version: str,
        rules: dict[str, bool] | None = None,
        rng: Random | None = None,
    ) -> None:
        """Start it; NaiveKubeletError if the real one would not start."""
        self.rules = OracleRules.of(version, scenario_kubelet.get("featureGates") or {}, rules or {})
        self.machine = Machine(scenario_machine)
        self.topology = TopologyManager(self.machine, scenario_kubelet, self.rules)
        self.devices = DeviceManager(self.machine, devices, self.rules, rng or Random(0))
        self.cpus = CpuManager(self.machine, scenario_kubelet, self.rules)
        self.memory = MemoryManager(self.machine, scenario_kubelet, self.rules)
        self.active: dict[str, Pod] = {}
        self.affinity: dict[str, dict[str, Hint]] = {}

    @classmethod
    def of(cls, scenario: dict[str, Any], rng: Random | None = None) -> Self:
        """The kubelet of a recorded scenario, of a report, or of a machine of the drill. Errors as for the class."""
        version = scenario.get("kubelet_version") or scenario["version"]
        rules = scenario.get("rules") or {}
        return cls(scenario["machine"], scenario["kubelet"], scenario["devices"], version, rules, rng)

    # -- what happens to pods --

    def admit(self, pod_json: dict[str, Any]) -> dict[str, Any]:
        """The verdict, and the placement of each container, in the shape of the vectors' `expect`."""
        pod = Pod(pod_json, self.rules)
        self.active[pod.uid] = pod
        self.affinity[pod.uid] = {}
        try:
            self._admit(pod)
        except AdmissionError as error:
            del self.active[pod.uid]
            del self.affinity[pod.uid]
            return {"admit": False, "reason": error.reason, "message": error.message}
        placements = {container.name: self._placement(pod, container) for container in pod.containers}
        result: dict[str, Any] = {"admit": True, "containers": placements}
        if pod.uid in self.cpus.pod_entries:
            result["pod_cpus"] = format_cpus(self.cpus.pod_entries[pod.uid])
        return result

    def start(self, uid: str) -> None:
        """The containers of an admitted pod start, in order; ordinary init containers are done."""
        pod = self.active.get(uid)
        for container in pod.containers if pod else []:
            assert pod is not None
            self.memory.started(pod, container)

    def remove(self, uid: str) -> None:
        """The pod is gone; what it held is collected when a manager looks next."""
        self.active.pop(uid, None)
        self.affinity.pop(uid, None)

    # -- the scopes --

    def _admit(self, pod: Pod) -> None:
        if self.topology.policy == "none":
            for container in pod.containers:
                self._allocate(pod, container, NO_AFFINITY)
        elif self.topology.scope == "container":
            for container in pod.containers:
                self._allocate(pod, container, self._container_hint(pod, container))
        elif pod.has_pod_resources and self.rules.pod_level_managers:
            hint = self._pod_hint(pod)
            self.affinity[pod.uid] = {container.name: hint for container in pod.containers}
            pod_level.allocate_cpus(self.cpus, pod, hint, self.active)  # the device manager does nothing here
            pod_level.allocate_memory(self.memory, pod, hint, self.active)
        else:
            hint = self._pod_hint(pod)
            for container in pod.containers:
                self._allocate(pod, container, hint)

    def _container_hint(self, pod: Pod, container: Container) -> Hint:
        hint, admitted = self.topology.merge(
            [
                self.devices.hints(pod, container, self.active),
                self.cpus.hints(pod, container, self.active),
                self.memory.hints(pod, container, self.active),
            ]
        )
        if not admitted:
            own_text = pod.has_pod_resources and self.rules.pod_level_managers
            text = f"{POD_LEVEL} with a container-level topology manager" if own_text else LOCALITY
            raise AdmissionError("TopologyAffinityError", text)
        return hint

    def _pod_hint(self, pod: Pod) -> Hint:
        as_bubble = pod.has_pod_resources and self.rules.pod_level_managers
        answers: list[Hints | None] = [self.devices.pod_hints(pod, self.active)]
        if as_bubble:
            answers.append(pod_level.cpu_hints(self.cpus, pod, self.active))
            answers.append(pod_level.memory_hints(self.memory, pod, self.active))
        else:
            answers.append(self.cpus.pod_hints(pod, self.active))
            answers.append(self.memory.pod_hints(pod, self.active))
        hint, admitted = self.topology.merge(answers)
        if not admitted:
            text = f"{POD_LEVEL} under pod-scope topology manager" if as_bubble else LOCALITY
            raise AdmissionError("TopologyAffinityError", text)
        return hint

    def _allocate(self, pod: Pod, container: Container, hint: Hint) -> None:
        self.affinity[pod.uid][container.name] = hint
        self.devices.allocate(pod, container, hint, self.active)
        self.cpus.allocate(pod, container, hint, self.active)
        self.memory.allocate(pod, container, hint, self.active)

    # -- the answer --

    def _placement(self, pod: Pod, container: Container) -> dict[str, Any]:
        hint = self.affinity[pod.uid][container.name]
        placement: dict[str, Any] = {
            "affinity": None if hint.mask is None else sorted(hint.mask),
            "preferred": hint.preferred,
        }
        cpus = self.cpus.entries.get(pod.uid, {}).get(container.name)
        if cpus:
            placement["cpus"] = format_cpus(cpus)
        blocks = self.memory.blocks.get(pod.uid, {}).get(container.name)
        if blocks:
            placement["memory"] = [
                {"numa": sorted(block.mask), "type": block.type, "size": block.size}
                for block in sorted(blocks, key=lambda block: block.type)
            ]
        held = self.devices.held.get(pod.uid, {}).get(container.name)
        if held:
            placement["devices"] = {resource: sorted(ids) for resource, ids in held.items()}
            placement["device_numa"] = {resource: self._places(resource, ids) for resource, ids in held.items()}
        return placement

    def _places(self, resource: str, ids: set[str]) -> list[list[int] | None]:
        """The NUMA nodes of each device, None without topology; placed devices first."""
        nodes = [self.devices.numa[resource][device] for device in ids]
        placed = sorted(sorted(places) for places in nodes if places is not None)
        return [*placed, *(None for places in nodes if places is None)]
