"""One decision: the pool, the CPUs and the memory of a container, or why it is refused.

Mirrors: `policy/pools.go` (allocatePool, releasePool) and `policy/resources.go` (Allocate, AllocateCPU,
pickExclusiveCPUs, pickSharedFraction, takeCPUsByHints, verifyStrictPreferences).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from extender.kubelet.sets import format_list
from extender.nri.affinity import AFFINITY_KEYS, affinities, pool_affinities
from extender.nri.books import Books, Grant
from extender.nri.cpu_allocator import take_cpus
from extender.nri.hints import is_from_kubelet, misaligned, resolved
from extender.nri.memory import Offer
from extender.nri.objects import NriContainer, NriHint
from extender.nri.pools import Pool
from extender.nri.requests import CPUType, Request, new_request
from extender.nri.scoring import Order, Score, memory_offer, score_pools
from extender.nri.text import parse_id_list
from extender.nri.verdict import NriRefusal, RefusalError

_CHARACTERS_A_STEP: Final = 2
"""This many characters of annotated affinities are read in about the time of a step."""


def place(books: Books, container: NriContainer, old_pool: str = "") -> dict[str, int]:
    """Grant resources to *container*. Returns the containers whose memory was widened for it, with their new nodes.

    *old_pool*: the name of the pool that a resize or a new configuration keeps.

    Raises: RefusalError: the container is refused, and has no grant.
    """
    setup, pod = books.setup, books.pods.get(container.pod_id)
    if pod is None:
        # The plugin reads annotations without a check (`pod-preferences.go` cpuAllocationPreferences).
        raise RefusalError(NriRefusal.PANIC, f"the pod of {container.full_name} is unknown: the plugin ends")
    machine, root = setup.topology.machine, setup.tree.root
    types, cold_start_off = machine.memory_types, setup.cold_start_off
    request = new_request(pod, container, setup.config, types, books.budget, cold_start_off=cold_start_off)
    if request.cpu_type is CPUType.RESERVED and not root.reserved:
        request = replace(request, cpu_type=CPUType.NORMAL)
    hints = container.hints
    if request.cpu_type is CPUType.NORMAL:
        hints = resolved(hints, machine)
        pool, offer = _choose(books, container, request, hints, old_pool)
    else:
        # The offer here is never one by hints.
        pool = root
        offer = memory_offer(books, pool, container.id, replace(request, pick_by_hints=False), hints)
    if offer is None:
        raise RefusalError(NriRefusal.OFFER, f"no memory for {request.memory_bytes} bytes at {pool.name}")
    grant = _grant_cpus(books, container, request, pool, hints)
    try:
        _verify(books, grant, request, hints)
    except RefusalError:
        books.release_cpus(grant)
        raise
    moves = books.commit_memory(offer)
    books.grants[container.id] = replace(
        grant, memory_nodes=offer.zone, memory_types=request.memory_types, memory_bytes=request.memory_bytes
    )
    return moves


def release(books: Books, container: str) -> Grant | None:
    """Release the grant of *container*. None if it has none."""
    grant = books.grants.pop(container, None)
    if grant is not None:
        books.release_cpus(grant)
        books.memory.release(container)
    return grant


def remove_all(books: Books, containers: Collection[str]) -> None:
    """Take *containers* out of the cache, and release their grants, in one pass over the memory."""
    for container in containers:
        del books.containers[container]
        grant = books.grants.pop(container, None)
        if grant is not None:
            books.release_cpus(grant)
    books.memory.release(*containers)


def _choose(
    books: Books, container: NriContainer, request: Request, hints: Mapping[str, NriHint], old_pool: str
) -> tuple[Pool, Offer | None]:
    scored, order = scored_pools(books, container, request, hints)
    # Two dies with the same NUMA nodes have pools of equal names.
    kept = [score for score in scored if score.pool.name == old_pool]
    best = order.best(kept or scored)
    return best.pool, best.offer


def scored_pools(
    books: Books, container: NriContainer, request: Request, hints: Mapping[str, NriHint]
) -> tuple[list[Score], Order]:
    """The scores of all pools by id, and the order among them; raises RefusalError."""
    placed = [
        (books.containers[id_], books.pods.get(books.containers[id_].pod_id), grant.pool)
        for id_, grant in books.grants.items()
        if id_ not in books.uncached
    ]
    books.budget.spend(len(placed))
    pod = books.pods[container.pod_id]
    books.budget.spend(sum(len(pod.annotations.get(key, "")) for key in AFFINITY_KEYS) // _CHARACTERS_A_STEP)
    own = affinities(pod, container.name, books.setup.config)
    per_pool = pool_affinities(own, container.id, placed, books.budget)
    scored = score_pools(books, container, request, hints, per_pool)
    return scored, Order(books, container, request, has_hints=bool(hints))


def _grant_cpus(
    books: Books, container: NriContainer, request: Request, pool: Pool, hints: Mapping[str, NriHint]
) -> Grant:
    full, fraction, cpu_type = request.full, request.fraction, request.cpu_type
    if cpu_type is CPUType.RESERVED:
        full, fraction = 0, fraction + 1000 * full
        if fraction > 0 and books.allocatable_reserved(pool) < fraction:
            cpu_type = CPUType.NORMAL
    zero_request = books.zero_request_pools()
    exclusive = _exclusive_cpus(books, request, pool, full, hints, books.allocatable(zero_request))
    grant = Grant(container.id, pool.id, cpu_type, exclusive, 0, 0, 0, 0)
    books.take_exclusive(pool, exclusive)
    if fraction > 0:
        if cpu_type is CPUType.NORMAL:
            available = books.allocatable(zero_request)[pool.id]
            if available < fraction:
                books.release_cpus(grant)
                raise RefusalError(
                    NriRefusal.FRACTION,
                    f"{pool.name}: not enough {fraction}m sharable CPU, {available}m available",
                )
        books.book_portion(pool, cpu_type, fraction)
        grant = replace(grant, portion=fraction)
    return grant


def _exclusive_cpus(
    books: Books, request: Request, pool: Pool, count: int, hints: Mapping[str, NriHint], allocatable: list[int]
) -> int:
    isolated = books.isolated[pool.id]
    if request.isolate and isolated.bit_count() >= count:
        return _take(books, request, isolated, count, hints) or 0
    if allocatable[pool.id] < 1000 * count:
        raise RefusalError(
            NriRefusal.SLICE,
            f"{pool.name}: can't slice {count} exclusive CPUs from {format_list(books.sharable[pool.id])}, "
            f"{allocatable[pool.id]}m available",
        )
    if not count:
        return 0
    sliceable = books.sliceable(pool, allocatable)
    taken = _take(books, request, sliceable, count, hints)
    if taken is None:
        raise RefusalError(
            NriRefusal.TAKE, f"{pool.name}: can't take {count} exclusive CPUs from {format_list(sliceable)}"
        )
    return taken


def _take(books: Books, request: Request, free: int, count: int, hints: Mapping[str, NriHint]) -> int | None:
    """*count* CPUs of *free*, near the devices if the container requests that (`resources.go` takeCPUsByHints)."""
    near = [hint for provider, hint in sorted(hints.items()) if is_from_kubelet(provider)]
    if request.pick_by_hints and near and len(near) <= count:
        taken = _take_near(books, request, free, count, near)
        if taken is not None:
            return taken
    return take_cpus(books.setup.topology, free, count, request.priority, books.budget)


def _take_near(books: Books, request: Request, free: int, count: int, hints: list[NriHint]) -> int | None:
    topology = books.setup.topology
    per_hint = count // len(hints) if len(hints) < count and count % len(hints) == 0 else 1
    taken = 0
    for hint in hints:
        cpus = parse_id_list(hint.cpus)
        if cpus is None:
            raise RefusalError(NriRefusal.PANIC, f"the CPUs {hint.cpus!r} of a device hint are malformed")
        picked = take_cpus(topology, free & ~taken & cpus, per_hint, request.priority, books.budget)
        if picked is None:
            return None
        taken |= picked
    rest = count - per_hint * len(hints)
    if rest > 0:
        picked = take_cpus(topology, free & ~taken, rest, request.priority, books.budget)
        if picked is None:
            return None
        taken |= picked
    return taken


def _verify(books: Books, grant: Grant, request: Request, hints: Mapping[str, NriHint]) -> None:
    """Strict hints and strict isolation (`resources.go` verifyStrictTopologyHints, verifyStrictCPUPreferences)."""
    pool, machine = books.setup.tree.pools[grant.pool], books.setup.topology.machine
    granted = [grant.exclusive] if grant.exclusive else []
    if grant.shared_portion:
        granted.append(books.sharable[pool.id])
    if grant.reserved_portion:
        granted.append(pool.reserved)
    for hint in hints.values() if request.strict_hints else ():
        if any(misaligned(hint, cpus, machine) for cpus in granted):
            raise RefusalError(NriRefusal.STRICT_HINT, f"{pool.name}: granted CPUs fail strict hint {hint}")
    if request.strict_isolate and (grant.exclusive & pool.isolated).bit_count() < request.full:
        raise RefusalError(NriRefusal.STRICT_ISOLATION, f"{pool.name}: fewer than {request.full} isolated CPUs granted")
