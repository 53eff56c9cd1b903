"""The device manager (§8)."""

from random import Random
from typing import Any

from tests.oracle.amounts import whole
from tests.oracle.errors import allocate_failed
from tests.oracle.hints import Hint, Hints, Mask, masks_over
from tests.oracle.machine import Machine
from tests.oracle.pods import Container, Pod, pod_total
from tests.oracle.rules import OracleRules

Ids = set[str]


class DeviceManager:
    def __init__(self, machine: Machine, devices: dict[str, Any], rules: OracleRules, rng: Random) -> None:
        self.machine = machine
        self.rules = rules
        self.rng = rng
        self.numa: dict[str, dict[str, frozenset[int] | None]] = {}
        self.healthy: dict[str, Ids] = {}
        self.allocated: dict[str, Ids] = {}
        self.held: dict[str, dict[str, dict[str, Ids]]] = {}  # pod, container, resource
        self.reuse: dict[str, dict[str, Ids]] = {}
        for resource, listed in devices.items():
            self.numa[resource] = {d["id"]: None if d["numa"] is None else frozenset(d["numa"]) for d in listed}
            self.healthy[resource] = {device["id"] for device in listed if device["healthy"]}

    def known(self, resource: str) -> bool:
        return resource in self.healthy or resource in self.allocated

    def collect(self, active: dict[str, Pod]) -> None:
        gone = [uid for uid in self.held if uid not in active]
        for uid in gone:
            del self.held[uid]
        if gone:
            self.allocated = {}
            for containers in self.held.values():
                for resources in containers.values():
                    for resource, ids in resources.items():
                        self.allocated.setdefault(resource, set()).update(ids)

    # -- hints (§8.2) --

    def hints(self, pod: Pod, container: Container, active: dict[str, Pod]) -> Hints:
        self.collect(active)
        answer: Hints = {}
        for resource, quantity in container.limits.items():
            if self.known(resource):
                held = self.held.get(pod.uid, {}).get(container.name, {}).get(resource, set())
                reusable = self.reuse.get(pod.uid, {}).get(resource, set())
                answer[resource] = self._hints_of(resource, whole(quantity), held, reusable)
        return answer

    def pod_hints(self, pod: Pod, active: dict[str, Pod]) -> Hints:
        self.collect(active)
        answer: Hints = {}
        for resource in {name for container in pod.containers for name in container.limits if self.known(name)}:
            amounts = [(self._kind(c), whole(c.limits.get(resource, 0))) for c in pod.containers]
            held: Ids = set()
            for resources in self.held.get(pod.uid, {}).values():
                held |= resources.get(resource, set())
            answer[resource] = self._hints_of(resource, pod_total(amounts, sidecars=True), held, set())
        return answer

    def _kind(self, container: Container) -> str:
        """The device totals know restartable init containers one minor before the managers do."""
        restartable = container.restartable and self.rules.sidecars_in_device_totals
        return "sidecar" if restartable else container.kind

    def _hints_of(self, resource: str, need: int, held: Ids, reusable: Ids) -> list[Hint] | None:
        if not any(self.numa.get(resource, {}).values()):
            return None
        if held:
            return self._generate(resource, held, set(), need) if len(held) == need else []
        available = self.healthy.get(resource, set()) - self.allocated.get(resource, set())
        if len(available | reusable) < need:
            return []
        return self._generate(resource, available, reusable, need)

    def _generate(self, resource: str, available: Ids, reusable: Ids, need: int) -> list[Hint]:
        numa = self.numa[resource]
        ids = self._mask_ids(resource)
        smallest = len(ids)
        masks: list[Mask] = []
        for mask in masks_over(ids):
            if sum(1 for nodes in numa.values() if nodes and nodes & mask) >= need:
                smallest = min(smallest, len(mask))
            if self._reachable(numa, mask, available, reusable) >= need:
                masks.append(mask)
        return [Hint(mask, len(mask) == smallest) for mask in masks]

    def _mask_ids(self, resource: str) -> list[int]:
        if self.rules.device_numa_narrowing:
            used = {node for nodes in self.numa[resource].values() for node in nodes or ()}
            narrowed = sorted(used & set(self.machine.numa_ids))
            if narrowed:
                return narrowed
        return self.machine.numa_ids

    @staticmethod
    def _reachable(numa: dict[str, frozenset[int] | None], mask: Mask, available: Ids, reusable: Ids) -> int:
        """How many of these devices the mask touches; -1 if it misses a reusable one."""
        count = 0
        for device in reusable:
            nodes = numa[device]
            if nodes is None:
                continue
            if not nodes & mask:
                return -1
            count += 1
        return count + sum(1 for device in available if (numa[device] or frozenset()) & mask)

    # -- allocation (§8.3) --

    def allocate(self, pod: Pod, container: Container, affinity: Hint, active: dict[str, Pod]) -> None:
        resources = [resource for resource in container.limits if self.known(resource)]
        self.rng.shuffle(resources)
        if resources:
            self.collect(active)
        if pod.uid not in self.reuse:
            self.reuse = {pod.uid: {}}
        for resource in resources:
            self._allocate_one(pod, container, resource, affinity.mask)
        for resource, ids in self.held.get(pod.uid, {}).get(container.name, {}).items():
            reusable = self.reuse[pod.uid].setdefault(resource, set())
            if container.kind == "init":
                reusable |= ids
            else:
                reusable -= ids

    def _allocate_one(self, pod: Pod, container: Container, resource: str, mask: Mask | None) -> None:
        need = whole(container.limits[resource])
        held = self.held.get(pod.uid, {}).get(container.name, {}).get(resource, set())
        if held and len(held) != need:
            raise allocate_failed(
                f'pod "{pod.uid}" container "{container.name}" changed request for resource "{resource}" '
                f"from {len(held)} to {need}"
            )
        if resource not in self.healthy:
            raise allocate_failed(f"cannot allocate unregistered device {resource}")
        if not self.healthy[resource]:
            raise allocate_failed(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if held - self.healthy[resource]:
            raise allocate_failed(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        need -= len(held)
        if need == 0:
            return
        ids = self._pick(pod, resource, mask, need)
        self.allocated.setdefault(resource, set()).update(ids)
        self.held.setdefault(pod.uid, {}).setdefault(container.name, {})[resource] = ids

    def _pick(self, pod: Pod, resource: str, mask: Mask | None, need: int) -> Ids:
        chosen = self._some(self.reuse[pod.uid].get(resource, set()), need)
        need -= len(chosen)
        if need == 0:
            return chosen
        available = self.healthy[resource] - self.allocated.get(resource, set())
        if len(available) < need:
            raise allocate_failed(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {need}, Available: {len(available)}"
            )
        for tier in self._tiers(resource, available, mask):
            picked = self._some(tier, need)
            chosen |= picked
            need -= len(picked)
        return chosen

    def _tiers(self, resource: str, available: Ids, mask: Mask | None) -> list[Ids]:
        """Devices on the affinity's nodes, devices elsewhere, devices without a place (§8.4)."""
        numa = self.numa[resource]
        if mask is None or not any(numa.values()):
            return [available]
        aligned = {device for device in available if (numa[device] or frozenset()) & mask}
        unaligned = {device for device in available - aligned if numa[device]}
        return [aligned, unaligned, available - aligned - unaligned]

    def _some(self, ids: Ids, count: int) -> Ids:
        return set(self.rng.sample(sorted(ids), min(count, len(ids))))
