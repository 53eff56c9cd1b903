"""`numa-extender machines`."""

from collections.abc import Iterable

import click
from rich.console import RenderableType

from extender.api.questions.machines import MachineShape
from extender.cli.client import ExtenderClient, client_options
from extender.cli.output import show
from extender.cli.render import new_table
from extender.cli.units import amount, short


@click.command(short_help="List the machines of the catalogue.")
@client_options
def machines(*, client: ExtenderClient) -> None:
    """List the machines of the catalogue, for --machine of the other commands."""
    show(client.output, client.get("/v1/machines")["machines"], list[MachineShape], _table)


def _table(found: Iterable[MachineShape]) -> RenderableType:
    table = new_table("machine", "CPUs", "NUMA nodes", "memory", "devices", "")
    for each in found:
        table.add_row(
            each.name,
            str(each.cpus),
            str(each.numa_nodes),
            amount(each.memory_bytes),
            ", ".join(f"{count} {short(resource)}" for resource, count in each.devices.items()),
            each.about,
        )
    return table
