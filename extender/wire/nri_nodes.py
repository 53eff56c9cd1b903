"""From what a report says of the NRI policy to the values that verdicts rest on.

Everything must be known: the machine, the configuration and the grants. Otherwise `UnknownPolicyError` says what is
missing or impossible, and pods get no verdict of the policy on that node.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from extender.kubelet.budget import Shared
from extender.kubelet.sets import parse_list
from extender.nri.affinity import KUBELET_LABELS
from extender.nri.books import Grant
from extender.nri.config import PolicyConfig, PolicyStartError
from extender.nri.cpu_allocator import discover
from extender.nri.events import set_up
from extender.nri.machine import Cache, NriMachine
from extender.nri.objects import QoS
from extender.nri.observed import NO_POOL, ObservedGrant, ObservedGrantError, observe
from extender.nri.requests import CPUType
from extender.nri.state import NriPolicy, NriState
from extender.replay.creation import NriRuntime
from extender.wire.errors import shown
from extender.wire.nri_reports import POLICY, NriFacts
from extender.wire.report_parts import NRI
from node_exporter.report import ReportedNriGrant

_POLICIES: Final = Shared[str, NriRuntime]()
"""Policies by the digest of machine and configuration, so that equal nodes share one."""
MAX_POOLS: Final = 512
"""Limit on pools, because each container is compared at every pool. The largest recorded machine has 41."""


class UnknownPolicyError(Exception):
    """`path`: the part of the report; `reason`: what is missing there, or why it cannot be."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path: Final = path
        self.reason: Final = reason


def policy_and_grants(facts: NriFacts, known: NriRuntime | None) -> tuple[NriRuntime, NriState]:
    """The policy and what it has granted; *known*: the policy, from an earlier report with equal facts.

    Raises:
        UnknownPolicyError: a part is missing, or cannot be.
    """
    policy = known or nri_policy(facts)
    return policy, nri_state(policy, facts.grants)


def nri_policy(facts: NriFacts) -> NriRuntime:
    """The policy with the machine and the configuration of *facts*; raises UnknownPolicyError."""
    if facts.policy != POLICY:
        raise UnknownPolicyError(f"{NRI}.policy", f"the node runs {shown(facts.policy)}, which is not replayed")
    for name, part in (("machine", facts.machine), ("config", facts.config)):
        if part is None:
            raise UnknownPolicyError(f"{NRI}.{name}", "not known")
    assert facts.machine is not None
    assert facts.config is not None
    try:
        policy = _policy(facts.machine, facts.config, facts.doubts)
    except PolicyStartError as error:
        raise UnknownPolicyError(f"{NRI}.config", f"the plugin does not start with it: {error}") from None
    if (pools := len(policy.setup.tree.pools)) > MAX_POOLS:
        raise UnknownPolicyError(f"{NRI}.machine", f"{pools} pools, more than {MAX_POOLS}")
    return policy


def nri_state(policy: NriPolicy, grants: Sequence[ReportedNriGrant] | None) -> NriState:
    """What the policy has granted; raises UnknownPolicyError."""
    if grants is None:
        raise UnknownPolicyError(f"{NRI}.grants", "not known")
    try:
        return NriState(observe(policy.setup, map(_observed, grants)))
    except ObservedGrantError as error:
        raise UnknownPolicyError(f"{NRI}.grants", str(error)) from None


def _policy(machine: NriMachine, config: PolicyConfig, doubts: tuple[str, ...]) -> NriRuntime:
    digest = _digest_of(machine, config, doubts)
    return _POLICIES.of(digest, lambda: NriRuntime(set_up(discover(machine), config), digest, doubts))


def _digest_of(machine: NriMachine, config: PolicyConfig, doubts: tuple[str, ...]) -> str:
    """SHA-256, equal for equal parameters. A cache is hashed once, even if many CPUs share it."""
    numbers: dict[Cache, int] = {}
    caches = [[numbers.setdefault(cache, len(numbers)) for cache in cpu.caches] for cpu in machine.cpus]
    bare = replace(machine, cpus=tuple(replace(cpu, caches=()) for cpu in machine.cpus))
    return hashlib.sha256(repr((bare, caches, list(numbers), config, doubts)).encode()).hexdigest()


def _observed(grant: ReportedNriGrant) -> ObservedGrant:
    return ObservedGrant(
        grant=Grant(
            container=grant.container_id,
            pool=NO_POOL,
            cpu_type=CPUType(grant.cpu_type),
            exclusive=parse_list(grant.exclusive),
            portion=grant.millicpu,
            memory_nodes=grant.memory_nodes,
            memory_types=grant.memory_types,
            memory_bytes=grant.memory_bytes,
        ),
        pod_uid=grant.pod_uid,
        namespace=grant.namespace,
        pod_name=grant.pod,
        container=grant.container,
        qos=QoS(grant.qos),
        requests_cpu=grant.requests_cpu,
        pool=grant.pool,
        pod_labels=_labels(grant.pod_labels),
        labels=_labels(grant.labels),
    )


def _labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels without those that a kubelet sets. These contain ids, so that no two nodes would be equal."""
    return tuple(sorted((key, text) for key, text in labels.items() if not key.startswith(KUBELET_LABELS)))
