"""Replays a second on one core: by machine, by manager and option; and the merge against the walk it replaces."""

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from extender.kubelet.admission import admit
from extender.kubelet.hints import Hints, merge
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import universe
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import devices_from_json, kubelet_config_from_json, machine_from_json

Json = dict[str, Any]
SECONDS_PER_ROW = 0.5
GIB = 1 << 30


def run(console: Console) -> None:
    """Print three tables."""
    _by_machine(console)
    _by_option(console)
    _merge_against_walk(console)


def machine_of(numa_nodes: int, cores_per_node: int) -> Json:
    """Two threads a core, half the NUMA nodes on each of two sockets, eight-core caches."""
    cores = numa_nodes * cores_per_node
    cpus = [[c + t * cores, c, 2 * c // cores, c // cores_per_node, c // 8] for c in range(cores) for t in range(2)]
    numa = [
        {
            "id": i,
            "memory": 64 * GIB,
            "hugepages": {"2Mi": 1024},
            "distances": [
                10 if i == j else 12 if 2 * i // numa_nodes == 2 * j // numa_nodes else 32 for j in range(numa_nodes)
            ],
        }
        for i in range(numa_nodes)
    ]
    return {"cpus": cpus, "numa": numa}


def kubelet_of(
    machine: Json, policy: str, cpu_options: Mapping[str, str], topology_options: Mapping[str, str]
) -> Kubelet:
    """A kubelet of the machine with static CPU and memory managers."""
    document: Json = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": dict(cpu_options),
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "topologyManagerPolicy": policy,
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16", **topology_options},
        "reservation": {"cpu": "2", "memory": "1Gi"},
        "featureGates": {"CPUManagerPolicyAlphaOptions": True},
    }
    config = kubelet_config_from_json("1.36", document)
    return start(machine_from_json(machine), config)


def pod_request(kubelet: Kubelet, **amounts: str) -> PodRequest:
    """A Guaranteed pod of one container with 4Gi and these amounts."""
    requests: dict[str, str] = {"memory": "4Gi", **amounts}
    container = {"name": "app", "resources": {"requests": requests, "limits": requests}}
    return resolve(
        pod_from_json({"metadata": {"name": "p", "uid": "new"}, "spec": {"containers": [container]}}), kubelet.rules
    )


def half_full(kubelet: Kubelet, numa_nodes: int) -> ManagerState:
    """The state of a node with eight GPUs and a pod of 4 CPUs for each NUMA node."""
    devices = {"gpu.example/gpu": [{"id": f"gpu-{i}", "numa": [i % numa_nodes], "healthy": True} for i in range(8)]}
    state = initial_state(kubelet, devices_from_json(devices))
    for i in range(numa_nodes):
        amounts = {"cpu": "4", "gpu.example/gpu": "1"} if i % 2 else {"cpu": "4"}
        filler = pod_request(kubelet, **amounts)
        state = admit(kubelet, state, resolve_as(filler, f"filler-{i}")).state
    return state


def resolve_as(request: PodRequest, uid: str) -> PodRequest:
    """The same request under another UID."""
    return PodRequest(**{name: getattr(request, name) for name in request.__dataclass_fields__} | {"uid": uid})


def _rate(call: Callable[[], object]) -> float:
    """Calls a second."""
    call()
    calls, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < SECONDS_PER_ROW:
        call()
        calls += 1
    return calls / elapsed


def _by_machine(console: Console) -> None:
    table = Table(title="Replays a second on one core: a Guaranteed pod with 4 CPUs, memory and a GPU, half-full node")
    table.add_column("machine")
    for policy in ("none", "best-effort", "restricted", "single-numa-node"):
        table.add_column(policy, justify="right")
    for numa_nodes, cores in ((2, 32), (4, 16), (8, 16), (16, 16)):
        row = [f"{numa_nodes} NUMA nodes, {numa_nodes * cores * 2} CPUs"]
        for policy in ("none", "best-effort", "restricted", "single-numa-node"):
            kubelet = kubelet_of(machine_of(numa_nodes, cores), policy, {}, {})
            state = half_full(kubelet, numa_nodes)
            request = pod_request(kubelet, cpu="4", **{"gpu.example/gpu": "1"})
            row.append(f"{_rate(lambda k=kubelet, s=state, r=request: admit(k, s, r)):,.0f}")  # type: ignore[misc]
        table.add_row(*row)
    console.print(table)


def _by_option(console: Console) -> None:
    table = Table(title="Replays a second by manager and option: 2 NUMA nodes, 128 CPUs, restricted")
    table.add_column("what decides")
    table.add_column("replays/s", justify="right")
    machine = machine_of(2, 32)
    cases: list[tuple[str, dict[str, str], dict[str, str], dict[str, str]]] = [
        ("shared pool only (500m)", {}, {}, {"cpu": "500m"}),
        ("CPU manager", {}, {}, {"cpu": "4"}),
        ("CPU, hugepages", {}, {}, {"cpu": "4", "hugepages-2Mi": "64Mi"}),
        ("CPU, memory, device", {}, {}, {"cpu": "4", "gpu.example/gpu": "1"}),
        ("prefer-closest-numa-nodes", {}, {"prefer-closest-numa-nodes": "true"}, {"cpu": "4"}),
    ]
    options: tuple[str, ...] = (
        "full-pcpus-only",
        "distribute-cpus-across-numa",
        "align-by-socket",
        "distribute-cpus-across-cores",
    )
    options += ("strict-cpu-reservation", "prefer-align-cpus-by-uncorecache")
    cases += [(option, {option: "true"}, {}, {"cpu": "24"}) for option in options]
    for title, cpu_options, topology_options, amounts in cases:
        kubelet = kubelet_of(machine, "restricted", cpu_options, topology_options)
        state, request = half_full(kubelet, 2), pod_request(kubelet, **amounts)
        table.add_row(title, f"{_rate(lambda k=kubelet, s=state, r=request: admit(k, s, r)):,.0f}")  # type: ignore[misc]
    console.print(table)


def _walk(lists: list[Hints], default: int) -> tuple[int, bool]:
    """The merge as the kubelet does it: every combination of one hint from each list."""
    best: tuple[object, int, bool] | None = None
    width = max(min(m.bit_count() for m in h.masks) for h in lists)
    for choice in itertools.product(*([(m, m in h.preferred_masks) for m in h.masks] for h in lists)):
        mask = default
        for m, _ in choice:
            mask &= m
        if not mask:
            continue
        preferred = all(p for _, p in choice) and len({m for m, _ in choice}) == 1
        size = mask.bit_count()
        tier = (0, 0) if preferred or size == width else (1, -size) if size < width else (2, size)
        rank = (not preferred, tier, size, mask)
        if best is None or rank < best[0]:  # type: ignore[operator]
            best = (rank, mask, preferred)
    assert best is not None
    return best[1], best[2]


def _merge_against_walk(console: Console) -> None:
    table = Table(title="The merge against the walk over the cross product (every mask offered, none preferred by all)")
    for column in ("NUMA nodes", "providers", "combinations", "walk", "ours", "gain"):
        table.add_column(column, justify="right")
    for numa_nodes, providers in ((2, 3), (4, 3), (4, 4), (6, 3), (8, 2), (8, 4), (16, 4)):
        space = universe(tuple(range(numa_nodes)))
        every = space.everything & ~1
        lists = [Hints(space, every, 1 << space.number(1 << i % 2)) for i in range(providers)]
        default = (1 << numa_nodes) - 1
        combinations = ((1 << numa_nodes) - 1) ** providers
        ours = 1 / _rate(lambda ls=lists, d=default: merge(ls, d, None))  # type: ignore[misc]
        row = [f"{numa_nodes}", f"{providers}", f"{combinations:.3g}"]
        if combinations < 300_000:
            began = time.perf_counter()
            walked = _walk(lists, default)
            seconds = time.perf_counter() - began
            assert tuple(merge(lists, default, None)[0]) == walked
            row += [f"{seconds * 1e3:.3g} ms", f"{ours * 1e6:.3g} µs", f"{seconds / ours:,.0f} x"]
        else:
            row += ["not walked", f"{ours * 1e6:.3g} µs", ""]
        table.add_row(*row)
    console.print(table)
