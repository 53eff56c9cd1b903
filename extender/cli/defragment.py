"""`numa-extender defragment`."""

from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.cli.advice import advise, notes_text, one_pod
from extender.cli.client import ExtenderClient, client_options, complete_node
from extender.cli.output import output_option
from extender.cli.questions import manifest_option, naming_what_was_typed
from extender.cli.render import new_table, pod_line


@click.command()
@manifest_option
@click.option("--node", "nodes", multiple=True, shell_complete=complete_node, help="Only these nodes; repeatable.")
@click.option("--priority", type=int, default=0, show_default=True, help="Move no pod of a higher priority.")
@click.option("--max-moves", type=click.IntRange(1, 64), default=10, show_default=True, help="Moves in all.")
@output_option
@client_options
def defragment(
    files: tuple[Path, ...],
    *,
    nodes: tuple[str, ...],
    priority: int,
    max_moves: int,
    output: str,
    client: ExtenderClient,
) -> None:
    """How many more copies of a pod would be aligned after so many moves, and which moves these are.

    Nothing in the cluster changes.
    """
    pods = one_pod(files)
    question = {"pod": pods[0].document, "nodes": list(nodes) or None, "priority": priority, "max_moves": max_moves}
    with naming_what_was_typed(pods, nodes=nodes):
        advise(client, "defragment", question, _table, output)


def _table(answer: Any) -> RenderableType:  # noqa: ANN401 - JSON
    table = new_table("moves", "copies", "largest", "", "the moves of this step")
    most = max((point["copies"] for point in answer["curve"]), default=0)
    for point in answer["curve"]:
        moves = "\n".join(f"{each['pod']}: {each['node']} to {each['to']}" for each in point["evictions"])
        bar = "█" * round(20 * point["copies"] / most) if most else ""
        numbers = str(point["moves"]), str(point["copies"]), f"{point['largest_cpus']} CPUs"
        table.add_row(*numbers, bar, Text(moves or "now"))
    last = [Text("no move gains a copy")] if len(answer["curve"]) == 1 else []
    return Group(pod_line(answer), table, *last, notes_text(answer))
