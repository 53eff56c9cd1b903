"""One kubelet that started: machine and configuration, checked, with what follows from them precomputed.

Values of this type come from `startup.start` only. They never change while the kubelet runs; what changes is
`state.ManagerState`.
"""

from dataclasses import dataclass

from extender.replay.config import CPUOptions, KubeletConfig, Scope, TopologyOptions, TopologyPolicy
from extender.replay.cpu_assignment import Assignment
from extender.replay.hints import Distances
from extender.replay.machine import Machine
from extender.replay.rules import Rules
from extender.replay.sets import MAX_NUMA_ID
from extender.replay.verdict import Certainty


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """A running kubelet's constants. CPU sets are raw bits.

    `distances` is set only where ties go to the closer NUMA nodes. `reserved_cpus` and `reserved_physical_cpus` (all
    threads of cores with a reserved CPU) are 0 under CPU policy none.
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

    @property
    def certainty(self) -> Certainty:
        """How sure a verdict is that hangs on no random choice: EXACT, or ASSUMED for an unknown version."""
        return Certainty.ASSUMED if self.rules.newer_than_known else Certainty.EXACT

    """What every verdict of this kubelet is said with, such as rules standing in for those of a newer version."""

    @property
    def crashes_on_any_pod(self) -> bool:
        """Whether every merge panics: the mask of all NUMA nodes is nil, because an id does not fit into it.

        A provider without an opinion still has its list merged with that mask, so a pod that needs no alignment
        panics the kubelet as well; only policy none merges nothing. Source: policy.go, mergePermutation.
        """
        return self.policy is not TopologyPolicy.NONE and self.default_mask >> (MAX_NUMA_ID + 1) != 0

    @property
    def identity(self) -> tuple[object, object]:
        """Equal for kubelets that answer alike in equal states, hashable."""
        return self.machine.identity, self.config.identity

    @property
    def allocatable_cpus(self) -> int:
        """CPUs that exclusive requests can ever get: all but the reserved ones."""
        return self.machine.all_cpus & ~self.reserved_cpus
