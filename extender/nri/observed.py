"""Computes the node that the grants in a plugin's state file make up.

The plugin's state file does not have everything that the plugin knows. Two things are missing: which of two requests
for memory of the same size and priority is older, and empty memory zones that a refused creation has left. They change
no verdict in the recordings (`tests/scheduling/test_nri_nodes.py`).

Mirrors: `policy/cache.go` (cachedGrant), `policy/resources.go` (Reserve).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from extender.kubelet.budget import MAX_STEPS, Budget
from extender.kubelet.sets import format_list
from extender.nri.books import Books, Grant, Setup
from extender.nri.events import Node, start
from extender.nri.memory import BEST_EFFORT
from extender.nri.objects import NriContainer, NriPod, QoS, Resources, RuntimeResources
from extender.nri.pools import Pool
from extender.nri.scoring import MEMORY_PRIORITY

_OBSERVED: Final = "\1"
"""Begins the ids of reported containers, so that none of them is that of a container which is replayed."""
NO_POOL: Final = -1
MAX_ZONES: Final = 512
"""Every new request for memory is compared with each of them. Eight NUMA nodes have 255 zones."""
_NOT_KNOWN: Final = RuntimeResources(0, 0, 0, 0)


class ObservedGrantError(ValueError):
    """The grants contradict the machine, the configuration or each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGrant:
    """A grant of a container, as the plugin wrote it down.

    `grant`: with the id that the plugin has given the container, and `NO_POOL`. `pool`: the name of its pool.
    `pod_uid` "" and `qos` UNKNOWN: the plugin no longer has the pod.
    """

    grant: Grant
    pod_uid: str
    namespace: str
    pod_name: str
    container: str
    qos: QoS
    requests_cpu: bool
    pool: str
    pod_labels: tuple[tuple[str, str], ...] = field(default=())
    labels: tuple[tuple[str, str], ...] = field(default=())

    @property
    def full_name(self) -> str:
        """NAMESPACE/POD/CONTAINER."""
        return f"{self.namespace}/{self.pod_name}/{self.container}"

    @property
    def _facts(self) -> tuple[object, ...]:
        """A sort key without ids. What can be equal on several nodes comes first, and the pod's name last."""
        grant = self.grant
        return (
            grant.memory_bytes, self.qos.value, self.pool, grant.cpu_type.value, grant.exclusive, grant.portion,
            grant.memory_nodes, grant.memory_types, self.requests_cpu, self.namespace, self.container, self.pod_labels,
            self.labels, self.pod_name,
        )  # fmt: skip


def observe(setup: Setup, grants: Iterable[ObservedGrant]) -> Node:
    """The node on which *grants* are all that is granted.

    Raises:
        ObservedGrantError: no plugin with this setup can have granted them.
    """
    node = start(setup)
    books = node.books.copy(Budget(MAX_STEPS))
    running: dict[str, str] = {}
    # The order decides the ages of requests for memory. It is not known; nodes with equal grants get the same one.
    for observed in sorted(grants, key=lambda grant: grant._facts):  # noqa: SLF001 - of this module
        container = _add(books, observed)
        running[container.full_name] = container.id
    _check(books)
    return Node(books, node.updates, running, frozenset(), frozenset())


def _checked_pool(books: Books, observed: ObservedGrant) -> Pool:
    """The pool of the grant.

    Raises:
        ObservedGrantError: there is no such pool, or the grant cannot be one beside those in *books*.
    """
    where, pool, grant = observed.full_name, books.setup.tree.by_name(observed.pool), observed.grant
    if pool is None:
        raise ObservedGrantError(f"{where}: this machine and configuration have no pool {observed.pool!r}")
    if _OBSERVED + grant.container in books.grants:
        raise ObservedGrantError(f"{where}: container {grant.container} has two grants")
    if foreign := grant.exclusive & ~(pool.isolated | pool.sharable):
        raise ObservedGrantError(f"{where}: CPUs {format_list(foreign)} are not CPUs of {pool.name} for containers")
    root = books.setup.tree.root.id
    if twice := grant.exclusive & ~(books.isolated[root] | books.sharable[root]):
        raise ObservedGrantError(f"{where}: CPUs {format_list(twice)} are granted to another container as well")
    if not 0 < grant.memory_nodes < 1 << len(books.setup.topology.machine.nodes):
        raise ObservedGrantError(f"{where}: the machine does not have the memory nodes {grant.memory_nodes:#x}")
    return pool


def _add(books: Books, observed: ObservedGrant) -> NriContainer:
    """Book the grant; returns its container."""
    pool, id_ = _checked_pool(books, observed), _OBSERVED + observed.grant.container
    if observed.pod_uid and observed.pod_uid not in books.pods:
        books.pods[observed.pod_uid] = NriPod(
            id=observed.pod_uid,
            uid=observed.pod_uid,
            namespace=observed.namespace,
            name=observed.pod_name,
            qos=observed.qos,
            labels=dict(observed.pod_labels),
            annotations={},
            device_nodes={},
        )
    container = NriContainer(
        id=id_,
        pod_id=observed.pod_uid,
        name=observed.container,
        created=_NOT_KNOWN,
        oom_score_adj=0,
        requirements=Resources({"cpu": 1} if observed.requests_cpu else {}, {}),
        updates=None,
        hints={},
        full_name=observed.full_name,
        labels=dict(observed.labels),
    )
    books.containers[id_] = container
    grant = books.grants[id_] = replace(observed.grant, container=id_, pool=pool.id)
    books.take_exclusive(pool, grant.exclusive)
    books.book_portion(pool, grant.cpu_type, grant.portion)
    priority = MEMORY_PRIORITY.get(observed.qos, BEST_EFFORT)
    books.memory.restore(id_, grant.memory_bytes, priority, grant.memory_nodes)
    return container


def _check(books: Books) -> None:
    """Below the root a pool can have granted more than it has left: others took its CPUs later."""
    root = books.setup.tree.root
    left = 1000 * books.sharable[root.id].bit_count() - books.shared[root.id]
    if left < 0:
        raise ObservedGrantError(f"{root.name}: {-left}m more shared CPU is granted than it has")
    if len(books.memory.zones) > MAX_ZONES:
        raise ObservedGrantError(f"{len(books.memory.zones)} memory zones are in use, more than {MAX_ZONES}")
    for zone in books.memory.zones:
        if books.memory.free_bytes(zone) < 0:
            raise ObservedGrantError(f"more memory of NUMA nodes {format_list(zone)} is granted than they have")
