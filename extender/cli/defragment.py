"""`numa-extender defragment`."""

from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.answers.defragment import DefragmentReply, DefragmentRequest
from extender.answers.words import plural
from extender.cli.asking import advise, next_text, notes_text
from extender.cli.client import ExtenderClient, client_options
from extender.cli.questions import field_options, manifest_option, one_pod, only_nodes
from extender.cli.render import new_table, pod_line


@click.command(short_help="Show what moving pods would gain in the whole cluster.")
@manifest_option
@only_nodes
@field_options(DefragmentRequest, "priority", "max_moves")
@click.option("--as", "form", type=click.Choice(("table", "evictions")), default="table", help="What to print of it.")
@client_options
def defragment(
    files: tuple[Path, ...], *, nodes: tuple[str, ...], form: str, client: ExtenderClient, **limits: Any
) -> None:
    """How many more copies of a pod would be aligned after some moves, and which moves these are.

    Nothing in the cluster changes.
    """
    pods = one_pod(files)
    question = {"pod": pods[0].document, "nodes": list(nodes) or None, **limits}
    advise(client, "defragment", question, DefragmentReply, _table if form == "table" else _objects, pods, nodes=nodes)


def _objects(answer: DefragmentReply) -> Text:
    return Text(answer.objects.rstrip() or "# no move gains a copy")


def _table(answer: DefragmentReply) -> RenderableType:
    table = new_table("moves", "copies", "", "largest request", "the moves of this step")
    most = max((point.copies for point in answer.curve), default=0)
    for point in answer.curve:
        moves = "\n".join(f"{each.pod}: {each.node} to {each.to}" for each in point.evictions)
        bar = "█" * round(20 * point.copies / most) if most else ""
        largest = plural(point.largest_cpus, "CPU")
        table.add_row(str(point.moves), str(point.copies), bar, largest, Text(moves or "now"))
    is_flat = len(answer.curve) == 1
    last = Text("no move gains a copy") if is_flat else next_text("add --as evictions to print the Eviction objects")
    return Group(pod_line(answer.pod), table, notes_text(answer.notes), last)
