"""`numa-extender demo`."""

import click

from extender.cli.output import console_for
from extender.demo.run import WIDTH, run_demo


@click.command()
@click.option("--once", is_flag=True, help="End after the tables, and do not continue to serve.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9600,
    show_default=True,
    help="TCP port; a free one if this one is taken.",
)
def demo(*, once: bool, host: str, port: int) -> None:
    """Show on a sample cluster the ranking by totals, the verdicts of the kubelets, and the answer of numa-extender."""
    run_demo(console_for(markup=True, width=WIDTH), host=host, port=port, once=once)
