"""`numa-extender rightsize`."""

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.answers.rightsize import RightsizeReply, RightsizeRequest
from extender.answers.words import plural
from extender.cli.asking import advise, next_text, notes_text
from extender.cli.client import ExtenderClient, client_options
from extender.cli.questions import field_options, only_nodes
from extender.cli.render import new_table


@click.command(short_help="Show which requests just miss a boundary.")
@only_nodes
@field_options(RightsizeRequest, "limit")
@client_options
def rightsize(*, nodes: tuple[str, ...], limit: int, client: ExtenderClient) -> None:
    """Pods whose request just misses a boundary, and how many more would be aligned with a smaller one.

    Nothing in the cluster changes.
    """
    advise(client, "rightsize", {"nodes": list(nodes) or None, "limit": limit}, RightsizeReply, _table)


def _table(answer: RightsizeReply) -> RenderableType:
    table = new_table("pods", "such as", "request", "instead", "which is", "aligned copies")
    for each in answer.suggestions:
        request = f"{each.before} {each.resource}"
        copies = f"{each.copies_before} to {each.copies_after}"
        boundary = Text(each.boundary)
        table.add_row(str(each.pods), Text(each.examples[0]), request, each.after, boundary, copies)
    last = [Text(f"{plural(answer.found, 'suggestion')} for {plural(answer.shapes, 'shape')} of pods")]
    last.append(notes_text(answer.notes))
    if answer.suggestions:
        first = answer.suggestions[0]
        last.append(
            next_text(
                f"numa-extender resize-check {first.examples[0]} --container {first.container} "
                f"--{first.resource} {first.after}"
            )
        )
    return Group(table, *last)
