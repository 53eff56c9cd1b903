"""`numa-extender nodes`."""

from typing import Any

import click

from extender.api.nodes.models import NodeSummary
from extender.cli.client import ExtenderClient, client_options
from extender.cli.output import show
from extender.cli.render import nodes_table
from extender.kubelet.config import TopologyPolicy


@click.command(short_help="List nodes with what is free on each NUMA node.")
@click.option("--name", default="", help="Only names that contain this text.")
@click.option(
    "--policy", type=click.Choice([each.value for each in TopologyPolicy]), help="Only nodes with this policy."
)
@click.option(
    "--min-free-cpus", type=click.IntRange(min=0), default=0, help="Only nodes with at least this many free CPUs."
)
@client_options
def nodes(*, client: ExtenderClient, **filters: str | int | None) -> None:
    """List nodes with their kubelet, policy, and free resources by NUMA node."""
    given = {name: value for name, value in filters.items() if value is not None}
    show(client.output, _all(client, given), list[NodeSummary], nodes_table)


def _all(client: ExtenderClient, filters: dict[str, str | int]) -> list[Any]:
    """The nodes of all pages."""
    found: list[Any] = []
    after = ""
    while True:
        page = client.get("/v1/nodes", {**filters, "after": after})
        found += page["nodes"]
        after = page["next"]
        if after is None:
            return found
