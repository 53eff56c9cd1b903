"""Placements in words, for the audit: ranges of CPUs, amounts of memory by NUMA node, numbers of devices."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from extender.kubelet.sets import format_list
from extender.kubelet.state import Block, Device, ManagerState
from extender.kubelet.verdict import Admitted
from extender.nri.admission import Granted
from extender.replay.creation import grants_of, lasting_grants

NOTHING: Final = "nothing exclusive"
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1, "bytes"))


def reported_words(state: ManagerState, uid: str) -> str:
    """What the state has of the pod: `app: CPUs 0-3,8, 4 GiB memory on NUMA 0, 2 vendor.example/gpu on NUMA 0`."""
    cpus, memory = state.cpu.entries.get(uid, {}), state.memory.entries.get(uid, {})
    devices = state.devices.entries.get(uid, {})
    known = grants_of(state)
    granted = {} if known is None else known.held_by(uid)
    names = sorted(cpus.keys() | memory.keys() | devices.keys() | granted.keys())
    return _joined(
        (
            name,
            _container(cpus.get(name, 0), memory.get(name, ()), devices.get(name, {}), state)
            + _granted(granted.get(name)),
        )
        for name in names
    )


def predicted_words(state: ManagerState | None, verdict: Admitted) -> str:
    """A predicted placement in words. *state*: has the devices; None: their NUMA nodes are not named."""
    granted = lasting_grants(verdict)
    return _joined(
        (name, _container(placement.cpus, placement.memory, placement.devices, state) + _granted(granted.get(name)))
        for name, placement in sorted(verdict.placements.items())
    )


def _granted(granted: Granted | None) -> list[str]:
    if granted is None:
        return []
    pool, exclusive, portion = granted
    words = [f"CPUs {format_list(exclusive)}"] if exclusive else []
    return [" and ".join([*words, *([f"{portion}m"] if portion or not words else [])]) + f" of {pool}"]


def _joined(containers: Iterator[tuple[str, list[str]]]) -> str:
    return "; ".join(f"{name}: {', '.join(words)}" for name, words in containers if words) or NOTHING


def _container(
    cpus: int, memory: Collection[Block], devices: Mapping[str, Collection[str]], state: ManagerState | None
) -> list[str]:
    words = [f"CPUs {format_list(cpus)}"] if cpus else []
    words += [f"{_amount(block.size)} {block.type} on NUMA {format_list(block.mask)}" for block in memory if block.size]
    for resource, ids in sorted(devices.items()):
        known = {} if state is None else state.devices.devices.get(resource, {})
        places = Counter(_place(known.get(device_id)) for device_id in ids)
        words += [f"{count} {resource}{place}" for place, count in sorted(places.items())]
    return words


def _place(device: Device | None) -> str:
    return "" if device is None or not device.numa else f" on NUMA {format_list(device.numa)}"


def _amount(size_bytes: int) -> str:
    unit, name = next((unit, name) for unit, name in _UNITS if size_bytes % unit == 0)
    return f"{size_bytes // unit} {name}"
