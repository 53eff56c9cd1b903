"""`numa-extender resize-check`."""

import json

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.answers.resize_check import ResizeCheckReply, ResizeCheckRequest
from extender.answers.words import plural
from extender.cli.asking import advise, next_text, notes_text, placement_text
from extender.cli.client import ExtenderClient, client_options
from extender.cli.questions import field_options
from extender.cli.render import new_table


@click.command(short_help="Show whether a kubelet would accept an in-place resize.")
@click.argument("pod", metavar="NAMESPACE/NAME")
@field_options(ResizeCheckRequest, "container", "cpu", "memory")
@client_options
def resize_check(*, client: ExtenderClient, **question: str | None) -> None:
    """Whether the kubelet would accept an in-place resize, and where the pod would go instead.

    Nothing in the cluster changes.
    """
    advise(client, "resize-check", question, ResizeCheckReply, _table)


def _table(answer: ResizeCheckReply) -> RenderableType:
    changes = ", ".join(f"{name} {answer.before[name]} to {amount}" for name, amount in answer.after.items())
    head = Text(f"{answer.pod} on {answer.node}, container {answer.container}: {changes}\n")
    if answer.result == "fits":
        head.append("✓ fits in place", "green")
    else:
        head.append(f"✗ {answer.result}", "red").append(f": {answer.reason}", "")
    if answer.exclusive_cpus:
        head.append(f"\nthe container keeps its CPUs {answer.exclusive_cpus}", "")
    table = new_table("if recreated on", "placement, or why not")
    own = answer.recreated
    table.add_row(Text(f"{own.node} (its own)"), Text(placement_text(own)))
    for each in answer.elsewhere:
        table.add_row(Text(each.node), Text(placement_text(each)))
    others = answer.other_nodes
    count = Text(f"{plural(others, 'other node')} {'admits' if others == 1 else 'admit'} it")
    return Group(head, table, count, *([notes_text(answer.notes)] if answer.notes else []), _next(answer))


def _next(answer: ResizeCheckReply) -> Text:
    if answer.result != "fits":
        return next_text("change the request in the pod's controller, which recreates the pod")
    namespace, name = answer.pod.split("/")
    amounts = {"requests": answer.after, "limits": answer.limits}
    patch = {"spec": {"containers": [{"name": answer.container, "resources": amounts}]}}
    return next_text(f"kubectl patch pod {name} -n {namespace} --subresource resize -p '{json.dumps(patch)}'")
