"""`numa-extender resize-check`."""

from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.cli.advice import advise, notes_text, placement_text
from extender.cli.client import ExtenderClient, client_options
from extender.cli.output import output_option
from extender.cli.render import new_table


@click.command()
@click.argument("pod", metavar="NAMESPACE/NAME")
@click.option("--container", default="", help="Which container, if the pod has several.")
@click.option("--cpu", help="New CPU request, such as 8 or 500m.")
@click.option("--memory", help="New memory request, such as 16Gi.")
@output_option
@client_options
def resize_check(
    pod: str, *, container: str, cpu: str | None, memory: str | None, output: str, client: ExtenderClient
) -> None:
    """Whether the kubelet would accept an in-place resize, and where the pod would go instead.

    Nothing in the cluster changes.
    """
    question = {"pod": pod, "container": container, "cpu": cpu, "memory": memory}
    advise(client, "resize-check", question, _table, output)


def _table(answer: Any) -> RenderableType:  # noqa: ANN401 - JSON
    changes = ", ".join(f"{name} {answer['before'][name]} to {amount}" for name, amount in answer["after"].items())
    head = Text(f"{answer['pod']} on {answer['node']}, container {answer['container']}: {changes}\n")
    if answer["result"] == "fits":
        head.append("✓ fits in place", "green")
    else:
        head.append(f"✗ {answer['result']}", "red").append(f": {answer['reason']}", "")
    if answer["exclusive_cpus"]:
        head.append(f"\nkeeps CPUs {answer['exclusive_cpus']}", "")
    table = new_table("if recreated on", "placement, or why not")
    own = answer["recreated"]
    table.add_row(Text(f"{own['node']} (its own)"), Text(placement_text(own)))
    for each in answer["elsewhere"]:
        table.add_row(Text(each["node"]), Text(placement_text(each)))
    count = Text(f"{answer['other_nodes']} other nodes admit it")
    return Group(head, table, count, *([notes_text(answer)] if answer["notes"] else []))
