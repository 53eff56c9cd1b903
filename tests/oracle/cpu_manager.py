"""The CPU manager with policies none and static (§6)."""

from collections.abc import Iterable
from typing import Any

from tests.oracle.amounts import milli, parse_cpus
from tests.oracle.cpu_distribute import take
from tests.oracle.cpu_take import TakeOptions
from tests.oracle.errors import AdmissionError, NaiveKubeletError
from tests.oracle.hints import Hint, Hints, Mask, masks_over
from tests.oracle.machine import Machine
from tests.oracle.pods import Container, Pod, pod_total, whole_cpus
from tests.oracle.rules import CPU_OPTIONS, OracleRules, read_options

CpuSet = frozenset[int]
EXCLUSIVE_PAIRS = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)


class CpuManager:
    def __init__(self, machine: Machine, kubelet: dict[str, Any], rules: OracleRules) -> None:
        self.machine = machine
        self.rules = rules
        self.static = (kubelet.get("cpuManagerPolicy") or "none") == "static"
        self.entries: dict[str, dict[str, CpuSet]] = {}
        self.pod_entries: dict[str, CpuSet] = {}
        self.reuse: dict[str, CpuSet] = {}
        self.reserved: CpuSet = frozenset()
        self.default: CpuSet = machine.all_cpus
        options = kubelet.get("cpuManagerPolicyOptions") or {}
        if not self.static:
            if options:
                raise NaiveKubeletError("cpumanager: policy none takes no options")
            return
        try:
            self.options = read_options("CPU Manager", options, CPU_OPTIONS, rules)
            self._check_options(kubelet.get("topologyManagerPolicy") or "none")
            self.take_options = TakeOptions(
                full_cores="full-pcpus-only" in self.options,
                across_numa="distribute-cpus-across-numa" in self.options,
                across_cores="distribute-cpus-across-cores" in self.options,
                by_uncore="prefer-align-cpus-by-uncorecache" in self.options,
            )
            self.reserved = self._reserve(kubelet)
        except (NaiveKubeletError, AdmissionError) as error:
            raise NaiveKubeletError(f"cpumanager: new static policy error: {error}") from error
        if "strict-cpu-reservation" in self.options:
            self.default -= self.reserved
        cores = {machine.core[cpu] for cpu in self.reserved}
        self.reserved_physical = frozenset(cpu for cpu in machine.all_cpus if machine.core[cpu] in cores)

    def _check_options(self, topology_policy: str) -> None:
        for first, second in EXCLUSIVE_PAIRS:
            if first in self.options and second in self.options:
                raise NaiveKubeletError(f"static policy options {first} and {second} can not be used at the same time")
        if "align-by-socket" in self.options:
            if topology_policy == "single-numa-node":
                raise NaiveKubeletError(
                    "Topolgy manager single-numa-node policy is incompatible with "
                    "CPUManager align-by-socket policy option"
                )
            if self.machine.num_sockets > len(self.machine.cpu_numa_ids):
                raise NaiveKubeletError(
                    "Align by socket is not compatible with hardware where "
                    "number of sockets are more than number of NUMA"
                )

    def _reserve(self, kubelet: dict[str, Any]) -> CpuSet:
        """§6.2."""
        explicit = parse_cpus(kubelet.get("reservedSystemCPUs") or "")
        if explicit:
            return explicit
        count = -(-milli((kubelet.get("reservation") or {}).get("cpu", 0)) // 1000)
        if count <= 0:
            raise NaiveKubeletError("no CPU is reserved")
        reserved = self.take(self.machine.all_cpus, count)
        if len(reserved) != count:
            raise NaiveKubeletError(f"{count} CPUs to reserve, but {len(reserved)} can be")
        return reserved

    def take(self, available: CpuSet, need: int, hint_nodes: int = 0) -> CpuSet:
        return take(self.machine, self.rules, self.take_options, available, need, hint_nodes)

    @property
    def available(self) -> CpuSet:
        return self.default - self.reserved

    # -- stale state (§2.2, §6.8) --

    def collect(self, active: dict[str, Pod]) -> None:
        for uid in list(self.entries):
            known = {c.name for c in active[uid].containers} if uid in active else set()
            for name in list(self.entries[uid]):
                if name not in known:
                    self.remove(uid, name)

    def remove(self, uid: str, name: str) -> None:
        """Give a container's CPUs back, except those that other containers of its pod have too."""
        cpus = self.entries[uid].pop(name)
        if uid in self.pod_entries:
            if not self.entries[uid]:
                self.default |= self.pod_entries.pop(uid)
        else:
            self.default |= cpus - _union(self.entries[uid].values())
        if not self.entries[uid]:
            del self.entries[uid]

    # -- hints (§6.5) --

    def exclusive(self, pod: Pod, container: Container) -> int:
        """How many CPUs of its own a container gets (§3.2)."""
        if not pod.guaranteed:
            return 0
        if pod.has_pod_resources and self.rules.pod_level_managers and not container.guaranteed_alone:
            return 0
        return whole_cpus(container.requests.get("cpu", 0))

    def ignores(self, pod: Pod) -> bool:
        skipped = pod.has_pod_resources and self.rules.pod_level_skips_managers and not self.rules.pod_level_managers
        return not self.static or skipped

    def hints(self, pod: Pod, container: Container, active: dict[str, Pod]) -> Hints | None:
        if not self.static:
            return None
        self.collect(active)
        if self.ignores(pod):
            return None
        need = self.exclusive(pod, container)
        if need == 0:
            return None
        entry = self.entries.get(pod.uid, {}).get(container.name)
        if entry is not None:
            return {"cpu": self.generate(entry, frozenset(), need) if len(entry) == need else []}
        return {"cpu": self.generate(self.available, self.reuse.get(pod.uid, frozenset()), need)}

    def pod_hints(self, pod: Pod, active: dict[str, Pod]) -> Hints | None:
        if not self.static:
            return None
        self.collect(active)
        if self.ignores(pod):
            return None
        needs = {container.name: self.exclusive(pod, container) for container in pod.containers}
        total = pod_total([(c.kind, needs[c.name]) for c in pod.containers], sidecars=True)
        return self.hints_for_total(pod, needs, total)

    def hints_for_total(self, pod: Pod, needs: dict[str, int], total: int) -> Hints | None:
        if total == 0:
            return None
        reuse = self.reuse.get(pod.uid, frozenset())
        held: CpuSet = frozenset()
        for name, entry in self.entries.get(pod.uid, {}).items():
            if len(entry) != needs[name]:
                return {"cpu": []}
            held |= entry
        if len(held) == total:
            return {"cpu": self.generate(held, frozenset(), total)}
        return {"cpu": self.generate(self.available, reuse | held, total)}

    def generate(self, available: CpuSet, reusable: CpuSet, need: int) -> list[Hint]:
        machine = self.machine
        free_on = {node: len(machine.cpus_of_numa[node] & available) for node in machine.cpu_numa_ids}
        reused_nodes = {machine.numa[cpu] for cpu in reusable}
        smallest = len(machine.cpu_numa_ids)
        masks: list[Mask] = []
        for mask in masks_over(machine.cpu_numa_ids):
            if sum(len(machine.cpus_of_numa[node]) for node in mask) >= need:
                smallest = min(smallest, len(mask))
            if not reused_nodes <= mask:
                continue
            if len(reusable) + sum(free_on[node] for node in mask) >= need:
                masks.append(mask)
        return [Hint(mask, len(mask) == smallest or self._socket_aligned(mask, smallest)) for mask in masks]

    def _socket_aligned(self, mask: Mask, smallest: int) -> bool:
        per_socket = len(self.machine.cpu_numa_ids) // self.machine.num_sockets if self.machine.num_sockets else 0
        if "align-by-socket" not in self.options or per_socket == 0:
            return False
        return len(self.machine.sockets_of(mask)) == -(-smallest // per_socket)

    # -- allocation (§6.6) --

    def allocate(self, pod: Pod, container: Container, affinity: Hint, active: dict[str, Pod]) -> None:
        if not self.static:
            return
        self.collect(active)
        if self.ignores(pod):
            return
        need = self.exclusive(pod, container)
        if need == 0:
            return
        entry = self.entries.get(pod.uid, {}).get(container.name)
        if entry is None or not self.rules.smt_check_after_held:
            self.check_full_cores(need)
        if entry is None:
            entry = self.take_near(need, affinity.mask, self.reuse.get(pod.uid, frozenset()))
            self.entries.setdefault(pod.uid, {})[container.name] = entry
        self._update_reuse(pod, container, entry)

    def check_full_cores(self, need: int) -> None:
        if "full-pcpus-only" not in self.options:
            return
        per_core = self.machine.per_core
        multiple = f"SMT Alignment Error: requested {need} cpus not multiple cpus per core = {per_core}"
        if need % per_core != 0:
            raise AdmissionError("SMTAlignmentError", multiple)
        free = len(self.default - self.reserved_physical)
        if need > free:
            if free == 0 and not self.rules.smt_message_fixed:
                raise AdmissionError("SMTAlignmentError", multiple)
            raise AdmissionError(
                "SMTAlignmentError",
                f"SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free}, "
                f"requested CPUs = {need}, CPUs per core = {per_core}",
            )

    def take_near(self, need: int, mask: Mask | None, reusable: CpuSet) -> CpuSet:
        """CPUs on the nodes of the affinity first, then any; they leave the shared pool."""
        pool = self.available | reusable
        result: CpuSet = frozenset()
        if mask is not None:
            aligned = self._aligned(pool, mask)
            result = self.take(aligned, min(need, len(aligned)), len(mask))
        result |= self.take(pool - result, need - len(result))
        self.default -= result
        return result

    def _aligned(self, pool: CpuSet, mask: Mask) -> CpuSet:
        if "align-by-socket" in self.options:
            sockets = self.machine.sockets_of(mask)
            return frozenset(cpu for cpu in pool if self.machine.socket[cpu] in sockets)
        return frozenset(cpu for cpu in pool if self.machine.numa[cpu] in mask)

    def _update_reuse(self, pod: Pod, container: Container, entry: CpuSet) -> None:
        reuse = self.reuse.get(pod.uid, frozenset())
        self.reuse = {pod.uid: reuse | entry if container.kind == "init" else reuse - entry}


def _union(sets: Iterable[CpuSet]) -> CpuSet:
    return frozenset[int]().union(*sets)
