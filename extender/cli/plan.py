"""`numa-extender plan`."""

from pathlib import Path
from typing import Any

import click

from extender.cli.asking import asking, asking_options
from extender.cli.exits import end, exit_code_option, of_plan
from extender.cli.output import output_option, show
from extender.cli.questions import manifest_option, node_options, nodes_of, read_manifests
from extender.cli.render import plan_table


@click.command()
@manifest_option
@node_options
@click.option("--all-or-nothing", is_flag=True, help="If one pod finds no node, none is placed.")
@exit_code_option
@output_option
@asking_options
def plan(
    files: tuple[Path, ...],
    *,
    all_or_nothing: bool,
    exit_code: bool,
    output: str,
    server: str,
    token_file: Path | None,
    ca_file: Path | None,
    reports: tuple[Path, ...],
    **nodes: Any,
) -> None:
    """Where each pod would go, one after another, as many of each workload as it has replicas.

    The pods are placed by the extender's own ranking; kube-scheduler, which ranks by more, may choose other nodes.
    """
    question = {
        "pods": [{"pod": pod} for pod in read_manifests(files)],
        "all_or_nothing": all_or_nothing,
        **nodes_of(**nodes),
    }
    with asking(server=server, token_file=token_file, ca_file=ca_file, reports=reports) as asker:
        *pods, last = asker.lines("/v1/plan", question)
    show(output, {**last, "pods": pods}, plan_table)
    end(of_plan(last["summary"]), wanted=exit_code)
