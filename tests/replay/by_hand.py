"""Small nodes written by hand, and pods in one line: what tests of single rules are told with."""

from collections.abc import Mapping
from typing import Any

from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Rejected, Verdict
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import devices_from_json, kubelet_config_from_json, machine_from_json

Json = dict[str, Any]

M1: Json = {
    "cpus": [[cpu, cpu % 8, cpu % 8 // 4, cpu % 8 // 4, None] for cpu in range(16)],
    "numa": [{"id": n, "memory": 16 << 30, "distances": [10, 21] if n == 0 else [21, 10]} for n in (0, 1)],
}
"""Two sockets = two NUMA nodes of 4 cores x 2 threads: 0-3,8-11 and 4-7,12-15."""

M2: Json = {
    "cpus": [[cpu, cpu, cpu // 8, cpu // 4, None] for cpu in range(16)],
    "numa": [
        {
            "id": n,
            "memory": 16 << 30,
            "distances": [10 if n == m else 12 if n // 2 == m // 2 else 32 for m in range(4)],
        }
        for n in range(4)
    ],
}
"""Two sockets, four NUMA nodes of 4 CPUs: 0-3, 4-7 on socket 0, 8-11, 12-15 on socket 1."""


def machine(cores: list[list[int]], numa: list[int], socket: list[int], uncore: list[int] | None = None) -> Json:
    """A machine from its cores (their CPUs) and the NUMA node, socket and uncore cache of each."""
    cpus = [
        [cpu, core, socket[core], numa[core], None if uncore is None else uncore[core]]
        for core, threads in enumerate(cores)
        for cpu in threads
    ]
    return {"cpus": cpus, "numa": [{"id": n, "memory": 16 << 30} for n in sorted(set(numa))]}


def container(cpu: float, memory: str = "1Gi", more: Mapping[str, str] | None = None, *, always: bool = False) -> Json:
    """A container with requests = limits; *always* makes an init container a sidecar."""
    amounts = {"cpu": str(cpu), "memory": memory, **(more or {})}
    document: Json = {"resources": {"requests": amounts, "limits": amounts}}
    return {**document, "restartPolicy": "Always"} if always else document


def pod(uid: str, *apps: Json, init: tuple[Json, ...] = (), resources: Mapping[str, str] | None = None) -> Json:
    """A pod; app containers are named c0, c1…, init containers i0, i1…; *resources* are the pod-level ones."""
    spec: Json = {
        "initContainers": [{"name": f"i{n}", **c} for n, c in enumerate(init)],
        "containers": [{"name": f"c{n}", **c} for n, c in enumerate(apps)],
    }
    if resources is not None:
        spec["resources"] = {"requests": dict(resources), "limits": dict(resources)}
    return {"metadata": {"name": uid, "uid": uid}, "spec": spec}


class Node:
    """One kubelet and what it holds at the moment."""

    def __init__(
        self,
        topology: Json,
        version: str = "1.36",
        *,
        devices: Json | None = None,
        reserve: str = "2",
        rules: Mapping[str, bool] | None = None,
        **kubelet: Any,
    ) -> None:
        document: Json = {"cpuManagerPolicy": "static", "reservation": {"cpu": reserve}, **kubelet}
        document["featureGates"] = {
            "CPUManagerPolicyAlphaOptions": True,
            "TopologyManagerPolicyAlphaOptions": True,
            **document.get("featureGates", {}),
        }
        config = kubelet_config_from_json(version, document, rules=dict(rules or {}))
        self.kubelet: Kubelet = start(machine_from_json(topology), config)
        self.state: ManagerState = initial_state(self.kubelet, devices_from_json(devices or {}))
        self.admitted: dict[str, PodRequest] = {}

    @property
    def reserved(self) -> str:
        """The reserved CPUs."""
        return format_list(self.kubelet.reserved_cpus)

    def verdict(self, document: Json) -> Verdict:
        """Admit a pod and go on with what that leaves behind."""
        request = resolve(pod_from_json(document), self.kubelet.rules)
        outcome = admit(self.kubelet, self.state, request)
        self.state = outcome.state
        self.admitted[request.uid] = request
        return outcome.verdict

    def admit(self, document: Json) -> dict[str, str] | str:
        """The CPUs of every container by name, or the reason of the refusal."""
        verdict = self.verdict(document)
        if isinstance(verdict, Rejected):
            return verdict.reason.value
        return {name: format_list(p.cpus) for name, p in verdict.placements.items()}

    def cpus(self, *requests: float) -> list[str]:
        """Pods of one container, one after the other: the CPUs of each, or the reason of its refusal."""
        shown = []
        for request in requests:
            result = self.admit(pod(f"p{len(self.admitted)}", container(request)))
            shown.append(result if isinstance(result, str) else result["c0"])
        return shown

    def affinities(self, document: Json) -> dict[str, tuple[list[int] | None, bool]] | str:
        """What the Topology Manager stored, by container: (NUMA nodes or None, preferred); or the refusal's reason."""
        verdict = self.verdict(document)
        if isinstance(verdict, Rejected):
            return verdict.reason.value
        return {
            name: (None if p.affinity is None else list(iter_bits(p.affinity)), p.preferred)
            for name, p in verdict.placements.items()
        }

    def memory(self, document: Json) -> dict[str, list[int]] | str:
        """The NUMA nodes that hold each container's memory, by name; or the message of the refusal."""
        verdict = self.verdict(document)
        if isinstance(verdict, Rejected):
            return verdict.message
        return {name: list(iter_bits(p.memory[0].mask)) for name, p in verdict.placements.items()}

    def free(self, memory_type: str = "memory", unit: int = 1 << 30) -> list[int]:
        """Free memory of one type on each NUMA node."""
        amounts = [dict(node.amounts).get(memory_type) for node in self.state.memory.nodes]
        return [a.free // unit for a in amounts if a is not None]

    def start(self, uid: str) -> None:
        """The pod's containers run."""
        self.state = start_pod(self.state, self.admitted[uid])

    def remove(self, uid: str) -> None:
        """The pod is gone."""
        self.state = release_pods(self.state, [uid])
