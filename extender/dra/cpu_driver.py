"""Which CPUs dra-driver-cpu gives to the claims of a node, where its devices are groups (NUMA nodes or sockets).

Rules of this file
- Each device of a claim gets CPUs by the kubelet's packed algorithm, aligned to uncore caches, out of those of the
  group that no prepared claim has and that are not reserved.
- The driver numbers cores by the kernel's `core_id`, which starts again in each socket. So a core is the cores of all
  sockets with this number: they are sorted by it, and a whole core can have CPUs of another socket.
- A claim with a CPU that is not free is refused, and has nothing. Before 0.3 it is not refused: it has a CPU that
  another claim has or that is reserved, and the CPU is free again as soon as one of the two claims ends.

Source: dra-driver-cpu 0.1.0, 0.2.0 and of August 2026 (after 0.2.0), pkg/driver/dra_hooks.go,
prepareGroupedResourceClaim, pkg/store/cpu_allocation.go, and pkg/cpumanager, a copy of the kubelet's of 1.36.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.config import CPUOptions
from extender.kubelet.cpu_assignment import Assignment
from extender.kubelet.errors import NotEnoughCPUsError
from extender.kubelet.machine import Machine

OVERLAP: Final = "overlapping CPU assignment"
CHECKED_SINCE: Final = (0, 3)
"""The first minor that refuses overlaps. A build of August 2026 does as well."""
GROUPS: Final = {"numanode": "cpudevnuma", "socket": "cpudevsocket"}


class GroupRequest(NamedTuple):
    """A device of a claim, and how many CPUs of it."""

    device: str
    number: int


class PreparedClaim(NamedTuple):
    """What a claim gets: raw CPU bits, or why it gets nothing."""

    cpus: int
    error: str = ""


class PreparedClaims:
    """The claims of a node in the order in which the driver prepares them. *allocatable*: CPUs that are not reserved.

    *version*: of the driver, as (major, minor).
    """

    def __init__(self, machine: Machine, grouped_by: str, allocatable: int, version: tuple[int, int]) -> None:
        self._machine, self._grouped_by, self._allocatable = driver_machine(machine), grouped_by, allocatable
        self._is_checked, self._allocated, self._held = version >= CHECKED_SINCE, 0, list[int]()

    def end(self, number: int) -> None:
        """The claim that was prepared as this number, from 0, ends."""
        self._allocated &= ~self._held[number]
        self._held[number] = 0

    def prepare(self, requests: Sequence[GroupRequest], budget: Budget = UNLIMITED) -> PreparedClaim:
        """Prepare the next claim. Raises as `prepare_claim`."""
        free = self._allocatable & ~self._allocated
        claim = prepare_claim(self._machine, self._grouped_by, free, requests, budget)
        if self._is_checked and claim.cpus & ~free:
            claim = PreparedClaim(0, OVERLAP)
        self._held.append(claim.cpus)
        self._allocated |= claim.cpus
        return claim


class UnknownDeviceError(ValueError):
    """No group has this name."""


def driver_machine(machine: Machine) -> Machine:
    """The machine as the driver sees it: its cores have the kernel's numbers."""
    cores: dict[int, int] = {}
    for each in machine.cpus:
        cores[each.core_id] = cores.get(each.core_id, 0) | 1 << each.cpu
    return replace(machine, core_cpus=dict(sorted(cores.items())), identity=("dra.cpu", *machine.identity))


def prepare_claim(
    machine: Machine, grouped_by: str, free: int, requests: Sequence[GroupRequest], budget: Budget = UNLIMITED
) -> PreparedClaim:
    """The CPUs of a claim, some of which may not be free. *machine*: from `driver_machine`. *free*: of no claim.

    Raises:
        UnknownDeviceError: a device is none of the groups.
        BudgetError: it takes too many steps.
    """
    assignment = Assignment(machine, CPUOptions(prefer_align_by_uncore_cache=True), True, True)  # noqa: FBT003 - a tuple
    taken = 0
    for device, number in requests:
        available = free & _group(machine, grouped_by, device) & ~taken
        try:
            taken |= assignment.take(available, number, budget)
        except NotEnoughCPUsError as error:
            return PreparedClaim(0, error.message)
    return PreparedClaim(taken)


def _group(machine: Machine, grouped_by: str, device: str) -> int:
    """The CPUs of the device `cpudevnuma001` or `cpudevsocket000`."""
    found = re.fullmatch(rf"{GROUPS[grouped_by]}(\d{{3,6}})", device, re.ASCII)
    groups = machine.numa_cpus if grouped_by == "numanode" else machine.socket_cpus
    if found is None or int(found[1]) not in groups:
        raise UnknownDeviceError(f"{device[:64]!r} is no group by {grouped_by}")
    return groups[int(found[1])]
