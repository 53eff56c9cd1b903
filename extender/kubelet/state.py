"""The state of the kubelet's managers, as values.

Rules of this file
- Nothing here is ever mutated. The managers return new states.
- `key` of each state is equal for states that give *new* pods the same verdicts, whichever pods hold the resources.
  With the machine and the configuration it makes a node's class: one replay serves all nodes of a class.

Mirrors: kubelet `cm/{cpumanager,memorymanager}/state`, `cm/devicemanager/pod_devices.go`.
"""

from collections.abc import Collection, Hashable, ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

T = TypeVar("T")


NOTHING: Final[Mapping[Any, Any]] = {}
"""All states share one empty mapping: a new dict takes 64 bytes, and a node's states have a dozen."""


def _nothing() -> Mapping[Any, Any]:
    return NOTHING


_NO_MEMORY: Final[tuple[str, Mapping[tuple[int, str], int]]] = ("", NOTHING)
_NO_DEVICES: Final[tuple[str, Mapping[str, frozenset[str]]]] = ("", NOTHING)


class OneContainer(Mapping[str, T]):
    """What a pod's only container holds, by its name. Takes 48 bytes, where a dict takes 184.

    `held`: the only value.
    """

    __slots__ = ("_name", "held")

    def __init__(self, name: str, held: T) -> None:
        self._name: Final = name
        self.held: Final = held

    def __getitem__(self, name: str) -> T:
        if name != self._name:
            raise KeyError(name)
        return self.held

    def __iter__(self) -> Iterator[str]:
        return iter((self._name,))

    def __len__(self) -> int:
        return 1

    def items(self) -> ItemsView[str, T]:
        """A dict's view: it takes a tenth of the time of the one that `Mapping` makes."""
        return {self._name: self.held}.items()

    def values(self) -> ValuesView[T]:
        """A dict's view, for the same reason as `items`."""
        return {self._name: self.held}.values()

    def __repr__(self) -> str:
        return repr({self._name: self.held})

    def __reduce__(self) -> tuple[type, tuple[str, T]]:
        return type(self), (self._name, self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUState:
    """The CPU manager's checkpoint. All sets are raw CPU bits.

    `default` is the shared pool; `entries` the CPUs of each container that has exclusive ones, by pod UID and
    container name; `pod_entries` the bubbles of pods with pod-level resources. `reusable` belongs to the pod admitted
    last and is in no checkpoint: (pod UID, CPUs of its ordinary init containers).
    """

    default: int
    entries: Mapping[str, Mapping[str, int]] = field(default_factory=_nothing)
    pod_entries: Mapping[str, int] = field(default_factory=_nothing)
    reusable: tuple[str, int] = ("", 0)

    @property
    def key(self) -> object:
        """What decides about later admissions: which CPUs are in the shared pool."""
        return self.default


class MemoryAmounts(NamedTuple):
    """One memory type on one NUMA node, in bytes."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


class NUMANodeMemory(NamedTuple):
    """One NUMA node of the memory manager's machine state.

    `cells` is the mask of the group it is in (its own bit when alone); `assignments` counts blocks that use it.
    `amounts`: by type, only the types that the node has.
    """

    id: int
    assignments: int
    cells: int
    amounts: tuple[tuple[str, MemoryAmounts], ...]


class Block(NamedTuple):
    """Memory of one type given to a container: on `mask`, `size` bytes in all."""

    mask: int
    type: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """The memory manager's checkpoint: one record a NUMA node (CPU-less ones included), blocks by pod and container.

    `nodes` is empty under policy None. `reusable` belongs to the pod admitted last:
    (pod UID, bytes by (mask, type)); `pod_entries` are the blocks of pods with pod-level resources.
    """

    nodes: tuple[NUMANodeMemory, ...] = ()
    entries: Mapping[str, Mapping[str, tuple[Block, ...]]] = field(default_factory=_nothing)
    pod_entries: Mapping[str, tuple[Block, ...]] = field(default_factory=_nothing)
    reusable: tuple[str, Mapping[tuple[int, str], int]] = _NO_MEMORY

    @property
    def key(self) -> object:
        """What decides about later admissions: what each NUMA node has free, and its group."""
        return self.nodes


class Device(NamedTuple):
    """One device: `numa` raw NUMA bits, None when the plugin reported no topology object at all."""

    numa: int | None
    healthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """What the plugins last reported and which containers hold devices.

    `devices` has a key for every registered resource, with or without healthy devices. `entries`: pod UID -> container
    -> resource -> device ids. `held` is derived from `entries`: resource -> ids. `reusable` belongs to the pod admitted
    last: (pod UID, resource -> ids of its ordinary init containers).
    """

    devices: Mapping[str, Mapping[str, Device]] = field(default_factory=_nothing)
    entries: Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]] = field(default_factory=_nothing)
    held: Mapping[str, frozenset[str]] = field(default_factory=_nothing)
    reusable: tuple[str, Mapping[str, frozenset[str]]] = _NO_DEVICES

    @property
    def key(self) -> object:
        """What decides about later admissions: the free devices of each kind.

        It does not matter which of several equal devices is held.
        """
        return tuple(
            (resource, _kinds(devices, self.held.get(resource, frozenset())))
            for resource, devices in sorted(self.devices.items())
        )

    @classmethod
    def of(
        cls,
        devices: Mapping[str, Mapping[str, Device]],
        entries: Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]] | None = None,
    ) -> "DeviceState":
        """A state from reported devices and allocations; derives `held`."""
        entries = entries or {}
        return cls(devices=devices, entries=entries, held=held_devices(entries))


def _kinds(
    devices: Mapping[str, Device], held: frozenset[str]
) -> tuple[tuple[tuple[int | None, bool, bool], int], ...]:
    counts: dict[tuple[int | None, bool, bool], int] = {}
    for device_id, device in devices.items():
        kind = (device.numa, device.healthy, device_id in held)
        counts[kind] = counts.get(kind, 0) + 1
    gone = len(held - devices.keys())
    if gone:
        counts[-1, False, True] = gone
    return tuple(sorted(counts.items(), key=repr))


def held_devices(
    entries: Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]],
) -> dict[str, frozenset[str]]:
    """Every id that any container holds, by resource."""
    held: dict[str, set[str]] = {}
    for containers in entries.values():
        for resources in containers.values():
            for resource, ids in resources.items():
                held.setdefault(resource, set()).update(ids)
    return {resource: frozenset(ids) for resource, ids in held.items()}


class RuntimeGrants(Protocol):
    """What containers hold of a policy of the container runtime (`kubelet.RuntimePolicy`). A value."""

    @property
    def key(self) -> Hashable:
        """What decides about later creations. Equal for states that give new pods the same verdicts."""

    @property
    def pod_uids(self) -> frozenset[str]:
        """Every pod that holds anything."""

    def release(self, uids: Collection[str]) -> Self:
        """The grants after these pods are gone. Unknown pods are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerState:
    """All three managers of one node, and what a policy of the container runtime has granted.

    `runtime`: None if there is no such policy, or its grants are not known.
    """

    cpu: CPUState
    memory: MemoryState
    devices: DeviceState
    runtime: RuntimeGrants | None = None

    @property
    def key(self) -> tuple[object, object, object, object]:
        """Equal for states that give a new pod the same verdict."""
        return self.cpu.key, self.memory.key, self.devices.key, None if self.runtime is None else self.runtime.key

    @property
    def pod_uids(self) -> frozenset[str]:
        """Every pod that holds anything."""
        uids = frozenset(self.cpu.entries) | frozenset(self.memory.entries) | frozenset(self.devices.entries)
        return uids if self.runtime is None else uids | self.runtime.pod_uids


def without(mapping: Mapping[str, T], key: str) -> Mapping[str, T]:
    """The mapping without *key*. The same object if it does not have the key."""
    return {k: v for k, v in mapping.items() if k != key} if key in mapping else mapping
