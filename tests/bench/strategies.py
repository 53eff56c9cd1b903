"""What each strategy costs: CPU time of filter and of prioritize for a new pod shape, beside the default strategy.

    python -m tests.bench.strategies [--nodes 5000]

Every node has a state of its own. The clusters are alike; compare the columns of one run. `in the cluster`: all nodes
are named, as with `percentageOfNodesToScore: 100`. `sampled`: 500 of them, as kube-scheduler asks by default.
"""

import asyncio
import itertools
import random

import click
from rich.console import Console
from rich.table import Table

from extender.app import set_up_collector
from extender.scheduling.ranking.strategies import STRATEGIES
from tests.bench.filter_http import node_names
from tests.bench.many_nodes import Cluster, Rows, _new
from tests.bench.states import own_states
from tests.reports import pod_of

SAMPLE = 500


async def measured(strategy: str, nodes: int) -> Rows:
    """CPU milliseconds of each call with the strategy."""
    cluster = Cluster(own_states(), strategy)
    await cluster.grow(random.Random(2).sample(node_names(nodes), nodes))
    rows = await _calls(cluster, "in the cluster")
    cluster.names = cluster.names[:SAMPLE]
    return rows | await _calls(cluster, "sampled")


async def _calls(cluster: Cluster, where: str) -> Rows:
    calls, numbers, same = cluster.calls, itertools.count(random.getrandbits(16)), pod_of(8, "16Gi", name="same")
    return {
        f"filter, new shape, {where}": await cluster.filtered(lambda: _new(next(numbers), 24, 48)),
        f"filter, new shape, two containers, {where}": await cluster.filtered(lambda: _new(next(numbers), 4, 8, 2)),
        f"filter, repeated, {where}": await cluster.filtered(lambda: same),
        f"prioritize, new shape, {where}": await cluster.timed(calls.prioritize, lambda: _new(next(numbers), 4, 8)),
        f"prioritize, repeated, {where}": await cluster.timed(calls.prioritize, lambda: same),
    }


@click.command()
@click.option("--nodes", default=5000, type=click.IntRange(SAMPLE), show_default=True)
def main(nodes: int) -> None:
    """The calls as rows, the strategies as columns."""
    set_up_collector()
    found = {strategy: asyncio.run(measured(strategy, nodes)) for strategy in STRATEGIES}
    table = Table(title=f"CPU ms of a call, {nodes:,} nodes, and times that of {STRATEGIES[0]}")
    table.add_column("request")
    for strategy in STRATEGIES:
        table.add_column(strategy, justify="right")
    for what, base in found[STRATEGIES[0]].items():
        table.add_row(what, *(f"{found[each][what]:.2f} ({found[each][what] / base:.1f})" for each in STRATEGIES))
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
