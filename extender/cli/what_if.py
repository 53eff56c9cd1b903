"""`numa-extender what-if`."""

from pathlib import Path
from typing import Any

import click
from rich.console import Group

from extender.answers.what_if import WhatIfReply, WhatIfRequest
from extender.cli.asking import ask
from extender.cli.client import ExtenderClient, client_options
from extender.cli.exits import end, exit_code_option, of_counts
from extender.cli.output import show
from extender.cli.questions import field_options, manifest_option, node_options, nodes_of, read_manifests
from extender.cli.render import pod_line, steps_text, what_if_table


@click.command("what-if", short_help="Show what each node's kubelet would do with a pod.")
@manifest_option
@node_options
@field_options(WhatIfRequest, "explain")
@exit_code_option
@client_options
def what_if(files: tuple[Path, ...], *, explain: bool, exit_code: bool, client: ExtenderClient, **nodes: Any) -> None:
    """Show what each node's kubelet would do with a pod: where it would place the pod, or why it would refuse it.

    The nodes are all live ones, those of --node, or hypothetical ones: a changed --copy of a live node, or a --machine
    of the catalogue. Nothing in the cluster changes.
    """
    about = nodes_of(**nodes)
    stories = [lambda read: Group(*map(steps_text, read.nodes))] if explain else []
    worst = 0
    for pod in read_manifests(files):
        question = {"pod": pod.document, "explain": explain, **about}
        (reply,) = ask(client, "/v1/what-if", question, [pod], **nodes)
        show(client.output, reply, WhatIfReply, lambda read: pod_line(read.pod), what_if_table, *stories)
        worst = max(worst, of_counts(reply["summary"]))
    end(worst, wanted=exit_code)
