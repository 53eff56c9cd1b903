"""Which CPUs a request gets out of a set: packed, spread and uncore-aligned (§6.7, §6.10)."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.oracle.errors import allocate_failed
from tests.oracle.machine import Machine
from tests.oracle.rules import OracleRules

Elements = dict[int, frozenset[int]]


@dataclass(frozen=True)
class TakeOptions:
    """What of the policy options the taking of CPUs looks at."""

    full_cores: bool = False
    across_numa: bool = False
    across_cores: bool = False
    by_uncore: bool = False


class PackedTake:
    """One run of the packed algorithm: what is free, what is still needed, what was taken."""

    def __init__(self, machine: Machine, rules: OracleRules, available: frozenset[int], need: int) -> None:
        self.machine = machine
        self.rules = rules
        self.free = set(available)
        self.need = need
        self.taken: set[int] = set()

    def run(self, *, spread: bool, by_uncore: bool) -> frozenset[int]:
        if self.need < 1:
            return frozenset()
        if self.need > len(self.free):
            raise not_enough(self.rules, self.need, len(self.free))
        steps: list[Callable[[], None]] = [self.whole_numas, self.whole_sockets]
        if not self.machine.numa_first:
            steps.reverse()
        if by_uncore:
            steps.append(self.uncores)
        if not spread:
            steps.append(self.whole_cores)
        steps.append(self.spread_cpus if spread else self.packed_cpus)
        for step in steps:
            step()
            if self.need < 1:
                return frozenset(self.taken)
        raise allocate_failed("failed to allocate cpus")

    # -- order of elements: fewest free CPUs first, then by id --

    def sorted_elements(self, elements: Elements, *, within: frozenset[int] | None = None) -> list[int]:
        """The elements with free CPUs, of those that have a free CPU in *within*."""
        counted = []
        for element, cpus in elements.items():
            free = cpus & self.free
            if free and (within is None or free & within):
                counted.append((len(free), element))
        return [element for _, element in sorted(counted)]

    def numas(self) -> list[int]:
        machine = self.machine
        if machine.numa_first:
            return self.sorted_elements(machine.cpus_of_numa)
        return [n for s in self.sockets() for n in self._inside(machine.cpus_of_numa, machine.cpus_of_socket[s])]

    def sockets(self) -> list[int]:
        machine = self.machine
        if machine.numa_first:
            return [s for n in self.numas() for s in self._inside(machine.cpus_of_socket, machine.cpus_of_numa[n])]
        return self.sorted_elements(machine.cpus_of_socket)

    def cores(self) -> list[int]:
        machine = self.machine
        if machine.numa_first:
            outer = [machine.cpus_of_socket[s] for s in self.sockets()]
        else:
            outer = [machine.cpus_of_numa[n] for n in self.numas()]
        return [core for cpus in outer for core in self._inside(machine.cpus_of_core, cpus)]

    def uncores(self) -> None:
        """Whole uncore caches, then parts of one (§6.10)."""
        machine = self.machine
        for uncore in self._ordered_uncores():
            if self.need >= machine.per_uncore:
                self._walk(self._ordered_uncores(), machine.cpus_of_uncore)
                if self.need < 1:
                    return
            self._partial_uncore(uncore)
            if self.need < 1:
                return

    def _ordered_uncores(self) -> list[int]:
        machine = self.machine
        return [u for n in self.numas() for u in self._inside(machine.cpus_of_uncore, machine.cpus_of_numa[n])]

    def _inside(self, elements: Elements, cpus: frozenset[int]) -> list[int]:
        return self.sorted_elements(elements, within=cpus)

    # -- the steps --

    def whole_numas(self) -> None:
        self._walk(self.numas(), self.machine.cpus_of_numa)

    def whole_sockets(self) -> None:
        self._walk(self.sockets(), self.machine.cpus_of_socket, full_size=self.machine.per_socket)

    def whole_cores(self) -> None:
        self._walk(self.cores(), self.machine.cpus_of_core, full_size=self.machine.per_core)

    def packed_cpus(self) -> None:
        self._singles([cpu for core in self.cores() for cpu in sorted(self.machine.cpus_of_core[core] & self.free)])

    def spread_cpus(self) -> None:
        if not self.rules.spread_by_topology:
            self._singles([c for s in self.sockets() for c in sorted(self.machine.cpus_of_socket[s] & self.free)])
            return
        order: list[int] = []
        for socket in self.sockets():
            cores = self._inside(self.machine.cpus_of_core, self.machine.cpus_of_socket[socket])
            queues = [sorted(self.machine.cpus_of_core[core] & self.free) for core in cores]
            while any(queues):
                order += [queue.pop(0) for queue in queues if queue]
        self._singles(order)

    def _walk(self, order: list[int], elements: Elements, *, full_size: int | None = None) -> None:
        """Take each wholly free element that is not more than is needed."""
        whole = []
        for element in order:
            size = len(elements[element]) if full_size is None else full_size
            if len(elements[element] & self.free) == size:
                whole.append(element)
        for element in whole:
            if self.need >= len(elements[element]):
                self._take(elements[element])

    def _singles(self, cpus: list[int]) -> None:
        for cpu in cpus:
            if self.need < 1:
                return
            self._take(frozenset({cpu}))

    def _partial_uncore(self, uncore: int) -> None:
        per_core = self.machine.per_core
        count = self.need // per_core
        if self.rules.uncore_partial_rounds_up:
            count = -(-self.need // per_core)
        free = self.machine.cpus_of_uncore[uncore] & self.free
        cores = sorted({self.machine.core[cpu] for cpu in free})[:count]
        chosen = sorted(cpu for cpu in free if self.machine.core[cpu] in cores)
        odd = self.need % 2 != 0 and per_core > 1 and len(chosen) > self.need
        if odd and self.rules.uncore_partial_rounds_up:
            chosen.pop()
        if len(chosen) == self.need:
            self._take(frozenset(chosen))

    def _take(self, cpus: frozenset[int]) -> None:
        """All CPUs of an element, free or not: on hybrid machines the two differ (§6.7)."""
        self.taken |= cpus
        self.free -= cpus
        self.need -= len(cpus)


def not_enough(rules: OracleRules, requested: int, available: int) -> Exception:
    text = "not enough cpus available to satisfy request"
    if rules.cpu_error_counts:
        text += f": requested={requested}, available={available}"
    return allocate_failed(text)
