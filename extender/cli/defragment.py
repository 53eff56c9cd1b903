"""`numa-extender defragment`."""

from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.answers.defragment import DefragmentReply
from extender.answers.words import plural
from extender.cli.advice import advise, next_text, notes_text, one_pod
from extender.cli.client import ExtenderClient, client_options, complete_node
from extender.cli.output import output_option
from extender.cli.questions import manifest_option, naming_what_was_typed
from extender.cli.render import new_table, pod_line


@click.command(short_help="Show what moving pods would gain in the whole cluster.")
@manifest_option
@click.option("--node", "nodes", multiple=True, shell_complete=complete_node, help="Only these nodes; repeatable.")
@click.option("--priority", type=int, default=0, show_default=True, help="Move no pod of a higher priority.")
@click.option("--max-moves", type=click.IntRange(1, 64), default=10, show_default=True, help="Largest number of moves.")
@click.option("--as", "form", type=click.Choice(("table", "evictions")), default="table", help="What to print of it.")
@output_option
@client_options
def defragment(
    files: tuple[Path, ...],
    *,
    nodes: tuple[str, ...],
    priority: int,
    max_moves: int,
    form: str,
    output: str,
    client: ExtenderClient,
) -> None:
    """How many more copies of a pod would be aligned after so many moves, and which moves these are.

    Nothing in the cluster changes.
    """
    pods = one_pod(files)
    question = {"pod": pods[0].document, "nodes": list(nodes) or None, "priority": priority, "max_moves": max_moves}
    with naming_what_was_typed(pods, nodes=nodes):
        advise(client, "defragment", question, DefragmentReply, _table if form == "table" else _objects, output)


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
