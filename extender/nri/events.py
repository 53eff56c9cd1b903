"""A node with the policy, and the effects of the runtime's events.

A `Node` is a value: every event returns a new one. The policy's answer is an `NriOutcome`.

Mirrors: `pkg/resmgr/nri.go` (RunPodSandbox, CreateContainer, UpdateContainer, StopContainer, RemoveContainer,
RemovePodSandbox) and `policy/topology-aware-policy.go` (Setup, AllocateResources, UpdateResources, ReleaseResources). A
restart of the plugin, and a new configuration, are in `reconfigure`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from extender.kubelet.budget import MAX_STEPS, Budget
from extender.nri.books import Books, Grant, Setup
from extender.nri.config import LEVELS, PolicyConfig, PolicyStartError, divide_cpus
from extender.nri.cpu_allocator import CPUTopology
from extender.nri.estimates import estimate, resized
from extender.nri.hints import container_hints
from extender.nri.machine import PMEM
from extender.nri.objects import NO_HINTS, ContainerDevice, NriContainer, NriHint, NriPod, RuntimeResources
from extender.nri.pinning import Pins, Updates, apply_grant, update_shared, widen_memory
from extender.nri.placing import place, release
from extender.nri.pools import build_pools
from extender.nri.text import PatternError, regex_of
from extender.nri.verdict import NriRefusal, RefusalError

_STEPS_OF_A_GRANT: Final = 3
"""Steps that a new grant costs for each grant before it: the books are copied, and all shared CPUs pinned again."""


@dataclass(frozen=True, slots=True)
class NewContainer:
    """What a runtime passes with the creation of a container. *wildcard_rule*: see `hints.container_hints`."""

    id: str
    pod_id: str
    name: str
    resources: RuntimeResources
    oom_score_adj: int
    devices: Sequence[ContainerDevice] = ()
    wildcard_rule: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NriOutcome:
    """The result of an event.

    `refusal` and `reason`: None and "" if it succeeded. `grant`: what the container of the event got. `pins`:
    the settings of a created container. `updates`: the changed values of each container that gets an update.
    """

    refusal: NriRefusal | None = None
    reason: str = ""
    grant: Grant | None = None
    pins: Pins | None = None
    updates: Mapping[str, Pins] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A node with the policy running.

    `running`: the container that holds each full name; `failed`: containers whose creation was refused; `stopped`:
    containers of the cache that were stopped.
    """

    books: Books
    updates: Updates
    running: Mapping[str, str]
    failed: frozenset[str]
    stopped: frozenset[str]


def set_up(topology: CPUTopology, config: PolicyConfig) -> Setup:
    """*config* applied to a machine.

    Raises:
        PolicyStartError: the policy refuses it.
    """
    share = divide_cpus(config, topology)
    tree = build_pools(topology.machine, share)
    try:
        for pattern in config.controllable_interrupts:
            regex_of(pattern)
    except PatternError:
        raise PolicyStartError("controllableInterrupts has a malformed pattern") from None
    return Setup(
        config=config,
        topology=topology,
        share=share,
        tree=tree,
        unlimited_burstable=tree.existing_level(LEVELS.get(config.unlimited_burstable, 0)),
        cold_start_off=any(node.type == PMEM and not node.is_normal for node in topology.machine.nodes),
    )


def start(setup: Setup) -> Node:
    """A node on which the policy manages no container yet."""
    return Node(Books(setup, Budget(MAX_STEPS)), Updates(), {}, frozenset(), frozenset())


def _work_on(node: Node, budget: Budget | None) -> tuple[Books, Updates]:
    return node.books.copy(budget or Budget(MAX_STEPS)), node.updates.copy()


def run_pod(node: Node, pod: NriPod) -> Node:
    """RunPodSandbox: the pod enters the cache."""
    books, updates = _work_on(node, None)
    books.pods[pod.id] = pod
    return replace(node, books=books, updates=updates)


def remove_pod(node: Node, pod_id: str) -> Node:
    """RemovePodSandbox: the pod leaves the cache. Its containers keep their grants."""
    books, updates = _work_on(node, None)
    books.pods.pop(pod_id, None)
    return replace(node, books=books, updates=updates)


