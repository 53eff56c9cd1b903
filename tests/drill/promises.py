"""What naive kubelets do in place of what advice promised: admissions on copies, and restarts with a change.

Rules of this file
- It shares no code with the replay. Placements are read from the ids that the naive kubelet assigned.
"""

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.drill import machines
from tests.drill.demands import PREFIX, is_met
from tests.drill.node import Kubelet
from tests.drill.workload import requested
from tests.oracle.device_manager import DeviceManager
from tests.oracle.kubelet import NaiveKubelet
from tests.oracle.pods import Pod
from tests.oracle.restart import RestartedNaiveKubelet

Json = dict[str, Any]
MAX_COPIES = 200
ALLOWED_DISRUPTIONS = {"careful": 1, "never": 0}
"""How many pods with this label `app` may be gone at a time; of others any number."""


class NaiveNode:
    """A naive kubelet with its check of totals, beside the cluster: nothing of it reaches the drill's own kubelet."""

    def __init__(self, naive: NaiveKubelet, allocatable: dict[str, int], used: Counter[str]) -> None:
        self.naive, self.allocatable, self.used = naive, allocatable, used

    @classmethod
    def copy_of(cls, kubelet: Kubelet, without: Iterable[str] = ()) -> "NaiveNode":
        """The kubelet as it is now, without these pods."""
        naive = copy.deepcopy(kubelet.naive)
        for uid in without:
            naive.remove(uid)
        used = Counter[str]()
        for uid in naive.active:
            used.update(requested(kubelet.api.pods[uid]))
        return cls(naive, machines.allocatable(kubelet.scenario), used)

    @classmethod
    def empty(cls, kubelet: Kubelet, fields: Json) -> "NaiveNode":
        """An empty node with changed fields of the configuration; NaiveKubeletError if the kubelet does not start."""
        scenario = kubelet.scenario
        naive = NaiveKubelet(
            scenario["machine"], {**scenario["kubelet"], **fields}, scenario["devices"], scenario["version"]
        )
        return cls(naive, machines.allocatable(scenario), Counter())

    def admit(self, pod: Json, uid: str) -> Json | None:
        """The verdict under another UID; None if the pod is refused."""
        verdict = self.naive.admit({**pod, "metadata": {**pod["metadata"], "uid": uid}})
        if not verdict["admit"]:
            return None
        wanted = requested(pod)
        if any(self.used[name] + amount > self.allocatable.get(name, amount) for name, amount in wanted.items()):
            self.naive.remove(uid)
            return None
        self.naive.start(uid)
        self.used.update(wanted)
        return verdict


def why_not_evicted(pods: Iterable[Json], priority: int) -> list[str]:
    """Why some of these pods may not be evicted together for a pod of this priority."""
    found, used = [], Counter[str]()
    for pod in pods:
        name, app = pod["metadata"]["name"], pod["metadata"]["labels"]["app"]
        used[app] += 1
        if used[app] > ALLOWED_DISRUPTIONS.get(app, used[app]):
            found.append(f"the budget of {name} is used up")
        if pod["spec"]["priority"] > priority:
            found.append(f"the priority of {name} is higher")
    return found


def is_alike(one: Json, other: Json) -> bool:
    """Whether kubelets admit two pods in the same way."""
    parts = [
        [
            (part, c["name"], c["resources"])
            for part in ("initContainers", "containers")
            for c in pod["spec"].get(part, ())
        ]
        for pod in (one, other)
    ]
    return parts[0] == parts[1]


def copies_on_empty(kubelet: Kubelet, wanted: Json) -> int:
    """The same on an empty node."""
    return _copies_on(NaiveNode.empty(kubelet, {}), kubelet, wanted)


def copies_of(kubelet: Kubelet, wanted: Json) -> int:
    """How many copies of a pod are aligned, one after another, until one is refused."""
    return _copies_on(NaiveNode.copy_of(kubelet), kubelet, wanted)


def _copies_on(node: NaiveNode, kubelet: Kubelet, wanted: Json) -> int:
    count = 0
    for number in range(MAX_COPIES):
        verdict = node.admit(wanted, f"copy-{number}")
        if verdict is None:
            break
        count += _is_aligned(wanted, verdict, kubelet)
    return count


def largest_of(kubelet: Kubelet, wanted: Json) -> int:
    """The most CPUs with which one more such pod of one container is aligned; 0: none."""
    for cpus in range(len(kubelet.scenario["machine"]["cpus"]), 0, -1):
        pod = with_amount(wanted, "cpu", str(cpus))
        verdict = NaiveNode.copy_of(kubelet).admit(pod, "copy")
        if verdict is not None and _is_aligned(pod, verdict, kubelet):
            return cpus
    return 0


