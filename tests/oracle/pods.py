"""A pod as the managers read it: its containers in order, its QoS class (§3.1), its pod-level resources (§3.6)."""

from dataclasses import dataclass
from typing import Any

from tests.oracle.amounts import milli, whole
from tests.oracle.rules import OracleRules

Quantities = dict[str, Any]


@dataclass
class Container:
    name: str
    kind: str  # "init", "sidecar" or "app"
    restartable: bool  # an init container with restartPolicy Always, in every version
    requests: Quantities
    limits: Quantities

    @property
    def guaranteed_alone(self) -> bool:
        """Its own cpu and memory requests are positive and equal their limits (§3.8)."""
        return all(
            name in self.requests and name in self.limits and milli(self.requests[name]) == milli(self.limits[name]) > 0
            for name in ("cpu", "memory")
        )


class Pod:
    def __init__(self, pod_json: dict[str, Any], rules: OracleRules) -> None:
        spec = pod_json["spec"]
        self.uid: str = pod_json["metadata"]["uid"]
        self.name: str = pod_json["metadata"].get("name", "")
        allocated = _allocated(pod_json) if rules.allocated_resources_from_status else {}
        self.containers: list[Container] = []
        for container in spec.get("initContainers") or []:
            restartable = container.get("restartPolicy") == "Always"
            kind = "sidecar" if rules.sidecars and restartable else "init"
            self.containers.append(_container(container, kind, restartable=restartable))
        for container in spec.get("containers") or []:
            self.containers.append(_container(container, "app", restartable=False))
        pod_level = spec.get("resources")
        self.pod_requests: Quantities = (pod_level or {}).get("requests") or {}
        self.pod_limits: Quantities = (pod_level or {}).get("limits") or {}
        named = {*self.pod_requests, *self.pod_limits}
        self.has_pod_resources = any(name in {"cpu", "memory"} or name.startswith("hugepages-") for name in named)
        decides = self.has_pod_resources if rules.pod_level_qos_needs_amounts else pod_level is not None
        status_class = (pod_json.get("status") or {}).get("qosClass") if rules.qos_from_status else None
        self.qos: str = status_class or self._qos(rules.pod_level_qos and decides)
        for container in self.containers:  # after QoS: only the managers read the allocated amounts
            if container.name in allocated:
                container.requests = allocated[container.name]

    @property
    def guaranteed(self) -> bool:
        return self.qos == "Guaranteed"

    def container(self, name: str) -> Container:
        return next(container for container in self.containers if container.name == name)

    def _qos(self, by_pod_level: bool) -> str:  # noqa: FBT001
        requests: dict[str, int] = {}
        limits: dict[str, int] = {}
        all_limited = True
        parts = [(c.requests, c.limits) for c in self.containers]
        if by_pod_level:
            parts = [(self.pod_requests, self.pod_limits)]
        for requested, limited in parts:
            for name in ("cpu", "memory"):
                request, limit = milli(requested.get(name, 0)), milli(limited.get(name, 0))
                if request > 0:
                    requests[name] = requests.get(name, 0) + request
                if limit > 0:
                    limits[name] = limits.get(name, 0) + limit
                else:
                    all_limited = False
        if not requests and not limits:
            return "BestEffort"
        return "Guaranteed" if all_limited and requests == limits else "Burstable"


def _container(container: dict[str, Any], kind: str, *, restartable: bool) -> Container:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    return Container(container["name"], kind, restartable, {**limits, **(resources.get("requests") or {})}, limits)


def _allocated(pod_json: dict[str, Any]) -> dict[str, Quantities]:
    status = pod_json.get("status") or {}
    entries = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return {entry["name"]: entry.get("allocatedResources") or {} for entry in entries}


def whole_cpus(quantity: object) -> int:
    """The number of CPUs if it is a whole number, else 0 (§3.2)."""
    thousandths = milli(quantity)
    return thousandths // 1000 if thousandths % 1000 == 0 else 0


def memory_requests(requests: Quantities) -> dict[str, int]:
    """What the memory manager reads of a request map (§3.3)."""
    return {n: whole(q) for n, q in requests.items() if n == "memory" or n.startswith("hugepages-")}


def pod_total(amounts: list[tuple[str, int]], *, sidecars: bool) -> int:
    """The peak of a pod, of (kind, amount) in container order: init containers run before the app containers (§6.5)."""
    running = 0  # sidecars so far
    peak = 0
    apps = 0
    for kind, amount in amounts:
        if kind == "app":
            apps += amount
        elif kind == "sidecar" and sidecars:
            running += amount
        else:
            peak = max(peak, running + amount)
    return max(peak, apps + running)