def create(node: Node, new: NewContainer, budget: Budget | None = None) -> tuple[Node, NriOutcome]:
    """CreateContainer, and StartContainer where it succeeds.

    Raises:
        BudgetError: the decision takes more steps than *budget* has.
    """
    books, updates = _work_on(node, budget)
    books.budget.spend(_STEPS_OF_A_GRANT * len(books.grants))
    pod = books.pods.get(new.pod_id)
    if pod is None:
        # The plugin formats an error about a container that it does not have (`cache.go` InsertContainer).
        return node, NriOutcome(NriRefusal.PANIC, f"pod {new.pod_id} is unknown: the plugin ends")
    container = container_of(books, pod, new)
    books.containers[container.id] = container
    running = dict(node.running)
    stopped = node.stopped
    stale = running.pop(container.full_name, None)
    if stale is not None:
        _release(books, updates, stale)
        stopped |= {stale}
    try:
        grant = allocate(books, updates, container)
    except RefusalError as error:
        failed = node.failed | {container.id}
        if container.id not in books.grants:
            del books.containers[container.id]
        return Node(books, updates, running, failed, stopped), NriOutcome(error.refusal, error.reason)
    pins = updates.send(container.id)
    sent = updates.send_all()
    running[container.full_name] = container.id
    return Node(books, updates, running, node.failed, stopped), NriOutcome(grant=grant, pins=pins, updates=sent)


def container_of(books: Books, pod: NriPod, new: NewContainer) -> NriContainer:
    """*new* as the plugin's cache holds it, with its hints."""
    machine = books.setup.topology.machine
    hints = container_hints(machine, pod, new.name, new.devices, books.budget, wildcard_rule=new.wildcard_rule)
    return cached(pod, new, machine.memory_total_bytes, hints)


def cached(
    pod: NriPod, new: NewContainer, memory_total_bytes: int, hints: Mapping[str, NriHint] = NO_HINTS
) -> NriContainer:
    """*new* with the requests and limits that its annotation has, or that the plugin estimates."""
    annotated = pod.annotated_resources.get(new.name)
    return NriContainer(
        id=new.id,
        pod_id=pod.id,
        name=new.name,
        created=new.resources,
        oom_score_adj=new.oom_score_adj,
        requirements=annotated or estimate(new.resources, pod.qos, new.oom_score_adj, memory_total_bytes),
        updates=None,
        hints=hints,
        full_name=f"{pod.namespace}/{pod.name}/{new.name}",
        labels=new.labels,
    )


def allocate(books: Books, updates: Updates, container: NriContainer, old_pool: str = "") -> Grant:
    """Place *container* and pin it; raises RefusalError."""
    moves = place(books, container, old_pool)
    widen_memory(books, updates, moves)
    grant = books.grants[container.id]
    apply_grant(books, updates, grant)
    update_shared(books, updates, grant)
    return grant


def _release(books: Books, updates: Updates, container: str) -> Grant | None:
    grant = release(books, container)
    if grant is not None:
        update_shared(books, updates, grant)
    return grant


def resize(
    node: Node, container_id: str, resources: RuntimeResources, budget: Budget | None = None
) -> tuple[Node, NriOutcome]:
    """UpdateContainer: release and place again in the same pool, unless the policy sees no change.

    After a refusal the container has no grant any more.
    """
    books, updates = _work_on(node, budget)
    container = books.containers.get(container_id)
    if container is None or container_id in books.uncached:
        return node, NriOutcome(NriRefusal.NO_CONTAINER, f"container {container_id} is not known")
    total = books.setup.topology.machine.memory_total_bytes
    new, changed = resized(container, resources, books.qos(container), total)
    container = replace(container, updates=new)
    books.containers[container_id] = container
    if changed:
        old = _release(books, updates, container_id)
        old_pool = "" if old is None else books.setup.tree.pools[old.pool].name
        try:
            allocate(books, updates, container, old_pool)
        except RefusalError as error:
            return replace(node, books=books, updates=updates), NriOutcome(error.refusal, error.reason)
    else:
        updates.repeat(container_id, Pins(shares=container.created.cpu_shares))
    sent = updates.send_all()
    return replace(node, books=books, updates=updates), NriOutcome(grant=books.grants.get(container_id), updates=sent)


def stop(node: Node, container_id: str) -> tuple[Node, NriOutcome]:
    """StopContainer: the grant is released."""
    books, updates = _work_on(node, None)
    container = books.containers.get(container_id)
    if container is None or container_id in books.uncached:
        return node, NriOutcome()
    running = {name: id_ for name, id_ in node.running.items() if id_ != container_id}
    _release(books, updates, container_id)
    sent = updates.send_all(skip=container_id)
    return Node(books, updates, running, node.failed, node.stopped | {container_id}), NriOutcome(updates=sent)


def remove(node: Node, container_id: str) -> Node:
    """RemoveContainer: the container leaves the cache. A grant that it still has remains."""
    books, updates = _work_on(node, None)
    updates.forget(container_id)
    if container_id in books.grants:
        books.uncached.add(container_id)
    else:
        books.containers.pop(container_id, None)
    return Node(books, updates, node.running, node.failed, node.stopped - {container_id})