def with_amount(pod: Json, resource: str, amount: str, container: str = "") -> Json:
    """A copy of a pod with another request of one container, empty: the first, and the limit that goes with it."""
    changed = copy.deepcopy(pod)
    containers = changed["spec"]["containers"]
    found = next(each for each in containers if not container or each["name"] == container)
    for amounts in found["resources"].values():
        amounts[resource] = amount
    return changed


def _is_aligned(pod: Json, verdict: Json, kubelet: Kubelet) -> bool:
    annotations = {f"{PREFIX}alignment": "single-numa-node"}
    return is_met({**pod, "metadata": {**pod["metadata"], "annotations": annotations}}, verdict, kubelet.scenario)


def numa_nodes_of(kubelet: Kubelet, uid: str) -> set[int]:
    """The NUMA nodes of everything that a pod holds."""
    naive = kubelet.naive
    node_of = {row[0]: row[3] for row in kubelet.scenario["machine"]["cpus"]}
    found = {node_of[cpu] for cpus in naive.cpus.entries.get(uid, {}).values() for cpu in cpus}
    for blocks in naive.memory.blocks.get(uid, {}).values():
        found |= {node for block in blocks for node in block.mask}
    for resources in naive.devices.held.get(uid, {}).values():
        for resource, ids in resources.items():
            found |= {node for each in ids for node in naive.devices.numa[resource][each] or ()}
    return found


def resize_by_version(kubelet: Kubelet, pod: Json, changed: Json) -> str:
    """What a kubelet with static policies makes of a changed CPU request; its gates are those of its version."""
    if kubelet.minor < 33:
        return "not-supported"
    if pod["status"]["qosClass"] == "Guaranteed":
        return "infeasible"
    wanted, allocatable = requested(changed), machines.allocatable(kubelet.scenario)
    if any(amount > allocatable[name] for name, amount in wanted.items()):
        return "infeasible"
    used = NaiveNode.copy_of(kubelet, [pod["metadata"]["uid"]]).used
    return "deferred" if any(used[name] + amount > allocatable[name] for name, amount in wanted.items()) else "fits"


class _Restarted(RestartedNaiveKubelet):
    """Knows which state files it refused."""

    def refused(self, old: NaiveKubelet) -> set[str]:
        """The files with which it does not start; they are deleted then."""
        cpu = old.cpus.static == self.cpus.static and self._restores_cpus(old)
        memory = old.memory.static == self.memory.static and self._amounts(old) == self._amounts(self)
        return {name for name, kept in (("cpu_manager_state", cpu), ("memory_manager_state", memory)) if not kept}


class RestartableKubelet(Kubelet):
    """A kubelet of the drill that can restart with another version or configuration.

    `is_back`: the last restart is over. `refused_files`, `refused_pods`: of that restart.
    """

    is_back = True
    refused_files: frozenset[str] = frozenset()
    refused_pods: frozenset[str] = frozenset()
    _next: _Restarted | None = None

    def restart_with(self, version: str | None, fields: Json) -> None:
        """Stop, and start with a change. NaiveKubeletError: no kubelet starts with it, and this one runs on."""
        version, kubelet = version or self.scenario["version"], {**self.scenario["kubelet"], **fields}
        self._next = _Restarted(self.scenario["machine"], kubelet, {}, version)
        self._changed_scenario = {**self.scenario, "version": version, "kubelet": kubelet}
        self.is_back = False
        self.stop()

    def _come_back(self) -> None:
        new, old = self._next, self.naive
        if not self.api.up or new is None:
            super()._come_back()
            return
        self._next = None
        self.scenario = self._changed_scenario
        self.minor = int(self.scenario["version"].split(".")[1])
        pods = {uid: pod for uid, pod in self.api.pods.items() if uid in old.active}
        old.cpus.collect(old.active)  # the CPU Manager has done so every 10 s
        self.refused_files = frozenset(new.refused(old))
        new.restart(old, list(pods.values()))
        new.active = {uid: Pod(pod, new.rules) for uid, pod in pods.items()}
        self.naive = new
        super()._come_back()
        self.refused_pods = frozenset(pods.keys() - self.naive.active.keys())
        registered = DeviceManager(new.machine, self.scenario["devices"], new.rules, new.devices.rng)
        registered.held, registered.allocated = new.devices.held, new.devices.allocated
        new.devices = registered
        self.is_back = True
