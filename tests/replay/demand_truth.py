"""Truth about demands, apart from the product: placements by ids, and what their pods demand, by trying every place.

`python -m tests.replay.demand_truth --seconds 3600` compares until the time is over or the answers differ.
"""

import argparse
import itertools
import time
from dataclasses import dataclass, field
from random import Random

from extender.kubelet.resolve import resolve
from extender.replay.demands import Held, broken_by
from extender.samples.machines import Hardware
from extender.wire.pods import demand_from_json, pod_from_json
from tests.reports import pod_of, sample

PREFIX = "numa-extender.io/"
NODES = (0, 1, 2, 3)
CPUS_OF_NODE = {node: range(8 * node, 8 * node + 8) for node in NODES}
SOCKET_OF = {0: 0, 1: 0, 2: 1, 3: 1}
MEMORY_ONLY = 4
GPU, NIC = "vendor.example/gpu", "vendor.example/nic"
KUBELET = sample(hardware=Hardware(sockets=2, numa_per_socket=2, cores_per_numa=4, threads=2, memory_gib=16)).kubelet


@dataclass
class Placed:
    """What a container gets. `could`: whether it could have exclusive CPUs. `memory`: the NUMA nodes of each block."""

    could: bool
    cpus: set[int] = field(default_factory=set)
    memory: list[set[int]] = field(default_factory=list)
    devices: list[tuple[str, set[int]]] = field(default_factory=list)


def is_met(texts: dict[str, str], containers: dict[str, Placed]) -> bool:
    """Whether the placement meets the demand, by trying every NUMA node or socket for each container."""
    looked_at = [(name, _Wish(texts, name)) for name in containers if _Wish(texts, name).asks]
    if not looked_at:
        return True
    gets_anything = False
    places = []
    for name, wish in looked_at:
        placed = containers[name]
        if placed.could and (wish.local or wish.lists("cpu")) and not placed.cpus:
            return False
        cpus = placed.cpus if wish.lists("cpu") else set()
        memory = placed.memory if wish.lists("memory") else []
        devices = [near for kind, near in placed.devices if wish.lists("devices") or wish.lists(kind)]
        if wish.named and "memory" in wish.named and (cpus or devices) and not placed.memory:
            return False
        gets_anything |= bool(cpus or memory or devices)
        gets_anything |= wish.local and bool(placed.cpus or placed.memory or placed.devices)
        if wish.place == "node":
            fits = {n for n in NODES if _fits_node(n, cpus, memory, devices)} | (
                {MEMORY_ONLY} if not cpus and _fits_node(MEMORY_ONLY, cpus, memory, devices) else set()
            )
        elif wish.place == "socket":
            fits = {s for s in (0, 1) if _fits_socket(s, cpus, memory, devices)}
        else:
            fits = set()
        if wish.place:
            if not fits:
                return False
            if not any(f"{key}.{name}" in _ours(texts) for key in ("alignment", "alignment-resources", "memory")):
                places.append(fits)
        if wish.local and placed.cpus and _nodes(placed.cpus) != set().union(*placed.memory):
            return False
    local = [containers[name] for name, wish in looked_at if wish.local]
    if local and not any(each.cpus or each.memory for each in local):
        return False
    is_together = _ours(texts).get("alignment-scope") != "pod" or not places or bool(set.intersection(*places))
    return gets_anything and is_together


class _Wish:
    """What is asked for one container."""

    def __init__(self, texts: dict[str, str], name: str) -> None:
        ours = _ours(texts)
        own = {key: ours.get(f"{key}.{name}", ours.get(key)) for key in ("alignment", "alignment-resources", "memory")}
        self.named = own["alignment-resources"].split(",") if own["alignment-resources"] else None
        word = own["alignment"] or ("single-numa-node" if self.named else None)
        self.place = {"single-numa-node": "node", "same-socket": "socket"}.get(word or "", "")
        self.local = own["memory"] == "no-remote-memory"
        self.asks = bool(self.place) or self.local

    def lists(self, kind: str) -> bool:
        return self.named is None or kind in self.named


def _ours(texts: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix(PREFIX): text for key, text in texts.items()}


def _nodes(cpus: set[int]) -> set[int]:
    return {node for node in NODES if cpus & set(CPUS_OF_NODE[node])}


