"""`numa-extender capacity`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from extender.answers.capacity import CapacityReply
from extender.cli.client import ExtenderClient, client_options
from extender.cli.exits import end, exit_code_option, of_counts
from extender.cli.output import console_for, output_option, show
from extender.cli.questions import (
    manifest_option,
    naming_what_was_typed,
    node_options,
    nodes_of,
    read_manifests,
)
from extender.cli.render import capacity_table


@click.command(short_help="Show how many copies of a pod fit on each node.")
@manifest_option
@node_options
@click.option(
    "--max-copies",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="Largest number of copies per node.",
)
@click.option("--group", type=click.IntRange(1, 10_000), default=1, help="Also count whole groups of so many pods.")
@exit_code_option
@output_option
@client_options
def capacity(
    files: tuple[Path, ...],
    *,
    max_copies: int,
    group: int,
    exit_code: bool,
    output: str,
    client: ExtenderClient,
    **nodes: Any,
) -> None:
    """Show how many copies of a pod fit now on each node, and what runs out first.

    Several -f are a mix of pods, which are added in turn.
    """
    manifests = read_manifests(files)
    counted = {"max_copies": max_copies, "group": group}
    question = {"pods": [pod.document for pod in manifests], **counted, **nodes_of(**nodes)}
    total = client.get("/v1/nodes", {"limit": 1})["total"] if sys.stderr.isatty() else None
    with naming_what_was_typed(manifests, **nodes):
        *answers, last = _counted(client.lines("/v1/capacity", question), total)
    show(output, {**last, "nodes": answers}, CapacityReply, capacity_table)
    end(of_counts(last["summary"]), wanted=exit_code)


def _counted(lines: Iterator[Any], total: int | None) -> Iterator[Any]:
    """The lines, with a progress bar on a terminal."""
    if total is None:
        yield from lines
        return
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TextColumn("nodes"))
    with Progress(*columns, console=console_for(stderr=True), transient=True) as progress:
        yield from progress.track(lines, total=total)
