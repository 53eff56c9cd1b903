"""How long pods would wait if the strategy knew the future: `python -m tests.bench.foresight`.

    python -m tests.bench.foresight [--kind GPU] [--load 0.85] [--seeds 4] [--pods 800]

The pods are those of `tests.bench.waits`. Before each placement the future is played for each different node that fits
the pod: the real pods come and end at their real times, and `least-fragmentation` places them. The node whose future
has the shortest waits is taken. A scheduler cannot do this, because it does not know when pods come and end. So the
result says about how much any strategy could gain over `least-fragmentation`.

A node is what is free on its NUMA nodes here, and a pod goes to the first NUMA node that fits it: what
`single-numa-node` does with pods of one NUMA node. Nodes with equal merit are taken in order.
"""

import heapq
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.bench.waits import KINDS, WARM_UP, Kind, coming

EVENTS_AHEAD: Final = 60
"""How many arrivals and ends of the future are played for each choice."""

Numa = tuple[int, int, int, int]
"""CPUs, GiB of memory, GPUs and GiB of hugepages: free on a NUMA node, or what a pod asks for."""
NodeFree = tuple[Numa, ...]
"""What is free on each NUMA node of a node."""
Pods = Sequence[tuple[float, int, float]]
"""When each pod comes, its size, and how long it runs, in hours."""


class Model:
    """The nodes of one kind, and where a pod of each size goes on a node. Answers are kept."""

    def __init__(self, kind: Kind) -> None:
        hardware = kind.hardware
        cpus = hardware.cpus // len(hardware.numa_ids)
        gib, pages = hardware.memory_gib - hardware.hugepages_1gi - 1, hardware.hugepages_1gi
        # two CPUs of NUMA node 0 are reserved
        self.empty: NodeFree = tuple((cpus - 2 * (not numa), gib, kind.gpus, pages) for numa in hardware.numa_ids)
        self.asked: list[Numa] = [(size.cpus, size.gib, size.gpus, size.hugepages_gib) for size in kind.sizes]
        self.numa_for = cache(self._numa_for)
        self.merit = cache(self._merit)

    def _numa_for(self, node: NodeFree, size: int) -> int | None:
        """The first NUMA node with room; None: the node does not fit the pod."""
        asked = self.asked[size]
        fits = (at for at, free in enumerate(node) if all(has >= wants for has, wants in zip(free, asked, strict=True)))
        return next(fits, None)

    def changed(self, node: NodeFree, numa: int, size: int, sign: int) -> NodeFree:
        """The node after a pod has come (*sign* -1) or ended (1)."""
        cpus, gib, gpus, pages = (has + sign * wants for has, wants in zip(node[numa], self.asked[size], strict=True))
        return (*node[:numa], (cpus, gib, gpus, pages), *node[numa + 1 :])

    def _merit(self, node: NodeFree, size: int) -> float:
        """That of `least-fragmentation`, for a node that fits the pod."""
        numa = self.numa_for(node, size)
        assert numa is not None
        after, costs = self.changed(node, numa, size, -1), []
        for resource, taken in enumerate(self.asked[size]):
            if taken:
                largest = max(free[resource] for free in node)
                lost = min(taken, largest - max(free[resource] for free in after))
                fall = node[numa][resource] ** 2 - after[numa][resource] ** 2
                costs.append(10_000 * lost / taken + 1000 * fall / (2 * taken * largest))
        return -statistics.mean(costs)


