"""`numa-extender map`."""

from urllib.parse import quote

import click

from extender.api.nodes.models import NodeDetail
from extender.cli.client import ExtenderClient, client_options, complete_node
from extender.cli.output import show
from extender.cli.render_map import node_map


@click.command("map", short_help="Show the NUMA map of a node.")
@click.argument("node", shell_complete=complete_node)
@client_options
def map_(*, node: str, client: ExtenderClient) -> None:
    """Show the NUMA map of NODE: sockets, NUMA nodes, CPUs by pod, memory and devices."""
    show(client.output, client.get(f"/v1/nodes/{quote(node, safe='')}"), NodeDetail, node_map)
