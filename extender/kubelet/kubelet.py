"""A kubelet that has started: machine and configuration, checked, with precomputed values.

Only `startup.start` creates values of this type. They never change while the kubelet runs; `state.ManagerState` does.
"""

from dataclasses import dataclass

from extender.kubelet.config import CPUOptions, KubeletConfig, Scope, TopologyOptions, TopologyPolicy
from extender.kubelet.cpu_assignment import Assignment
from extender.kubelet.hints import Distances
from extender.kubelet.machine import Machine
from extender.kubelet.rules import Rules
from extender.kubelet.runtime import RuntimePolicy
from extender.kubelet.sets import MAX_NUMA_ID
from extender.kubelet.verdict import Certainty


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Kubelet:
    """A running kubelet's constants. CPU sets are raw bits.

    `distances` is set only if the closer NUMA nodes win a tie. `reserved_cpus` and `reserved_physical_cpus` (all
    threads of cores with a reserved CPU) are 0 under CPU policy none. `runtime`: the policy of the container
    runtime, which decides when containers are created. None if there is none. `caveats`: what every verdict of this
    kubelet must add, such as that the rules of another version are used. `borrowed`: it is that of another node, and
    this node is assumed to have an equal one.
    """

    machine: Machine
    config: KubeletConfig
    rules: Rules
    policy: TopologyPolicy
    scope: Scope
    topology_options: TopologyOptions
    distances: Distances | None
    default_mask: int
    cpu_static: bool
    cpu_options: CPUOptions
    assignment: Assignment
    reserved_cpus: int
    reserved_physical_cpus: int
    memory_static: bool
    caveats: tuple[str, ...] = ()
    runtime: RuntimePolicy | None = None
    borrowed: bool = False

    @property
    def certainty(self) -> Certainty:
        """The certainty of a verdict that depends on no random choice: EXACT; ASSUMED if version or node is assumed."""
        return Certainty.ASSUMED if self.rules.newer_than_known or self.borrowed else Certainty.EXACT

    @property
    def crashes_on_any_pod(self) -> bool:
        """Whether every merge panics: the mask of all NUMA nodes is nil, because an id does not fit into it.

        The list of a provider without preference is merged with that mask as well, so a pod that needs no alignment
        also crashes the kubelet. Only policy none merges nothing. Source: policy.go, mergePermutation.
        """
        return self.policy is not TopologyPolicy.NONE and self.default_mask >> (MAX_NUMA_ID + 1) != 0

    @property
    def identity(self) -> tuple[object, object]:
        """Equal for kubelets that give the same verdicts in equal states. Hashable."""
        own = self.machine.identity, self.config.identity
        if self.borrowed:
            return own, self.borrowed
        return own if self.runtime is None else (own, self.runtime.identity)

    @property
    def allocatable_cpus(self) -> int:
        """CPUs that can be allocated exclusively: all but the reserved ones."""
        return self.machine.all_cpus & ~self.reserved_cpus