@dataclass
class World:
    """A cluster at one time. `events`: time, pod, whether it comes; a heap."""

    nodes: list[NodeFree]
    events: list[tuple[float, int, bool]]
    now: float = 0.0
    waiting: list[int] = field(default_factory=list)
    placed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Node and NUMA node of each running pod."""
    hours: dict[int, float] = field(default_factory=dict)
    """How long each pod waited that was placed."""

    def copy(self) -> "World":
        """The same, with no waits yet: those of the past are the same in each future."""
        return World(list(self.nodes), list(self.events), self.now, list(self.waiting), dict(self.placed))


Choice = Callable[[World, int, Mapping[NodeFree, int]], int]
"""From a world, a pod and the different nodes that fit it (with the first place of each): the place of one."""


class Player:
    """Plays the pods of one seed."""

    def __init__(self, kind: Kind, pods: Pods) -> None:
        self._kind, self._pods, self._model = kind, pods, Model(kind)

    def hours(self, choice: Choice) -> list[tuple[int, float]]:
        """Size and wait of each pod that counts."""
        events = [(at, number, True) for number, (at, _, _) in enumerate(self._pods)]
        world = World([self._model.empty] * self._kind.nodes, events)
        ends = self._pods[-1][0]
        while world.events and world.events[0][0] <= ends:
            self._step(world, choice)
        waits = world.hours | {number: ends - self._pods[number][0] for number in world.waiting}
        return [(self._pods[number][1], wait) for number, wait in waits.items() if number >= len(self._pods) // WARM_UP]

    def greedy(self, _world: World, number: int, fitting: Mapping[NodeFree, int]) -> int:
        """As `least-fragmentation` chooses."""
        size = self._pods[number][1]
        return fitting[max(fitting, key=lambda node: self._model.merit(node, size))]

    def foreseeing(self, weights: Sequence[float]) -> Choice:
        """The choice whose future has the shortest waits; *weights*: how much those of each size count."""

        def choice(world: World, number: int, fitting: Mapping[NodeFree, int]) -> int:
            if len(fitting) == 1:
                return next(iter(fitting.values()))
            size = self._pods[number][1]
            best_first = sorted(fitting, key=lambda node: -self._model.merit(node, size))
            return min(
                (fitting[node] for node in best_first), key=lambda place: self._cost(world, number, place, weights)
            )

        return choice

    def _cost(self, world: World, number: int, place: int, weights: Sequence[float]) -> float:
        """The waits of the near future if the pod is placed there."""
        future = world.copy()
        self._place(future, number, place)
        for _ in range(EVENTS_AHEAD):
            if not future.events:
                break
            self._step(future, self.greedy)
        waits = future.hours | {each: future.now - self._pods[each][0] for each in future.waiting}
        return sum(weights[self._pods[each][1]] * wait for each, wait in waits.items())

    def _step(self, world: World, choice: Choice) -> None:
        """The next event, and what is placed because of it."""
        world.now, number, comes = heapq.heappop(world.events)
        if comes:
            world.waiting.append(number)
        else:
            place, numa = world.placed.pop(number)
            world.nodes[place] = self._model.changed(world.nodes[place], numa, self._pods[number][1], 1)
        hopeless = set[int]()
        for each in [number] if comes else list(world.waiting):
            size = self._pods[each][1]
            if size in hopeless:
                continue
            fitting: dict[NodeFree, int] = {}
            for place, node in enumerate(world.nodes):
                if self._model.numa_for(node, size) is not None:
                    fitting.setdefault(node, place)
            if fitting:
                self._place(world, each, choice(world, each, fitting))
            else:
                hopeless.add(size)

    def _place(self, world: World, number: int, place: int) -> None:
        at, size, length = self._pods[number]
        numa = self._model.numa_for(world.nodes[place], size)
        assert numa is not None
        world.nodes[place] = self._model.changed(world.nodes[place], numa, size, -1)
        world.placed[number] = place, numa
        world.waiting.remove(number)
        world.hours[number] = world.now - at
        heapq.heappush(world.events, (world.now + length, number, False))


def _waits(kind: Kind, load: float, pods: int, seeds: int) -> list[str]:
    """The cells of a row: `least-fragmentation`, the future known, the future known and only the largest pods count."""
    largest = len(kind.sizes) - 1
    found: list[list[tuple[int, float]]] = [[], [], []]
    for seed in range(seeds):
        player = Player(kind, coming(kind, load, pods, seed))
        everything, only_largest = [1.0] * (largest + 1), [0.0] * largest + [1.0]
        choices = (player.greedy, player.foreseeing(everything), player.foreseeing(only_largest))
        for waits, choice in zip(found, choices, strict=True):
            waits.extend(player.hours(choice))
    return [_cell(waits, largest) for waits in found]


def _cell(waits: Sequence[tuple[int, float]], largest: int) -> str:
    of_largest = [hours for size, hours in waits if size == largest]
    return f"{statistics.mean(of_largest):.2f} ({statistics.mean(hours for _, hours in waits):.2f})"


@click.command()
@click.option("--kind", default="", help="Only kinds whose names begin so.")
@click.option("--load", default=0.85, show_default=True)
@click.option("--seeds", default=4, show_default=True)
@click.option("--pods", default=800, show_default=True)
def main(kind: str, load: float, seeds: int, pods: int) -> None:
    """One row for each cluster: the waits of `least-fragmentation`, and those with the future known."""
    table = Table(title=f"Hours that the largest pods wait (all pods): {seeds} seeds of {pods} pods")
    for name in ("cluster", "least-fragmentation", "future known", "future known, only the largest pods count"):
        table.add_column(name)
    # a kubelet with `best-effort` splits pods, which this model cannot do
    names = [name for name, each in KINDS.items() if name.startswith(kind) and each.policy == "single-numa-node"]
    for name in track(names, console=Console(stderr=True)):
        table.add_row(name, *_waits(KINDS[name], load, pods, seeds))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
