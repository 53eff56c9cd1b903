"""The settings of containers (cpuset, memory nodes and CPU shares), and which of them are not sent yet.

Mirrors: `policy/pools.go` (applyGrant, updateSharedAllocations) and `pkg/resmgr/nri.go` (getPendingUpdates).
"""

from dataclasses import dataclass
from typing import Final

from extender.nri.books import Books, Grant
from extender.nri.estimates import shares_of
from extender.nri.machine import PRESERVE_MEMORY
from extender.nri.requests import CPUType, hides_hyperthreads


@dataclass(frozen=True, slots=True)
class Pins:
    """cpuset.cpus, cpuset.mems and cpu.shares. None: not sent. 0 CPUs or nodes: not pinned."""

    cpus: int | None = None
    mems: int | None = None
    shares: int | None = None

    def over(self, older: "Pins") -> "Pins":
        """These pins; the value of *older* replaces each that is None."""
        return Pins(
            older.cpus if self.cpus is None else self.cpus,
            older.mems if self.mems is None else self.mems,
            older.shares if self.shares is None else self.shares,
        )

    def changes(self, older: "Pins") -> "Pins":
        """The values that *older* does not have."""
        return Pins(
            self.cpus if self.cpus != older.cpus else None,
            self.mems if self.mems != older.mems else None,
            self.shares if self.shares != older.shares else None,
        )


NOTHING: Final = Pins()


class Updates:
    """`told`: the settings that each container has. `pending`: settings to send with the next successful answer."""

    __slots__ = ("pending", "told")

    def __init__(self) -> None:
        self.told: dict[str, Pins] = {}
        self.pending: dict[str, Pins] = {}

    def copy(self) -> "Updates":
        """An independent copy."""
        other = Updates()
        other.told, other.pending = dict(self.told), dict(self.pending)
        return other

    def add(self, container: str, pins: Pins) -> None:
        """Add *pins* to what is sent to *container*."""
        self.pending[container] = pins.over(self.pending.get(container, NOTHING))

    def repeat(self, container: str, created: Pins) -> None:
        """Send the current settings to *container*. Settings that it never got are those of *created*."""
        told = self.told.get(container, NOTHING).over(created)
        self.pending[container] = self.pending.get(container, NOTHING).over(told)

    def forget(self, container: str) -> None:
        """*container* has left the cache. Nothing more is sent to it."""
        self.pending.pop(container, None)
        self.told.pop(container, None)

    def send(self, container: str) -> Pins:
        """All current settings of *container*."""
        pins = self.pending.pop(container, NOTHING)
        # An empty list in a message of the runtime interface is a list that is not set.
        pins = Pins(pins.cpus or None, pins.mems or None, pins.shares)
        self.told[container] = pins.over(self.told.get(container, NOTHING))
        return pins

    def send_all(self, skip: str = "") -> dict[str, Pins]:
        """Send everything except for *skip*. Returns the changed values by container (there may be none)."""
        changes = {}
        for container in [c for c in self.pending if c != skip]:
            before = self.told.get(container, NOTHING)
            changes[container] = self.send(container).changes(before)
        return changes


def apply_grant(books: Books, updates: Updates, grant: Grant) -> None:
    """Pin the container of *grant*, if it is still in the cache."""
    if grant.container in books.uncached:
        return
    config = books.setup.config
    cpus = mems = shares = None
    if config.pin_cpu:
        if grant.cpu_type is not CPUType.PRESERVE:
            cpus = _visible(books, grant.container, _cpus_of(books, grant))
        portion = 0 if grant.cpu_type is CPUType.PRESERVE else grant.portion
        shares = shares_of(portion or 1000 * grant.exclusive.bit_count())
    if grant.memory_types != PRESERVE_MEMORY:
        mems = grant.memory_nodes if config.pin_memory else 0
    pins = Pins(cpus, mems, shares)
    if pins != NOTHING:
        updates.add(grant.container, pins)


def _cpus_of(books: Books, grant: Grant) -> int:
    if grant.cpu_type is CPUType.RESERVED:
        return books.setup.tree.pools[grant.pool].reserved
    if not grant.exclusive:
        return books.sharable[grant.pool]
    return grant.exclusive | (books.sharable[grant.pool] if grant.shared_portion else 0)


def _visible(books: Books, container: str, cpus: int) -> int:
    """*cpus*, without second threads where the container hides them."""
    if not cpus:
        return 0
    owner = books.containers[container]
    pod = books.pods.get(owner.pod_id)
    hides = pod is not None and hides_hyperthreads(pod, owner.name)
    return books.setup.topology.machine.one_thread_per_core(cpus) if hides else cpus


def update_shared(books: Books, updates: Updates, changed: Grant | None) -> None:
    """Pin all containers with shared CPUs again after *changed* was granted or released. None: after all were."""
    if changed is not None and changed.cpu_type is CPUType.RESERVED:
        return
    if not books.setup.config.pin_cpu:
        return
    for grant in books.grants.values():
        if grant.container in books.uncached or (changed is not None and grant.container == changed.container):
            continue
        if grant.cpu_type is not CPUType.NORMAL or (grant.exclusive and not grant.shared_portion):
            continue
        cpus = _visible(books, grant.container, grant.exclusive | books.sharable[grant.pool])
        updates.add(grant.container, Pins(cpus=cpus))


def widen_memory(books: Books, updates: Updates, moves: dict[str, int]) -> None:
    """Update the containers whose memory moved to a wider zone."""
    if books.setup.config.pin_memory:
        for container, nodes in moves.items():
            if container in books.grants and container not in books.uncached:
                updates.add(container, Pins(mems=nodes))
