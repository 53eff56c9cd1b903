"""A kubelet that has started: machine and configuration, checked, with precomputed values.

Only `startup.start` creates values of this type. They never change while the kubelet runs; `state.ManagerState` does.
`RuntimePolicy` is the seam for a policy of the container runtime, such as a plugin of NRI. `admission` asks it after
the managers whether the containers are created, and passes on unread what it gives them.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

from extender.kubelet.budget import Budget
from extender.kubelet.config import CPUOptions, KubeletConfig, Scope, TopologyOptions, TopologyPolicy
from extender.kubelet.cpu_assignment import Assignment
from extender.kubelet.hints import Distances
from extender.kubelet.machine import Machine
from extender.kubelet.pod import PodRequest
from extender.kubelet.rules import Rules
from extender.kubelet.state import DeviceState, NUMANodeMemory, RuntimeGrants
from extender.kubelet.verdict import Admitted, Certainty, Verdict


class RuntimePolicy(Protocol):
    """A policy of the container runtime on one node. A value: it never changes while the node runs."""

    @property
    def identity(self) -> Hashable:
        """Equal for policies that decide alike."""

    def start(self) -> RuntimeGrants:
        """What containers hold on a node where nothing runs yet: nothing."""

    def create(
        self, granted: RuntimeGrants, pod: PodRequest, admitted: Admitted, devices: DeviceState, budget: Budget
    ) -> tuple[Verdict, RuntimeGrants]:
        """The verdict on a pod that the kubelet has *admitted*, and what containers hold after it.

        *devices*: with those that the kubelet has assigned to the pod.

        Raises:
            BudgetError: the work takes more steps than *budget* has.
        """


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Kubelet:
    """A running kubelet's constants. CPU sets are raw bits.

    `distances` is set only if closer NUMA nodes win a tie. `reserved_cpus` and `reserved_physical_cpus` (all threads of
    cores with a reserved CPU) are 0 under CPU policy none. `memory_nodes`: what the memory manager starts with.
    `runtime`: the container runtime's policy, which decides when containers are created; None: none. `caveats`: what
    each verdict must add, such as that another version's rules are used. `borrowed`: the kubelet is another node's,
    assumed to be equal. `certainty`: that of a verdict without random choices; ASSUMED if version or node are assumed.

    `crashes_on_any_pod`: every merge panics, because a NUMA id does not fit into the mask of all nodes, which is nil
    then. The list of a provider without preference is merged with that mask as well, so a pod that needs no alignment
    also crashes the kubelet. Only policy none merges nothing. Source: policy.go, mergePermutation.
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
    memory_nodes: tuple[NUMANodeMemory, ...]
    crashes_on_any_pod: bool
    certainty: Certainty
    caveats: tuple[str, ...] = ()
    runtime: RuntimePolicy | None = None
    borrowed: bool = False

    @property
    def identity(self) -> tuple[object, object]:
        """Equal for kubelets that give the same verdicts in equal states. Hashable."""
        own = self.machine.identity, config_identity(self.config)
        if self.borrowed:
            return own, self.borrowed
        return own if self.runtime is None else (own, self.runtime.identity)

    @property
    def allocatable_cpus(self) -> int:
        """CPUs that can be allocated exclusively: all but the reserved ones."""
        return self.machine.all_cpus & ~self.reserved_cpus


def config_identity(config: KubeletConfig) -> tuple[object, ...]:
    """Equal for configurations that give the same verdicts. Hashable: part of the key of a node class."""
    return (
        config.kubelet_version,
        config.cpu_manager_policy,
        _items(config.cpu_manager_policy_options),
        config.memory_manager_policy,
        tuple((r.numa, _items(r.limits_bytes)) for r in config.reserved_memory),
        config.topology_manager_policy,
        config.topology_manager_scope,
        _items(config.topology_manager_policy_options),
        config.reserved_system_cpus,
        config.reservation_cpu_milli,
        _items(config.reservation_bytes),
        _items(config.feature_gates),
        _items(config.rule_overrides),
    )


def _items(mapping: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(mapping.items()))
