"""The Topology Manager: its scopes, which collect hints and allocate, and its policies, which merge and admit.

Rules of this file
- Providers give hints and allocate in the order device, CPU, memory. Containers come in the order init (with sidecars),
  app.
- Nothing is rolled back here: a refusal is raised, and `admission` releases what was taken.

Mirrors: kubelet `cm/topologymanager/scope_{none,container,pod}.go` and
`policy_{none,best_effort,restricted,single_numa_node}.go`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from extender.kubelet import cpu_manager, device_manager, memory_manager, pod_level
from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.device_manager import Choices
from extender.kubelet.errors import KubeletPanicError
from extender.kubelet.hints import NIL_DEFAULT_MASK, Distances, Hints, TopologyHint, merge
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerRequest, PodRequest
from extender.kubelet.sets import format_list
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Allocated, HintRecord, HintsOffered, Merged, Provider, Reason, Refusal, Trace


class Decision(NamedTuple):
    """The result of one merge under a policy. `hint.affinity` None means any node. `why` is for explanations."""

    hint: TopologyHint
    admitted: bool
    why: str


def decide(
    policy: TopologyPolicy,
    lists: Sequence[Hints],
    default_mask: int,
    distances: Distances | None,
    budget: Budget = UNLIMITED,
    *,
    shows_refused: bool = False,
) -> Decision:
    """Merge the hints of all resources that have a preference and apply the policy's admit rule.

    The mask of a hint that is not admitted is the kubelet's only with *shows_refused*. Nothing in an admission depends
    on that mask, and it takes most of the time of a merge. Policy none never calls this: it takes no hints.
    """
    if policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return _single_numa_node(lists, default_mask, budget, shows_refused=shows_refused)
    # Distances of masks can crash the kubelet, so with these every mask is looked at.
    preferred_only = policy is TopologyPolicy.RESTRICTED and distances is None and not shows_refused
    hint, why = merge(lists, default_mask, distances, budget, preferred_only=preferred_only)
    return Decision(hint, policy is TopologyPolicy.BEST_EFFORT or hint.preferred, why)


def _single_numa_node(lists: Sequence[Hints], default_mask: int, budget: Budget, *, shows_refused: bool) -> Decision:
    """Only preferred single-node masks count. An affinity to the whole machine is stored as "any node".

    Distances are not used: the merger of this policy is created without them.
    """
    narrowed = []
    for hints in lists:
        single = hints.preferred & hints.universe.by_width[1] if hints.preferred else 0
        if not single:
            return Decision(TopologyHint(None, preferred=False), admitted=False, why="a resource fits no single node")
        narrowed.append(Hints(hints.universe, single, single))
    hint, why = merge(narrowed, default_mask, None, budget, preferred_only=not shows_refused)
    affinity = None if hint.affinity == default_mask else hint.affinity
    return Decision(TopologyHint(affinity, hint.preferred), hint.preferred, why)


ANY_NODE = TopologyHint(None, preferred=False)
"""The affinity of containers if no Topology Manager policy is set."""

_STEPS_OF_A_CONTAINER: Final = 10

Offers = Mapping[Provider, Mapping[str, Hints | None]]


@dataclass(slots=True)
class Walk:
    """One admission in progress. After a refusal `admission` reads here what was allocated.

    `state` and `affinities` are replaced step by step. `container` is the current one, None in pod-wide steps.
    """

    kubelet: Kubelet
    pod: PodRequest
    state: ManagerState
    affinities: dict[str, TopologyHint]
    choices: Choices
    trace: Trace
    budget: Budget
    container: str | None = None


def admit_by_scope(walk: Walk) -> None:
    """Run the configured scope.

    Raises:
        Refusal: the pod is not admitted; `walk.state` has what was allocated before that.
    """
    if walk.kubelet.policy is TopologyPolicy.NONE:
        _admit_without_policy(walk)
    elif walk.kubelet.scope is Scope.POD:
        _admit_by_pod(walk)
    else:
        _admit_by_container(walk)


def _admit_without_policy(walk: Walk) -> None:
    for container in walk.pod.containers:
        walk.affinities[container.name] = ANY_NODE
        _allocate(walk, container, ANY_NODE)


def _admit_by_container(walk: Walk) -> None:
    for container in walk.pod.containers:
        walk.container = container.name
        # 1. Collect hints for this container on the state after the containers before it, and merge them
        # (calculateAffinity).
        state, pod, kubelet, budget = walk.state, walk.pod, walk.kubelet, walk.budget
        hint = _merge(
            walk,
            {
                Provider.DEVICE: device_manager.container_hints(kubelet, state.devices, pod, container, budget)
                if container.devices
                else {},
                Provider.CPU: {"cpu": cpu_manager.container_hints(kubelet, state.cpu, pod, container, budget)},
                Provider.MEMORY: memory_manager.container_hints(kubelet, state.memory, pod, container, budget),
            },
            _wanted(container.cpus, container.memory_bytes or {}, container.devices),
        )
        # 2. Store the affinity, then allocate under it before the next container is looked at
        # (allocateAlignedResources).
        walk.affinities[container.name] = hint
        _allocate(walk, container, hint)


def _admit_by_pod(walk: Walk) -> None:
    # 1. One merge for the whole pod (calculateAffinity).
    state, pod, kubelet, budget = walk.state, walk.pod, walk.kubelet, walk.budget
    hint = _merge(
        walk,
        {
            Provider.DEVICE: device_manager.pod_hints(kubelet, state.devices, pod, budget),
            Provider.CPU: {"cpu": pod_level.checked_cpu_hints(kubelet, state.cpu, pod, budget)},
            Provider.MEMORY: pod_level.checked_memory_hints(kubelet, state.memory, pod, budget),
        },
        _wanted(pod.total_cpus, pod.total_memory_bytes, pod.total_devices),
    )
    # 2. Pod-level resources: the pod gets its CPUs and memory as a whole, and its containers share them.
    if pod.pod_level is not None:
        walk.affinities.update(dict.fromkeys((c.name for c in pod.containers), hint))
        walk.state = replace(walk.state, cpu=pod_level.take_bubble(kubelet, state.cpu, pod, hint.affinity, budget))
        walk.state = replace(walk.state, cpu=pod_level.share_out_cpus(kubelet, walk.state.cpu, pod, budget))
        walk.state = replace(walk.state, memory=pod_level.allocate_memory(kubelet, state.memory, pod, hint, budget))
        return
    # 3. Otherwise allocate container by container, all under the same affinity.
    for container in pod.containers:
        walk.affinities[container.name] = hint
        _allocate(walk, container, hint)


def _wanted(cpus: int, memory_bytes: Mapping[str, int], devices: Mapping[str, int]) -> dict[str, int]:
    return {"cpu": cpus, **memory_bytes, **devices}


def _merge(walk: Walk, offers: Offers, wanted: Mapping[str, int]) -> TopologyHint:
    """Merge all offers under the policy. Source: scope_container.go and scope_pod.go, calculateAffinity."""
    kubelet = walk.kubelet
    # 1. The kubelet crashes if it cannot build the mask of all nodes.
    if kubelet.crashes_on_any_pod:
        raise KubeletPanicError(NIL_DEFAULT_MASK)
    # 2. Merge the hints that express a preference, and let the policy decide.
    lists = [hints for resources in offers.values() for hints in resources.values() if hints is not None]
    decision = decide(
        kubelet.policy,
        lists,
        kubelet.default_mask,
        kubelet.distances,
        walk.budget,
        shows_refused=walk.trace.listening,
    )
    if walk.trace.listening:
        for event in _told(walk, offers, wanted):
            walk.trace.record(event)
        walk.trace.record(
            Merged(
                container=walk.container,
                policy=kubelet.policy,
                affinity=decision.hint.affinity,
                preferred=decision.hint.preferred,
                admitted=decision.admitted,
                why=decision.why,
            )
        )
    # 3. Refuse, or return the affinity to store.
    if not decision.admitted:
        if walk.trace.wants_refused_hints:
            for event in _told(walk, offers, wanted):
                walk.trace.record(event)
        raise _merge_refusal(walk, offers, wanted)
    return decision.hint


def _told(walk: Walk, offers: Offers, wanted: Mapping[str, int]) -> Iterator[HintsOffered]:
    for provider, resources in offers.items():
        for resource, hints in resources.items():
            records = None
            if hints is not None:
                preferred = set(hints.preferred_masks)
                ordered = sorted(hints.masks, key=lambda m: (m.bit_count(), m))
                records = tuple(HintRecord(m, m in preferred) for m in ordered)
            yield HintsOffered(
                container=walk.container,
                provider=provider,
                resource=resource,
                wanted=wanted.get(resource, 0),
                hints=records,
                minimum_width=None if hints is None else hints.minimum_width,
            )


def _merge_refusal(walk: Walk, offers: Offers, wanted: Mapping[str, int]) -> Refusal:
    """The TopologyAffinityError. It names the first resource that could not be preferred even alone.

    If each could be preferred alone but not together, the refusal names the Topology Manager and no resource.
    """
    message = "Resources cannot be allocated with Topology locality"
    if walk.pod.pod_level is not None:
        under = (
            "under pod-scope topology manager"
            if walk.kubelet.scope is Scope.POD
            else "with a container-level topology manager"
        )
        message = f"Pod Scope pod with pod-level resources failed admission {under}"
    single = walk.kubelet.policy is TopologyPolicy.SINGLE_NUMA_NODE
    for provider, resources in offers.items():
        for resource, hints in resources.items():
            if hints is None:
                continue
            if not (hints.preferred & hints.universe.by_width[1] if single and hints.preferred else hints.preferred):
                return Refusal(
                    Reason.TOPOLOGY_AFFINITY,
                    message,
                    provider=provider,
                    resource=resource,
                    wanted=wanted.get(resource),
                )
    return Refusal(Reason.TOPOLOGY_AFFINITY, message, provider=Provider.TOPOLOGY)


def _allocate(walk: Walk, container: ContainerRequest, hint: TopologyHint) -> None:
    """Allocate devices, then CPUs, then memory, each under the stored affinity."""
    walk.container = container.name
    kubelet, pod, affinity, budget = walk.kubelet, walk.pod, hint.affinity, walk.budget
    budget.spend(_STEPS_OF_A_CONTAINER + (len(pod.containers) + len(walk.state.cpu.entries)) // 8)
    cpu, memory, devices = walk.state.cpu, walk.state.memory, walk.state.devices
    try:
        if container.devices:
            devices = device_manager.allocate(devices, pod, container, affinity, walk.choices, budget)
        cpu = cpu_manager.allocate(kubelet, cpu, pod, container, affinity, budget)
        memory = memory_manager.allocate(kubelet, memory, pod, container, affinity, budget, preferred=hint.preferred)
    finally:
        walk.state = ManagerState(cpu=cpu, memory=memory, devices=devices, runtime=walk.state.runtime)
    if walk.trace.listening:
        _tell_allocated(walk, container)


def _tell_allocated(walk: Walk, container: ContainerRequest) -> None:
    uid, name = walk.pod.uid, container.name
    for resource, ids in sorted(walk.state.devices.entries.get(uid, {}).get(name, {}).items()):
        taken = f"{resource}: {', '.join(sorted(ids))}"
        walk.trace.record(Allocated(container=name, provider=Provider.DEVICE, taken=taken))
    if cpus := walk.state.cpu.entries.get(uid, {}).get(name):
        walk.trace.record(Allocated(container=name, provider=Provider.CPU, taken=f"CPUs {format_list(cpus)}"))
    for block in walk.state.memory.entries.get(uid, {}).get(name, ()):
        taken = f"{block.size} bytes of {block.type} on NUMA {format_list(block.mask)}"
        walk.trace.record(Allocated(container=name, provider=Provider.MEMORY, taken=taken))
