"""`numa-extender capacity`."""

import sys
from pathlib import Path
from typing import Any

import click

from extender.answers.capacity import CapacityReply, CapacityRequest
from extender.cli.asking import ask
from extender.cli.client import ExtenderClient, client_options
from extender.cli.exits import end, exit_code_option, of_counts
from extender.cli.output import show
from extender.cli.questions import field_options, manifest_option, node_options, nodes_of, read_manifests
from extender.cli.render import capacity_table


@click.command(short_help="Show how many copies of a pod fit on each node.")
@manifest_option
@node_options
@field_options(CapacityRequest, "max_copies", "group")
@exit_code_option
@client_options
def capacity(
    files: tuple[Path, ...],
    *,
    max_copies: int,
    group: int,
    exit_code: bool,
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
    *answers, last = ask(client, "/v1/capacity", question, manifests, shows_progress=True, total=total, **nodes)
    show(client.output, {**last, "nodes": answers}, CapacityReply, capacity_table)
    end(of_counts(last["summary"]), wanted=exit_code)
