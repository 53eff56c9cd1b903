"""A node's grants as one part of the state that the kubelet's replay carries along.

Rules of this file
- Values: every method returns a new one, and a state without a change is the same object.
- `key` is equal for states that answer every new pod alike, whichever containers hold the grants. Ids and names of pods
  are not in it. Affinities of a pod can select by them; such a pod's verdict is never certain
  (`NriPodRequest.names_others`).
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace

from extender.kubelet.budget import MAX_STEPS, Budget
from extender.kubelet.errors import BudgetError
from extender.nri.admission import (
    Granted,
    NriContainerKind,
    NriVerdict,
    PlacedContainer,
    UnplacedContainer,
    in_order,
    place_pod,
)
from extender.nri.affinity import names_others
from extender.nri.books import Books, Grant, Setup
from extender.nri.events import Node
from extender.nri.machine import PRESERVE_MEMORY
from extender.nri.objects import NriPod, QoS
from extender.nri.pinning import NOTHING
from extender.nri.placing import remove_all
from extender.nri.requests import names_interrupts


class ExcessError(BudgetError):
    """A field is too long to be read; the message names it."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NriPolicy:
    """The policy of a node. `digest`: equal for equal machines with equal configurations.

    `doubts`: reasons, for people, why the node's plugin may decide otherwise than the replay. Then no verdict on a pod
    that the kubelet admits is certain. Empty: none is known.
    """

    setup: Setup
    digest: str
    doubts: tuple[str, ...] = ()

    def nodes_of(self, grant: Grant) -> int:
        """The NUMA nodes of a grant's memory and CPUs. A grant without CPUs of its own has those of its pool."""
        pool, machine = self.setup.tree.pools[grant.pool], self.setup.topology.machine
        cpus = grant.exclusive or pool.sharable | pool.reserved
        return grant.memory_nodes | sum(1 << node.id for node in machine.nodes if node.cpus & cpus)


@dataclass(frozen=True, slots=True)
class NriPodRequest:
    """A pod as the policy sees it, with its containers in the order of the spec.

    `kept_excess`: `excess` of its `Metadata`.
    """

    pod: NriPod
    containers: tuple[UnplacedContainer, ...]
    kept_excess: str = ""

    @property
    def excess(self) -> str:
        """Which field of the pod is too long to be read, as a sentence; "": none. Parses its annotations."""
        return self.kept_excess or self.pod.late.parsed.excess

    @property
    def takes_no_whole_cpus(self) -> bool:
        """Whether no container gets exclusive CPUs, whatever the configuration says."""
        is_guaranteed = self.pod.qos is QoS.GUARANTEED and any(c.cpu_request_milli >= 1000 for c in self.containers)
        return not (self.pod.annotations or self.kept_excess or is_guaranteed)

    @property
    def names_interrupts(self) -> bool:
        """Whether the policy looks for interrupts of the machine that a container names."""
        return any(names_interrupts(self.pod, container.name) for container in self.containers)

    @property
    def names_others(self) -> bool:
        """Whether its placement depends on the names or ids of other pods."""
        return names_others(self.pod)


