"""`numa-extender nodes`."""

from pathlib import Path
from typing import Any

import click

from extender.cli.asking import Asker, asking, asking_options
from extender.cli.output import output_option, show
from extender.cli.render import nodes_table


@click.command()
@click.option("--name", default="", help="Only names that contain this text.")
@click.option("--policy", help="Only nodes with this topology policy.")
@click.option("--min-free-cpus", type=click.IntRange(min=0), default=0, help="Only nodes with that many free CPUs.")
@output_option
@asking_options
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
    with asking(server=server, token_file=token_file, ca_file=ca_file, reports=reports) as asker:
        found = _all(asker, filters)
    show(output, found, nodes_table)


def _all(asker: Asker, filters: dict[str, str | int]) -> list[Any]:
    """Every page."""
    found: list[Any] = []
    after = ""
    while True:
        page = asker.get("/v1/nodes", {**filters, "after": after})
        found += page["nodes"]
        after = page["next"]
        if after is None:
            return found