def _fits_node(node: int, cpus: set[int], memory: list[set[int]], devices: list[set[int]]) -> bool:
    near = set(CPUS_OF_NODE.get(node, ()))
    return cpus <= near and all(block == {node} for block in memory) and all(node in each for each in devices)


def _fits_socket(socket: int, cpus: set[int], memory: list[set[int]], devices: list[set[int]]) -> bool:
    nodes = {node for node in NODES if SOCKET_OF[node] == socket}
    near = set(itertools.chain.from_iterable(CPUS_OF_NODE[node] for node in nodes))
    return cpus <= near and all(block <= nodes for block in memory) and all(nodes & each for each in devices)


def draw(random: Random) -> tuple[dict[str, str], dict[str, Placed]]:
    """A demand and a placement; half of them lie close together, so that both answers are frequent."""
    names = [f"c{i}" for i in range(random.randint(1, 3))]
    home = random.choice(NODES)
    near = random.random()

    def place(count: int) -> set[int]:
        others = [node for node in NODES if node != home]
        return {home} if random.random() < near else set(random.sample([home, *others], count))

    containers = {}
    for name in names:
        placed = Placed(could=random.random() < 0.6)
        if placed.could and random.random() < 0.9:
            for node in place(random.randint(1, 2)):
                placed.cpus |= set(random.sample(CPUS_OF_NODE[node], random.randint(1, 3)))
        if random.random() < 0.7:
            placed.memory = [place(random.randint(1, 2)) for _ in range(random.randint(1, 2))]
            if placed.cpus and random.random() < 0.4:
                placed.memory = [{node} for node in _nodes(placed.cpus)]
            if random.random() < 0.05:
                placed.memory.append({MEMORY_ONLY})
        if random.random() < 0.4:
            placed.devices = [(random.choice((GPU, NIC)), place(random.randint(1, 3))) for _ in range(2)]
        containers[name] = placed
    words = {
        "alignment": ("single-numa-node", "same-socket", "none", "preferred"),
        "alignment-resources": (
            "cpu",
            "memory",
            "cpu,memory",
            "memory,devices",
            f"memory,{GPU}",
            "cpu,devices",
            f"cpu,{GPU}",
            f"{GPU},{NIC}",
            "devices",
        ),
        "memory": ("no-remote-memory", "none"),
    }
    texts = {PREFIX + key: random.choice(values) for key, values in words.items() if random.random() < 0.5}
    if random.random() < 0.3:
        texts[PREFIX + "alignment-scope"] = random.choice(("pod", "container"))
    for name in names:
        for key, values in words.items():
            if random.random() < 0.12:
                texts[f"{PREFIX}{key}.{name}"] = random.choice(values)
    return texts, containers


def answer(texts: dict[str, str], containers: dict[str, Placed]) -> bool:
    """Whether the placement meets the demand, by the product."""
    pod = pod_of()
    pod["spec"]["containers"] = [
        {"name": name, "resources": {"limits": {"cpu": "2" if each.could else "500m", "memory": "1Gi"}}}
        for name, each in containers.items()
    ]
    request = resolve(pod_from_json(pod), KUBELET.rules)
    machine = KUBELET.machine
    held = {}
    for name, each in containers.items():
        numa = _bits(_nodes(each.cpus))
        held[name] = Held(
            numa,
            machine.socket_bits_in_numa(numa),
            tuple(_bits(block) for block in each.memory),
            tuple((kind, _bits(near)) for kind, near in each.devices),
        )
    demand = demand_from_json(texts, containers=list(containers))
    assert not demand.fault, demand.fault
    return broken_by(demand, machine, request, held) is None


def _bits(nodes: set[int]) -> int:
    return sum(1 << node for node in nodes)


def compare(seed: int) -> bool:
    """Compare one case; returns the answer. Raises AssertionError with the case if the answers differ."""
    texts, containers = draw(Random(seed))
    said, truth = answer(texts, containers), is_met(texts, containers)
    assert said is truth, f"seed {seed}: met {truth}, said {said}: {texts} {containers}"
    return truth


def main() -> None:
    """Compare for so many seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ends, met = time.monotonic() + options.seconds, 0
    for seed in itertools.count(options.seed):
        if time.monotonic() > ends:
            break
        met += compare(seed)
    print(f"{seed - options.seed} cases, {met} met, 0 differ")


if __name__ == "__main__":
    main()
