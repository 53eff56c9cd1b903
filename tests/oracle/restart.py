"""A kubelet that starts on a node whose pods run, restated naively (§2.2, §2.4, §6.4, §7.9, §8.1, §8.3)."""

import copy
from typing import Any

from tests.oracle.device_manager import DeviceManager
from tests.oracle.hints import Mask
from tests.oracle.kubelet import NaiveKubelet
from tests.oracle.pods import Container, Pod


class _Devices(DeviceManager):
    """No plugin has registered; what runs keeps its devices."""

    def _allocate_one(self, pod: Pod, container: Container, resource: str, mask: Mask | None) -> None:
        held = self.held.get(pod.uid, {}).get(container.name, {}).get(resource, set())
        if container.kind != "init" and len(held) in (0, int(container.limits[resource])):
            return
        super()._allocate_one(pod, container, resource, mask)


class RestartedNaiveKubelet(NaiveKubelet):
    """The kubelet *old* after a restart with another version or configuration. `pods` are in the order of creation."""

    def restart(self, old: NaiveKubelet, pods: list[dict[str, Any]]) -> None:
        self.pods = {pod["metadata"]["uid"]: Pod(pod, self.rules) for pod in pods}
        devices = _Devices(self.machine, {}, self.rules, old.devices.rng)
        devices.held, devices.allocated = copy.deepcopy(old.devices.held), copy.deepcopy(old.devices.allocated)
        devices.healthy = {resource: set() for resource in old.devices.healthy}
        self.devices = devices
        for manager in (old.devices, old.cpus, old.memory):
            manager.collect(old.active)
        if old.cpus.static == self.cpus.static and self._restores_cpus(old):
            for name in ("entries", "pod_entries", "default"):
                setattr(self.cpus, name, copy.deepcopy(getattr(old.cpus, name)))
        if old.memory.static == self.memory.static and self._amounts(old) == self._amounts(self):
            for name in ("blocks", "nodes", "pod_blocks"):
                setattr(self.memory, name, copy.deepcopy(getattr(old.memory, name)))

    def _restores_cpus(self, old: NaiveKubelet) -> bool:
        """Whether the CPU manager's file passes the check of this kubelet. A file that does not is deleted."""
        if not self.cpus.static:
            return True
        strict = "strict-cpu-reservation" in self.cpus.options
        reserved, default = self.cpus.reserved, old.cpus.default
        held = {cpu for containers in old.cpus.entries.values() for cpus in containers.values() for cpu in cpus}
        expected = self.machine.all_cpus - (reserved if strict else set())
        if (reserved & default) if strict else (reserved - default):
            return False
        return not held & default and held | default == expected

    @staticmethod
    def _amounts(kubelet: NaiveKubelet) -> object:
        return {n: (node.total, node.system, node.allocatable) for n, node in kubelet.memory.nodes.items()}

    def admit_all(self, pods: list[dict[str, Any]]) -> dict[str, str]:
        """The reason of each refusal, by UID; empty for a pod that is admitted."""
        answers = {}
        for pod in pods:
            self.active.update(self.pods)  # nothing is collected before the pod sources are ready
            answer = self.admit(pod)
            answers[pod["metadata"]["uid"]] = "" if answer["admit"] else answer["reason"]
        return answers

    def _places(self, resource: str, ids: set[str]) -> list[list[int] | None]:  # noqa: ARG002 - not known yet
        return []
