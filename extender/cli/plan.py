"""`numa-extender plan`."""

from pathlib import Path
from typing import Any

import click

from extender.answers.capacity import PlanRequest
from extender.cli.asking import ask
from extender.cli.client import ExtenderClient, client_options
from extender.cli.exits import end, exit_code_option, of_plan
from extender.cli.output import show
from extender.cli.questions import field_options, manifest_option, node_options, nodes_of, read_manifests
from extender.cli.render import WholePlan, plan_table


@click.command(short_help="Show where each pod of a list would go.")
@manifest_option
@node_options
@field_options(PlanRequest, "all_or_nothing")
@exit_code_option
@client_options
def plan(
    files: tuple[Path, ...], *, all_or_nothing: bool, exit_code: bool, client: ExtenderClient, **nodes: Any
) -> None:
    """Show where each pod would go. Pods are placed one after another, as many of each workload as it has replicas.

    The extender's own ranking decides. kube-scheduler also uses other scores, and may choose other nodes.
    """
    manifests = read_manifests(files)
    pods = [{"pod": pod.document} for pod in manifests]
    question = {"pods": pods, "all_or_nothing": all_or_nothing, **nodes_of(**nodes)}
    *placed, last = ask(client, "/v1/plan", question, manifests, **nodes)
    show(client.output, {**last, "pods": placed}, WholePlan, plan_table)
    end(of_plan(last["summary"]), wanted=exit_code)