class NriState:
    """The grants on a node. `node`: the node as the policy sees it."""

    __slots__ = ("_held", "_key", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._key: _Key | None = None
        self._held: Mapping[str, Mapping[str, Granted]] | None = None

    def __reduce__(self) -> tuple[type["NriState"], tuple[Node]]:
        """Only the node goes to other processes: all else follows from it."""
        return NriState, (self.node,)

    @property
    def key(self) -> Hashable:
        """What decides about later creations: the grants without ids and names of pods."""
        if self._key is None:
            self._key = _Key(_key_of(self.node.books))
        return self._key

    @property
    def pod_uids(self) -> frozenset[str]:
        """The pods that hold a grant; "" stands for all that the plugin no longer knows."""
        return frozenset(self._by_pod) - {""}

    def held_by(self, uid: str) -> Mapping[str, Granted]:
        """What containers of a pod hold, by their names."""
        return self._by_pod.get(uid, {})

    @property
    def _by_pod(self) -> Mapping[str, Mapping[str, Granted]]:
        """What containers hold, by pod and name. Computed once: asking for each pod must not cost all grants."""
        if self._held is None:
            books, held = self.node.books, dict[str, dict[str, Granted]]()
            for id_, grant in books.grants.items():
                container, pool = books.containers[id_], books.setup.tree.pools[grant.pool]
                held.setdefault(container.pod_id, {})[container.name] = pool.name, grant.exclusive, grant.portion
            self._held = held
        return self._held

    def pinned(self, uid: str) -> dict[str, tuple[int, int]]:
        """(exclusive CPUs, memory nodes) of containers of a pod with exclusive CPUs, by their names; 0: not pinned."""
        books = self.node.books
        config = books.setup.config
        return {
            books.containers[id_].name: (
                grant.exclusive,
                grant.memory_nodes if config.pin_memory and grant.memory_types != PRESERVE_MEMORY else 0,
            )
            for id_, grant in books.grants.items()
            if config.pin_cpu and grant.exclusive and books.containers[id_].pod_id == uid
        }

    def release(self, uids: Collection[str]) -> "NriState":
        """The state after the containers of these pods have stopped and are removed."""
        held = self.pod_uids.intersection(uids)
        if not held:
            return self
        books = self.node.books.copy(Budget(MAX_STEPS))
        gone = [id_ for id_, container in books.containers.items() if container.pod_id in held]
        remove_all(books, gone)
        for uid in held:
            books.pods.pop(uid, None)
        running = {name: id_ for name, id_ in self.node.running.items() if id_ in books.containers}
        return NriState(Node(books, self.node.updates, running, frozenset(), self.node.stopped - set(gone)))

    def admit(self, pod: NriPodRequest, budget: Budget) -> tuple[NriVerdict, "NriState"]:
        """The containers of *pod* created, and the state after the last one that was.

        Containers of the pod that hold a grant keep it; init containers are gone before the others come. A container is
        never taken for an older one of the same name. The plugin does that only if a runtime creates a container again.

        Raises:
            BudgetError: the replay takes more steps than *budget* has.
        """
        budget.spend(pod.pod.late.steps)
        if excess := pod.excess:
            raise ExcessError(excess)
        held = self._placed(pod)
        before = self._without_inits(pod)
        verdict = place_pod(before.node, pod.pod, _missing(pod, held), budget)
        return replace(verdict, placed=(*held.values(), *verdict.placed)), NriState(verdict.node)

    def init_phases(self, pod: NriPodRequest, budget: Budget) -> "list[NriState]":
        """The states in which an init container of *pod* runs, in order, as far as they are created.

        Raises:
            BudgetError: the replay takes more steps than *budget* has.
        """
        phases, before, start = [], list[UnplacedContainer](), self._without_inits(pod)
        for container in in_order(_missing(pod, self._placed(pod))):
            if container.kind is NriContainerKind.INIT:
                running = replace(container, kind=NriContainerKind.SIDECAR)
                phases.append(NriState(place_pod(start.node, pod.pod, [*before, running], budget).node))
            before.append(container)
        return phases

    def _placed(self, pod: NriPodRequest) -> dict[str, PlacedContainer]:
        """The containers of *pod* that hold a grant and are no init containers, by name."""
        books, kinds = self.node.books, {c.name: c.kind for c in pod.containers}
        found = {}
        for id_, grant in books.grants.items():
            container = books.containers[id_]
            kind = kinds.get(container.name, NriContainerKind.INIT)
            if container.pod_id == pod.pod.id and kind is not NriContainerKind.INIT:
                pool = books.setup.tree.pools[grant.pool].name
                found[container.name] = PlacedContainer(container.name, kind, pool, grant, NOTHING, ())
        return found

    def _without_inits(self, pod: NriPodRequest) -> "NriState":
        """The state without init containers of *pod*, and without names of running containers."""
        inits = {c.name for c in pod.containers if c.kind is NriContainerKind.INIT}
        books = self.node.books
        gone = [i for i, c in books.containers.items() if c.pod_id == pod.pod.id and c.name in inits]
        if gone:
            books = books.copy(Budget(MAX_STEPS))
            remove_all(books, gone)
        return NriState(replace(self.node, books=books, running={}))


def _missing(pod: NriPodRequest, held: Collection[str]) -> list[UnplacedContainer]:
    """The containers that are still to be created: no init container once an app container holds a grant."""
    has_begun = any(c.name in held and c.kind is NriContainerKind.APP for c in pod.containers)
    return [c for c in pod.containers if c.name not in held and not (has_begun and c.kind is NriContainerKind.INIT)]


class _Key:
    """A key whose hash is computed once: it has a row for each grant."""

    __slots__ = ("_hash", "_rows")

    def __init__(self, rows: Hashable) -> None:
        self._rows = rows
        self._hash = hash(rows)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._hash == other._hash and self._rows == other._rows


def _key_of(books: Books) -> Hashable:
    """Among memory requests of equal size and priority the youngest one moves first, so their order matters."""
    rows = []
    for id_, grant in books.grants.items():
        container, request = books.containers[id_], books.memory.requests.get(id_)
        pod = books.pods.get(container.pod_id)
        facts = (
            grant.pool, grant.cpu_type, grant.exclusive, grant.portion, grant.memory_nodes, grant.memory_types,
            books.qos(container), bool(container.resources.requests.get("cpu")), container.name,
            tuple(container.labels.items()),
            None if pod is None else (pod.namespace, tuple(pod.labels.items())),
        )  # fmt: skip
        order = (grant.memory_bytes, request.priority, request.age) if request else (grant.memory_bytes, -1, 0)
        rows.append((order, facts))
    rows.sort(key=lambda row: row[0])
    return tuple((size, facts) for (size, _, _), facts in rows), frozenset(books.memory.zones.items())
