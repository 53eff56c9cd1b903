"""Filter and prioritize over HTTP of pods that demand alignment, and of pods of groups, next to the same single pods.

    python -m tests.bench.demands [--nodes 5000] [--policy best-effort] [--states shared|own]

Calls alternate, and so does which kind comes first, so that other work on the machine meets both. A call's cost is the
CPU time of the server, see `filter_http`. `first` is a pod shape that was never asked for; `repeated` is one that was.
On nodes with policy `best-effort` a demand refuses what the kubelet would admit and split; with `single-numa-node` it
changes no answer. A pod of a group is offered one node only. Single pods are filtered before each group, when nothing
is held, and beside its places.
"""

import http.client
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from extender.samples.nodes import SampleNode
from tests.bench.filter_http import GROUP_SIZE, HOLD_SECONDS, KINDS, call, cpu_ms, load, node_names, served
from tests.bench.states import full_report_of, own_states, shared_states
from tests.reports import args_of, pod_of

NODES = 5000
FIRST_CALLS, REPEATED_CALLS, GROUPS = 20, 150, 40
WARM_UP_CALLS, WARM_UP_GROUPS = 20, 3
DEMANDS: dict[str, dict[str, str]] = {
    "one NUMA node": {"alignment": "single-numa-node"},
    "one NUMA node for the pod, local memory": {
        "alignment": "single-numa-node",
        "alignment-scope": "pod",
        "memory": "no-remote-memory",
    },
}
Json = dict[str, Any]


def run(console: Console) -> None:
    """Measure and print."""
    for policy in ("single-numa-node", "best-effort"):
        measure(NODES, policy, "own", console)


def measure(count: int, policy: str, kind: str, console: Console) -> None:
    """Measure a cluster of *count* nodes of this policy; *kind*: one of `KINDS`."""
    states: Iterator[SampleNode] = itertools.cycle(shared_states()) if kind == "shared" else own_states()
    with served("tests.bench.server") as (port, pid):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        documents = (full_report_of(state) for state in states)
        reports = ((name, _with_policy(next(documents), policy)) for name in node_names(count))
        names = load(connection, reports, console)
        table = Table(title=f"{count} nodes, {KINDS[kind]}, {policy}: CPU ms of a call")
        for heading in ("demand", "request", "without", "with", "x without"):
            table.add_column(heading, justify="left" if heading in ("demand", "request") else "right")
        for demand, annotations in DEMANDS.items():
            for what, (verb, is_new, calls) in _ROWS.items():
                pair = partial(_pair, annotations, is_new=is_new)
                plain, demanding = _alternate(connection, pid, names, f"/scheduler/{verb}", pair, calls)
                table.add_row(demand, what, f"{plain:.2f}", f"{demanding:.2f}", f"{demanding / plain:.2f}")
        plain, grouped, beside = _of_groups(connection, pid, names)
        for label, cost in ((f"pods of groups of {GROUP_SIZE}", grouped), ("single pods beside held places", beside)):
            table.add_row(label, "filter, repeated", f"{plain:.2f}", f"{cost:.2f}", f"{cost / plain:.2f}")
        console.print(table)


_ROWS = {
    "filter, first": ("filter", True, FIRST_CALLS),
    "filter, repeated": ("filter", False, REPEATED_CALLS),
    "prioritize, first": ("prioritize", True, FIRST_CALLS),
    "prioritize, repeated": ("prioritize", False, REPEATED_CALLS),
}
_NUMBERS = itertools.count()


def _with_policy(document: Json, policy: str) -> Json:
    return {**document, "kubelet": {**document["kubelet"], "topologyManagerPolicy": policy}}


def _pair(annotations: dict[str, str], *, is_new: bool) -> tuple[Json, Json]:
    """The same pod without a demand and with it."""
    number = next(_NUMBERS)
    cpus, memory = (2 + number % 24, f"{1024 + number}Mi") if is_new else (8, "16Gi")
    plain, demanding = (pod_of(cpus, memory, name=f"{kind}-{number}") for kind in ("plain", "demanding"))
    demanding["metadata"]["annotations"] = {f"numa-extender.io/{key}": value for key, value in annotations.items()}
    return plain, demanding


def _of_groups(connection: http.client.HTTPConnection, pid: int, names: list[str]) -> tuple[float, float, float]:
    """The median CPU milliseconds of filter for single pods, for pods of groups, and for single pods meanwhile.

    Before the pods of a group come, the places of the last one are given back, and as many single pods come.
    """
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    for group in range(WARM_UP_GROUPS + GROUPS):
        time.sleep(2 * HOLD_SECONDS)
        numbers = range(group * GROUP_SIZE, (group + 1) * GROUP_SIZE)
        calls = [(found[0], pod_of(8, "16Gi", name=f"single-{number}")) for number in numbers]
        for number in numbers:
            grouped = pod_of(8, "16Gi", name=f"grouped-{number}")
            grouped["metadata"]["annotations"] = {
                "numa-extender.io/group": f"g-{group}",
                "numa-extender.io/group-size": str(GROUP_SIZE),
            }
            calls += [(found[1], grouped), (found[2], pod_of(8, "16Gi", name=f"beside-{number}"))]
        for times, pod in calls:
            cost = _cost(connection, pid, "/scheduler/filter", pod, names)
            if group >= WARM_UP_GROUPS:
                times.append(cost)
    first, second, third = map(statistics.median, found)
    return first, second, third


def _alternate(
    connection: http.client.HTTPConnection,
    pid: int,
    names: list[str],
    path: str,
    pair: Callable[[], tuple[Json, Json]],
    calls: int,
) -> tuple[float, float]:
    """The median CPU milliseconds of calls for the first of each pair, and for the second."""
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(WARM_UP_CALLS + calls):
        both = list(zip(found, pair(), strict=True))
        for times, pod in both if turn % 2 else reversed(both):
            cost = _cost(connection, pid, path, pod, names)
            if turn >= WARM_UP_CALLS:
                times.append(cost)
    return statistics.median(found[0]), statistics.median(found[1])


def _cost(connection: http.client.HTTPConnection, pid: int, path: str, pod: Json, names: list[str]) -> float:
    """The CPU milliseconds of one call with the names in another order."""
    random.shuffle(names)
    body = orjson.dumps(args_of(pod, *names))
    before = cpu_ms(pid)
    call(connection, "POST", path, body)
    return cpu_ms(pid) - before


@click.command()
@click.option("--nodes", default=NODES, show_default=True, type=click.IntRange(20))
@click.option("--policy", default="best-effort", show_default=True)
@click.option("--states", type=click.Choice(list(KINDS)), default="own", show_default=True)
def main(nodes: int, policy: str, states: str) -> None:
    """Measure and print."""
    measure(nodes, policy, states, Console(width=110 if not sys.stdout.isatty() else None))


if __name__ == "__main__":
    main()
