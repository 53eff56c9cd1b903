"""One pod: the ranking of nodes by totals, the verdicts of their kubelets, and the answer of the running extender."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from extender.kubelet.sets import parse_list
from extender.samples.nodes import SampleNode, requested_milli
from extender.wire.quantity import parse_milli

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What kube-scheduler knows of a node. `free_milli`: allocatable minus requested, in thousandths.

    `rank` is 1 for the node with the highest score of NodeResourcesFit (LeastAllocated, the default).
    """

    free_milli: Mapping[str, int]
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One node of the table. `answer`: the node's part of /v1/what-if. `detail`: /v1/nodes/NAME."""

    node: SampleNode
    totals: Totals
    answer: Json
    detail: Json
    score: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The pod and its nodes, in the order of kube-scheduler's ranking by totals.

    `left_out`: nodes that kube-scheduler does not send to an extender, because the pod does not fit by totals, or
    because a taint reserves them for pods that request their devices.
    """

    pod: Json
    rows: Sequence[Row]
    left_out: Sequence[SampleNode]

    @property
    def choice_by_totals(self) -> Row:
        """The node that kube-scheduler alone would have chosen."""
        return self.rows[0]

    @property
    def choice(self) -> Row | None:
        """The node that kube-scheduler chooses with numa-extender. None: no node passes.

        Among nodes with the same score it chooses the one that kube-scheduler ranks best by itself.
        """
        offered = [row for row in self.rows if row.score is not None]
        return max(offered, key=lambda row: row.score or 0, default=None)


def ask(client: httpx.Client, nodes: Sequence[SampleNode], pod: Json) -> Story:
    """Call filter and prioritize as kube-scheduler does, and what-if for the reasons."""
    totals = _totals(nodes, requested_milli(pod))
    candidates = sorted((n for n in nodes if n.name in totals), key=lambda n: totals[n.name].rank)
    names = [node.name for node in candidates]
    args = {"Pod": pod, "Nodes": None, "NodeNames": names}
    filtered = _post(client, "/scheduler/filter", args)
    if filtered["Error"]:
        raise RuntimeError(filtered["Error"])
    ranked = _post(client, "/scheduler/prioritize", {**args, "NodeNames": filtered["NodeNames"]})
    scores = {entry["Host"]: entry["Score"] for entry in ranked}
    answers = {each["node"]: each for each in _post(client, "/v1/what-if", {"pod": pod, "nodes": names})["nodes"]}
    rows = [
        Row(
            node=node,
            totals=totals[node.name],
            answer=answers[node.name],
            detail=client.get(f"/v1/nodes/{node.name}").raise_for_status().json(),
            score=scores.get(node.name),
        )
        for node in candidates
    ]
    return Story(pod=pod, rows=rows, left_out=[node for node in nodes if node.name not in totals])


def _post(client: httpx.Client, path: str, document: Json) -> Any:  # noqa: ANN401 - JSON
    return client.post(path, json=document).raise_for_status().json()


def _totals(nodes: Sequence[SampleNode], wanted: Mapping[str, int]) -> dict[str, Totals]:
    """Free totals and rank of the nodes on which the pod fits by totals."""
    liked: dict[str, float] = {}
    free = {node.name: _free(node) for node in nodes}
    for node in nodes:
        amounts, devices = free[node.name], node.description.devices
        is_kept_for_others = bool(devices) and not devices.keys() & wanted.keys()
        if not is_kept_for_others and all(amounts.get(r, 0) >= amount for r, amount in wanted.items()):
            allocatable = _allocatable(node)
            liked[node.name] = sum((amounts[r] - wanted[r]) / allocatable[r] for r in ("cpu", "memory"))
    best_first = sorted(liked, key=lambda name: -liked[name])
    return {name: Totals(free_milli=free[name], rank=rank) for rank, name in enumerate(best_first, start=1)}


def _allocatable(node: SampleNode) -> dict[str, int]:
    """node.status.allocatable, in thousandths."""
    machine, config = node.kubelet.machine, node.kubelet.config
    memory = sum(n.memory_bytes - sum(s * p for s, p in n.hugepages.items()) for n in machine.numa_nodes)
    amounts = {resource: 1000 * len(devices) for resource, devices in node.state.devices.devices.items()}
    amounts["cpu"] = 1000 * machine.num_cpus - config.reservation_cpu_milli
    amounts["memory"] = 1000 * (memory - config.reservation_bytes["memory"])
    return amounts


def _free(node: SampleNode) -> dict[str, int]:
    free = _allocatable(node)
    for pod in node.pods:
        for resource, amount in requested_milli(pod).items():
            free[resource] = free.get(resource, 0) - amount
    return free


def why_refused(row: Row, pod: Json) -> str:
    """Why the pod does not fit on a node with sufficient totals, with amounts."""
    wanted = {name: parse_milli(amount, name) // 1000 for name, amount in _limits(pod).items()}
    numa = row.detail["topology"]
    per_numa = {
        "cpu": [_count(each["free_cpus"]) for each in numa],
        "memory": [each["memory"].get("memory", {}).get("free", 0) for each in numa],
    }
    for resource, devices in row.detail["device_list"].items():
        per_numa[resource] = [sum(_is_free(d) and each["id"] in d["numa"] for d in devices) for each in numa]
    for resource, amount in wanted.items():
        most = max(per_numa.get(resource, [0]))
        if most < amount:
            return f"{_named(resource, amount)} wanted, at most {_named(resource, most)} free on one NUMA node"
    places = [f"{_short(r)} on {_ids(numa, per_numa[r], amount)}" for r, amount in wanted.items() if r in per_numa]
    return f"free, but not together: {', '.join(places)}"


def numa_of(row: Row, cpus: str) -> list[int]:
    """The NUMA nodes of the CPUs in a Linux list."""
    wanted = parse_list(cpus)
    return [each["id"] for each in row.detail["topology"] if wanted & parse_list(each["cpus"])]


def _limits(pod: Json) -> dict[str, str]:
    limits: dict[str, str] = pod["spec"]["containers"][0]["resources"]["limits"]
    return limits


def _is_free(device: Json) -> bool:
    return device["healthy"] and device["held_by"] is None


def _ids(numa: Sequence[Json], free: Sequence[int], amount: int) -> str:
    ids = ",".join(str(each["id"]) for each, there in zip(numa, free, strict=True) if there >= amount)
    return f"NUMA {ids}"


def _count(cpus: str) -> int:
    return parse_list(cpus).bit_count()


def _named(resource: str, amount: int) -> str:
    if resource == "memory":
        return f"{amount >> 30} GiB"
    return f"{amount} CPUs" if resource == "cpu" else f"{amount} {_short(resource)}"


def _short(resource: str) -> str:
    return {"cpu": "CPUs"}.get(resource, resource.rpartition("/")[2])
