"""`numa-extender nodes`."""

from typing import Any

import click

from extender.api.nodes.models import NodeSummary
from extender.cli.client import ExtenderClient, client_options
from extender.cli.output import output_option, show
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
@output_option
@client_options
def nodes(
    *,
    name: str,
    policy: str | None,
    min_free_cpus: int,
    output: str,
    client: ExtenderClient,
) -> None:
    """List nodes with their kubelet, policy, and free resources by NUMA node."""
    filters: dict[str, str | int] = {"name": name, "min_free_cpus": min_free_cpus}
    if policy is not None:
        filters["policy"] = policy
    show(output, _all(client, filters), list[NodeSummary], nodes_table)


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
