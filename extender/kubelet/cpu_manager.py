"""The CPU manager's static policy: hints, allocation, reuse inside a pod, release.

Rules of this file
- CPU sets are raw bits. `available` is the shared pool without reserved CPUs.
- Reuse only enlarges the pool that a later container of the pod draws from; reused CPUs are not preferred.
- Under CPU policy none every function here says "no preference" and allocates nothing.

Mirrors: kubelet `cm/cpumanager/policy_static.go` and `cpu_manager.go`.
"""

from dataclasses import replace

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.errors import DistributionHangError, NotEnoughCPUsError
from extender.kubelet.hints import IMPOSSIBLE, NO_PREFERENCE, Hints, walked_universe
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerRequest, PodRequest
from extender.kubelet.sets import Universe, at_least, bits_of
from extender.kubelet.state import CPUState, without
from extender.kubelet.verdict import Provider, Reason, Refusal


def container_hints(
    kubelet: Kubelet, state: CPUState, pod: PodRequest, container: ContainerRequest, budget: Budget = UNLIMITED
) -> Hints | None:
    """Where the container's exclusive CPUs can come from; NO_PREFERENCE for the shared pool.

    Source: policy_static.go, GetTopologyHints.
    """
    if not kubelet.cpu_static or not container.cpus:
        return NO_PREFERENCE
    held = state.entries.get(pod.uid, {}).get(container.name)
    if held is not None:
        if held.bit_count() != container.cpus:
            return IMPOSSIBLE
        return generate_hints(kubelet, held, 0, container.cpus, budget)
    return generate_hints(kubelet, available(kubelet, state), reusable_by(state, pod.uid), container.cpus, budget)


def pod_hints(kubelet: Kubelet, state: CPUState, pod: PodRequest, budget: Budget = UNLIMITED) -> Hints | None:
    """Where the exclusive CPUs of the whole pod can come from.

    Source: policy_static.go, GetPodTopologyHints.
    """
    count = pod.total_cpus if pod.pod_level is None else pod.pod_level.cpus
    if not kubelet.cpu_static or not count:
        return NO_PREFERENCE
    bubble = state.pod_entries.get(pod.uid, 0)
    if bubble and pod.pod_level is not None and kubelet.rules.pod_cpus_restored:
        if bubble.bit_count() != count:
            return IMPOSSIBLE
        return generate_hints(kubelet, bubble, 0, count, budget)
    held_by = state.entries.get(pod.uid, {})
    union = 0
    for c in pod.containers:
        held = held_by.get(c.name)
        if held is None:
            continue
        if held.bit_count() != c.cpus:
            return IMPOSSIBLE
        union |= held
    if union.bit_count() == count:
        return generate_hints(kubelet, union, 0, count, budget)
    return generate_hints(kubelet, available(kubelet, state), reusable_by(state, pod.uid) | union, count, budget)


def available(kubelet: Kubelet, state: CPUState) -> int:
    """CPUs that an exclusive request can get now."""
    return state.default & ~kubelet.reserved_cpus


def generate_hints(
    kubelet: Kubelet, available_cpus: int, reusable_cpus: int, count: int, budget: Budget = UNLIMITED
) -> Hints:
    """Every set of NUMA nodes that holds *count* CPUs, available or reusable.

    A mask is preferred if no narrower one has enough CPUs, whether free, reserved or busy. With align-by-socket it is
    preferred if it spans no more sockets than the narrowest width needs. Reusable CPUs must be inside the mask.

    Source: policy_static.go, generateCPUTopologyHints.
    """
    machine = kubelet.machine
    space = walked_universe(machine.cpu_numa_ids, Provider.CPU)
    budget.spend(len(space.ids) + (space.size >> 6))
    free = tuple([(bits & available_cpus).bit_count() for bits in machine.numa_cpus.values()])
    feasible = at_least(free, count - reusable_cpus.bit_count())
    if reusable_cpus:
        feasible &= space.containing(machine.numa_bits_of_cpus(reusable_cpus))
    width = minimum_width(kubelet, count)
    return Hints.preferring_width(space, feasible, width, also=preferred_by_socket(kubelet, space, width, budget))


def minimum_width(kubelet: Kubelet, count: int) -> int:
    """NUMA nodes that *count* CPUs need on this hardware, whatever is free. All of them if it is never enough."""
    sizes = [bits.bit_count() for bits in kubelet.machine.numa_cpus.values()]
    sizes.sort(reverse=True)
    width = 0
    while count > 0 and width < len(sizes):
        count -= sizes[width]
        width += 1
    return width


