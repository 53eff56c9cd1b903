"""Memory hints and allocation by NUMA node.

Rules of this file
- Memory has no ids, so there is always an answer. The usual case, one NUMA node with room and outside any group, is
  decided from integers here; every other case by `memory_manager` itself.
- Containers that were allocated in the usual way are allocated again by `memory_manager` when it is needed.

Mirrors: `extender.kubelet.memory_manager`.
"""

from collections.abc import Mapping

from extender.kubelet import memory_manager
from extender.kubelet.budget import Budget
from extender.kubelet.hints import Hints, KubeletPanicError
from extender.kubelet.pod import INT64_MAX, ContainerRequest, PodRequest
from extender.kubelet.state import MemoryState
from extender.kubelet.verdict import Provider, Reason, Refusal
from extender.replay.coarse.amounts import FreeAmounts, memory_amounts
from extender.replay.coarse.verdict import CoarseRefusalError, IdsDecideError

Request = Mapping[str, int]


class MemoryWalk:
    """The memory of one node while a pod is admitted."""

    __slots__ = ("_amounts", "_bytes", "_later", "_pod", "_reusable", "_state")

    def __init__(self, amounts: FreeAmounts, pod: PodRequest) -> None:
        self._amounts = amounts
        self._pod = pod
        self._bytes = amounts.bytes
        self._reusable: dict[tuple[int, str], int] = {}
        """Bytes that later containers may take over, by (raw mask, type), as `memory_manager` keeps them."""
        self._state: MemoryState = amounts.memory
        self._later: list[tuple[ContainerRequest, int]] = []
        """Containers that `_bytes` knows of and `_state` does not yet, and their single NUMA nodes as raw masks."""

    def taken(self) -> dict[str, tuple[int, ...]]:
        """What the pod took by now, by type and NUMA node."""
        before, now = self._amounts.bytes.free, self._bytes.free
        return {
            name: tuple(was - left for was, left in zip(before[name], now[name], strict=True))
            for name in before
            if before[name] != now[name]
        }

    @property
    def grouped(self) -> int:
        """The NUMA nodes in groups now, as a raw mask."""
        return self._bytes.grouped

    def opinion(self, request: Request, budget: Budget) -> tuple[bool, int] | None:
        """Whether the hardware can serve the request from one NUMA node, and the raw mask of nodes that can now.

        None: no opinion, which is also the answer where no set of NUMA nodes has room.
        Source: `memory_manager.calculate_hints`.

        Raises:
            CoarseRefusalError: the kubelet panics, because a NUMA node has no such memory.
        """
        if not request:
            return None
        if max(request.values()) > INT64_MAX:
            raise IdsDecideError
        fits, able = self._single_nodes(request)
        if able or self._has_wide_room(request, budget):
            return fits, able
        return None

    def _single_nodes(self, request: Request) -> tuple[bool, int]:
        known = self._bytes
        for name in request:
            if name not in known.free:
                raise CoarseRefusalError(Reason.KUBELET_PANIC, Provider.MEMORY, name)
        fits, able = False, 0
        amounts = [(name, wanted, known.free[name], known.allocatable[name]) for name, wanted in request.items()]
        reusable = self._reusable
        for position, numa in enumerate(self._amounts.kubelet.machine.numa_ids):
            bit = 1 << numa
            if any(allocatable[position] < wanted for _, wanted, _, allocatable in amounts):
                continue
            fits = True
            if bit & known.grouped:
                continue
            if all(f[position] >= w or f[position] + reusable.get((bit, n), 0) >= w for n, w, f, _ in amounts):
                able |= bit
        return fits or len(self._amounts.kubelet.machine.numa_ids) == 1, able

    def _has_wide_room(self, request: Request, budget: Budget) -> bool:
        """Whether several NUMA nodes together have room; no single one has."""
        known = self._bytes
        if known.grouped or self._reusable:
            return self.hints(request, budget) is not None
        numa_ids = self._amounts.kubelet.machine.numa_ids
        open_nodes = [i for i, numa in enumerate(numa_ids) if not known.in_use >> numa & 1]
        return len(open_nodes) > 1 and all(
            sum(amounts[name][i] for i in open_nodes) >= wanted
            for name, wanted in request.items()
            for amounts in (known.free, known.allocatable)
        )

    def hints(self, request: Request, budget: Budget) -> Hints | None:
        """The hints in full."""
        state = self._current(budget)
        return memory_manager.calculate_hints(state, request, state.reusable_by(self._pod.uid), budget)

    def allocate(self, container: ContainerRequest, affinity: int | None, budget: Budget, *, preferred: bool) -> int:
        """Take the memory of one container. Returns its NUMA nodes as a raw mask, 0 for none.

        Source: `memory_manager.allocate`.

        Raises:
            CoarseRefusalError: there is no room under this affinity, or the kubelet panics.
        """
        kubelet, request = self._amounts.kubelet, container.memory_bytes
        if not kubelet.memory_static or request is None:
            return 0
        if not request and kubelet.rules.empty_memory_request_skipped:
            return 0
        is_single = affinity is not None and affinity & (affinity - 1) == 0
        if affinity is not None and is_single and request and request.keys() <= self._bytes.free.keys():
            _, able = self._single_nodes(request)
            if able & affinity:
                self._take_from_one(container, request, affinity)
                return affinity
        return self._allocate_in_full(container, affinity, budget, preferred=preferred)

    def _take_from_one(self, container: ContainerRequest, request: Request, mask: int) -> None:
        position = self._amounts.kubelet.machine.numa_ids.index(mask.bit_length() - 1)
        free = dict(self._bytes.free)
        for name, wanted in request.items():
            reusable = self._reusable.get((mask, name), 0)
            row = free[name]
            left = row[position] - max(0, wanted - reusable)
            free[name] = (*row[:position], left, *row[position + 1 :])
            self._reusable[mask, name] = max(reusable, wanted) if container.reusable else max(0, reusable - wanted)
        self._bytes = self._bytes._replace(free=free, in_use=self._bytes.in_use | mask)
        self._later.append((container, mask))

    def _allocate_in_full(
        self, container: ContainerRequest, affinity: int | None, budget: Budget, *, preferred: bool
    ) -> int:
        kubelet, pod = self._amounts.kubelet, self._pod
        try:
            state = memory_manager.allocate(
                kubelet, self._current(budget), pod, container, affinity, budget, preferred=preferred
            )
        except Refusal as refusal:
            raise CoarseRefusalError(refusal.reason, refusal.provider, refusal.resource) from None
        except KubeletPanicError as panic:
            raise CoarseRefusalError(Reason.KUBELET_PANIC, Provider.MEMORY, panic.missing) from None
        if not (container.memory_bytes or {}).keys() <= self._bytes.free.keys():
            raise IdsDecideError  # a type that not every NUMA node has: the amounts do not count it
        self._state = state
        self._bytes = memory_amounts(state.nodes)
        self._reusable = dict(state.reusable_by(pod.uid))
        mask = 0
        for block in state.entries[pod.uid][container.name]:
            mask |= block.mask
        return mask

    def _current(self, budget: Budget) -> MemoryState:
        kubelet = self._amounts.kubelet
        for container, mask in self._later:
            self._state = memory_manager.allocate(
                kubelet, self._state, self._pod, container, mask, budget, preferred=True
            )
        self._later.clear()
        return self._state
