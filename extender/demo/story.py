"""One pod: the ranking of nodes by totals, the verdicts of their kubelets, and the answer of the running extender."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from extender.samples.nodes import SampleNode
from extender.scheduling.node_totals import add, node_allocatable, pod_requests, shortages
from extender.wire.pods import pod_from_json

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One node of the table. `free_milli`: allocatable minus requested. `answer`: the node's part of /v1/what-if."""

    node: SampleNode
    free_milli: Mapping[str, int]
    answer: Json
    score: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The pod and its nodes, in the order of kube-scheduler's ranking by totals (LeastAllocated, the default).

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
    free = _free_totals(nodes, _requested_milli(pod))
    names = list(free)
    args = {"Pod": pod, "Nodes": None, "NodeNames": names}
    filtered = _post(client, "/scheduler/filter", args)
    if filtered["Error"]:
        raise RuntimeError(filtered["Error"])
    ranked = _post(client, "/scheduler/prioritize", {**args, "NodeNames": filtered["NodeNames"]})
    scores = {entry["Host"]: entry["Score"] for entry in ranked}
    answers = {each["node"]: each for each in _post(client, "/v1/what-if", {"pod": pod, "nodes": names})["nodes"]}
    known = {node.name: node for node in nodes}
    rows = [
        Row(node=known[name], free_milli=free[name], answer=answers[name], score=scores.get(name)) for name in names
    ]
    return Story(pod=pod, rows=rows, left_out=[node for node in nodes if node.name not in free])


def _post(client: httpx.Client, path: str, document: Json) -> Any:  # noqa: ANN401 - JSON
    return client.post(path, json=document).raise_for_status().json()


def _free_totals(nodes: Sequence[SampleNode], wanted: Mapping[str, int]) -> dict[str, Mapping[str, int]]:
    """Free totals of the nodes on which the pod fits by totals; the one that NodeResourcesFit likes best is first."""
    liked: dict[str, tuple[float, Mapping[str, int]]] = {}
    for node in nodes:
        allocatable, devices = node_allocatable(node.kubelet, node.state.devices), node.description.devices
        free: Mapping[str, int] = allocatable
        for pod in node.pods:
            free = add(free, {name: -amount for name, amount in _requested_milli(pod).items()})
        is_kept_for_others = bool(devices) and not devices.keys() & wanted.keys()
        if not is_kept_for_others and next(shortages(wanted, free, {}), None) is None:
            liked[node.name] = sum((free[r] - wanted[r]) / allocatable[r] for r in ("cpu", "memory")), free
    return {name: liked[name][1] for name in sorted(liked, key=lambda name: -liked[name][0])}


def _requested_milli(pod: Json) -> Mapping[str, int]:
    return pod_requests(pod_from_json(pod), {})
