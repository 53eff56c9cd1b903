"""`numa-extender nodes`."""

from pathlib import Path
from typing import Any

import click

from extender.cli.client import ExtenderClient, client_options, open_client
from extender.cli.output import output_option, show
from extender.cli.render import nodes_table
from extender.replay.config import TopologyPolicy


@click.command()
@click.option("--name", default="", help="Only names that contain this text.")
@click.option(
    "--policy", type=click.Choice([each.value for each in TopologyPolicy]), help="Only nodes with this policy."
)
@click.option("--min-free-cpus", type=click.IntRange(min=0), default=0, help="Only nodes with that many free CPUs.")
@output_option
@client_options
def nodes(
    *,
    name: str,
    policy: str | None,
    min_free_cpus: int,
    output: str,
    server: str,
    token_file: Path | None,
    ca_file: Path | None,
    reports: tuple[Path, ...],
) -> None:
    """All nodes: kubelet, policy, what is free where."""
    filters: dict[str, str | int] = {"name": name, "min_free_cpus": min_free_cpus}
    if policy is not None:
        filters["policy"] = policy
    with open_client(server=server, token_file=token_file, ca_file=ca_file, reports=reports) as client:
        found = _all(client, filters)
    show(output, found, nodes_table)


def _all(client: ExtenderClient, filters: dict[str, str | int]) -> list[Any]:
    """Every page."""
    found: list[Any] = []
    after = ""
    while True:
        page = client.get("/v1/nodes", {**filters, "after": after})
        found += page["nodes"]
        after = page["next"]
        if after is None:
            return found
