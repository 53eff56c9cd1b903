"""`numa-extender machines`."""

import click
from rich.console import RenderableType

from extender.cli.client import ExtenderClient, client_options
from extender.cli.output import output_option, show
from extender.cli.render import new_table
from extender.cli.units import amount, short


@click.command(short_help="List the machines of the catalogue.")
@output_option
@client_options
def machines(*, output: str, client: ExtenderClient) -> None:
    """List the machines of the catalogue, for --machine of the other commands."""
    show(output, client.get("/v1/machines")["machines"], _table)


def _table(found: list[dict[str, object]]) -> RenderableType:
    table = new_table("machine", "CPUs", "NUMA nodes", "memory", "devices", "")
    for each in found:
        devices = each["devices"]
        assert isinstance(devices, dict)
        assert isinstance(each["memory_bytes"], int)
        table.add_row(
            str(each["name"]),
            str(each["cpus"]),
            str(each["numa_nodes"]),
            amount(each["memory_bytes"]),
            ", ".join(f"{count} {short(resource)}" for resource, count in devices.items()),
            str(each["about"]),
        )
    return table
