"""`numa-extender plan`."""

from pathlib import Path
from typing import Any

import click

from extender.cli.client import ExtenderClient, client_options
from extender.cli.exits import end, exit_code_option, of_plan
from extender.cli.output import output_option, show
from extender.cli.questions import (
    manifest_option,
    naming_what_was_typed,
    node_options,
    nodes_of,
    read_manifests,
)
from extender.cli.render import WholePlan, plan_table


@click.command(short_help="Show where each pod of a list would go.")
@manifest_option
@node_options
@click.option("--all-or-nothing", is_flag=True, help="If one pod has no node, place none.")
@exit_code_option
@output_option
@client_options
def plan(
    files: tuple[Path, ...],
    *,
    all_or_nothing: bool,
    exit_code: bool,
    output: str,
    client: ExtenderClient,
    **nodes: Any,
) -> None:
    """Show where each pod would go. Pods are placed one after another, as many of each workload as it has replicas.

    The extender's own ranking decides. kube-scheduler also uses other scores, and may choose other nodes.
    """
    manifests = read_manifests(files)
    question = {
        "pods": [{"pod": pod.document} for pod in manifests],
        "all_or_nothing": all_or_nothing,
        **nodes_of(**nodes),
    }
    with naming_what_was_typed(manifests, **nodes):
        *pods, last = client.lines("/v1/plan", question)
    show(output, {**last, "pods": pods}, WholePlan, plan_table)
    end(of_plan(last["summary"]), wanted=exit_code)
