"""`numa-extender what-if`."""

from pathlib import Path
from typing import Any

import click
from rich.console import Group

from extender.answers.what_if import WhatIfReply
from extender.cli.client import ExtenderClient, client_options
from extender.cli.exits import end, exit_code_option, of_counts
from extender.cli.output import output_option, show
from extender.cli.questions import (
    manifest_option,
    naming_what_was_typed,
    node_options,
    nodes_of,
    read_manifests,
)
from extender.cli.render import pod_line, steps_text, what_if_table


@click.command("what-if", short_help="Show what each node's kubelet would do with a pod.")
@manifest_option
@node_options
@click.option("--explain", is_flag=True, help="Show each step of the kubelet, and similar requests that fit.")
@exit_code_option
@output_option
@client_options
def what_if(
    files: tuple[Path, ...],
    *,
    explain: bool,
    exit_code: bool,
    output: str,
    client: ExtenderClient,
    **nodes: Any,
) -> None:
    """Show what each node's kubelet would do with a pod: where it would place the pod, or why it would refuse it.

    The nodes are all live ones, those of --node, or hypothetical ones: a changed --copy of a live node, or a --machine
    of the catalogue. Nothing in the cluster changes.
    """
    about = nodes_of(**nodes)
    worst = 0
    for pod in read_manifests(files):
        with naming_what_was_typed([pod], **nodes):
            reply = client.post("/v1/what-if", {"pod": pod.document, "explain": explain, **about})
        stories = [_stories] if explain else []
        show(output, reply, WhatIfReply, lambda read: pod_line(read.pod), what_if_table, *stories)
        worst = max(worst, of_counts(reply["summary"]))
    end(worst, wanted=exit_code)


def _stories(reply: WhatIfReply) -> Group:
    return Group(*map(steps_text, reply.nodes))