def preferred_by_socket(kubelet: Kubelet, space: Universe, width: int, budget: Budget) -> int:
    """With align-by-socket: the family of the masks on as few sockets as *width* nodes need; else none."""
    machine = kubelet.machine
    if not kubelet.cpu_options.align_by_socket or not machine.num_sockets:
        return 0
    numa_per_socket = len(machine.cpu_numa_ids) // machine.num_sockets
    if not numa_per_socket:
        return 0
    sockets = -(-width // numa_per_socket)
    on_sockets = [space.everything, *(0 for _ in range(sockets))]  # families of the masks on 0, 1, 2… sockets
    for position in range(len(machine.socket_cpus)):
        budget.spend(sockets + len(space.ids))
        socket = space.touching(bits_of(i for i, on in machine.numa_sockets.items() if on >> position & 1))
        for count in range(sockets, 0, -1):
            on_sockets[count] = on_sockets[count] & ~socket | on_sockets[count - 1] & socket
        on_sockets[0] &= ~socket
    return on_sockets[sockets]


def allocate(
    kubelet: Kubelet,
    state: CPUState,
    pod: PodRequest,
    container: ContainerRequest,
    affinity: int | None,
    budget: Budget = UNLIMITED,
) -> CPUState:
    """The state after the container got its exclusive CPUs; the same state when it wants none.

    Source: policy_static.go, Allocate and allocateCPUs.

    Raises:
        Refusal: SMTAlignmentError, or UnexpectedAdmissionError with the text of the failed take.
    """
    if not kubelet.cpu_static or not container.cpus:
        return state
    held = state.entries.get(pod.uid, {}).get(container.name)
    if held is None or not kubelet.rules.smt_check_after_held:
        check_smt_alignment(kubelet, state, container.cpus)
    if held is not None:
        return replace(state, reusable=_reusable_after(state, pod, container, held))
    pool = available(kubelet, state) | reusable_by(state, pod.uid)
    cpus = take(kubelet, pool, container.cpus, affinity, budget)
    entries = {**state.entries, pod.uid: {**state.entries.get(pod.uid, {}), container.name: cpus}}
    return CPUState(
        default=state.default & ~cpus,
        entries=entries,
        pod_entries=state.pod_entries,
        reusable=_reusable_after(state, pod, container, cpus),
    )


def check_smt_alignment(kubelet: Kubelet, state: CPUState, count: int) -> None:
    """With full-pcpus-only: whole cores only, and enough of them free. Reusable CPUs do not count.

    Source: policy_static.go, Allocate and SMTAlignmentError.

    Raises:
        Refusal: SMTAlignmentError.
    """
    if not kubelet.cpu_options.full_pcpus_only:
        return
    per_core = kubelet.machine.cpus_per_core
    not_multiple = f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}"
    if count % per_core:
        raise Refusal(Reason.SMT_ALIGNMENT, not_multiple, provider=Provider.CPU, resource="cpu", wanted=count)
    free = (state.default & ~kubelet.reserved_physical_cpus).bit_count()
    if count <= free:
        return
    message = (
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = "
        f"{free}, requested CPUs = {count}, CPUs per core = {per_core}"
    )
    if not free and not kubelet.rules.smt_message_fixed:
        message = not_multiple
    raise Refusal(Reason.SMT_ALIGNMENT, message, provider=Provider.CPU, resource="cpu", wanted=count, had=free)


def take(kubelet: Kubelet, pool: int, count: int, affinity: int | None, budget: Budget = UNLIMITED) -> int:
    """*count* CPUs out of *pool*, those inside the affinity first.

    The affinity bounds only the first step; with align-by-socket it is widened to whole sockets.

    Source: policy_static.go, allocateCPUs and getAlignedCPUs.

    Raises:
        Refusal: UnexpectedAdmissionError, or KubeletHang where the distribution never ends.
    """
    try:
        cpus = 0
        if affinity is not None:
            aligned = pool & _aligned_cpus(kubelet, affinity)
            wanted, nodes = min(count, aligned.bit_count()), affinity.bit_count()
            cpus = kubelet.assignment.take(aligned, wanted, budget, hint_nodes=nodes)
            if cpus.bit_count() >= count:
                return cpus
        return cpus | kubelet.assignment.take(pool & ~cpus, count - cpus.bit_count(), budget)
    except NotEnoughCPUsError as error:  # its message leaves out the CPUs of the first step
        reason, free = Reason.UNEXPECTED_ADMISSION, pool.bit_count()
        message, had = f"Allocate failed due to {error.message}, which is unexpected", free if free < count else None
    except DistributionHangError as hang:
        reason, message, had = Reason.KUBELET_HANG, f"the kubelet would never finish distributing CPUs: {hang}", None
    raise Refusal(reason, message, provider=Provider.CPU, resource="cpu", wanted=count, had=had)


def _aligned_cpus(kubelet: Kubelet, affinity: int) -> int:
    machine = kubelet.machine
    if kubelet.cpu_options.align_by_socket:
        return machine.cpu_bits_in_sockets(machine.socket_bits_in_numa(affinity))
    return machine.cpu_bits_in_numa(affinity)


def reusable_by(state: CPUState, uid: str) -> int:
    """The CPUs that later containers of pod *uid* may take over."""
    return state.reusable[1] if state.reusable[0] == uid else 0


def _reusable_after(state: CPUState, pod: PodRequest, container: ContainerRequest, cpus: int) -> tuple[str, int]:
    """Ordinary init containers leave their CPUs to later containers. Other containers remove theirs from these.

    Source: policy_static.go, updateCPUsToReuse.
    """
    reusable = reusable_by(state, pod.uid)
    return pod.uid, reusable | cpus if container.reusable else reusable & ~cpus


def release(state: CPUState, uid: str) -> CPUState:
    """The state after all CPUs of a pod are released, as by the removal of stale state.

    Source: cpu_manager.go removeStaleState, policy_static.go RemoveContainer.
    """
    if uid not in state.entries:
        return state
    returned = state.pod_entries.get(uid, 0)
    for cpus in state.entries[uid].values():
        returned |= cpus
    return replace(
        state,
        default=state.default | returned,
        entries=without(state.entries, uid),
        pod_entries=without(state.pod_entries, uid),
    )
