"""`numa-extender map`."""

from pathlib import Path
from urllib.parse import quote

import click

from extender.cli.client import client_options, complete_node, open_client
from extender.cli.output import output_option, show
from extender.cli.render_map import node_map


@click.command("map")
@click.argument("node", shell_complete=complete_node)
@output_option
@client_options
def map_(
    *, node: str, output: str, server: str, token_file: Path | None, ca_file: Path | None, reports: tuple[Path, ...]
) -> None:
    """The NUMA map of NODE: sockets, NUMA nodes, CPUs by holder, memory and devices."""
    with open_client(server=server, token_file=token_file, ca_file=ca_file, reports=reports) as client:
        detail = client.get(f"/v1/nodes/{quote(node, safe='')}")
    show(output, detail, node_map)
