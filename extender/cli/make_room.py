"""`numa-extender make-room`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.answers.make_room import MakeRoomReply, MakeRoomRequest
from extender.cli.asking import advise, next_text, notes_text
from extender.cli.client import ExtenderClient, client_options
from extender.cli.questions import field_options, manifest_option, one_pod, only_nodes
from extender.cli.render import new_table, placement_line, pod_line


@click.command("make-room", short_help="Show which pods to evict so that a pod is aligned.")
@manifest_option
@only_nodes
@field_options(MakeRoomRequest, "priority", "max_evictions")
@click.option(
    "--as",
    "form",
    type=click.Choice(("table", "evictions", "script")),
    default="table",
    help="Print all plans as a table, or the first one in this form.",
)
@client_options
def make_room(
    files: tuple[Path, ...], *, nodes: tuple[str, ...], form: str, client: ExtenderClient, **limits: Any
) -> None:
    """The cheapest evictions that open an aligned place for a pod, and where the evicted pods would go.

    Nothing in the cluster changes: apply what --as evictions or --as script prints.
    """
    pods = one_pod(files)
    question = {"pod": pods[0].document, "nodes": list(nodes) or None, **limits}
    table = _table if form == "table" else _first(form)
    advise(client, "make-room", question, MakeRoomReply, table, pods, nodes=nodes)


def _first(form: str) -> Callable[[MakeRoomReply], Text]:
    """A renderer of the first plan in this form."""

    def render(answer: MakeRoomReply) -> Text:
        if not answer.plans:
            return Text("# no plan was found")
        plan = answer.plans[0]
        return Text((plan.objects if form == "evictions" else plan.script).rstrip(), no_wrap=True)

    return render


def _table(answer: MakeRoomReply) -> RenderableType:
    table = new_table("plan", "evict", "from", "priority", "its replacement goes to")
    for number, plan in enumerate(answer.plans, start=1):
        for row, each in enumerate(plan.evictions):
            where = each.to + (f", NUMA {','.join(map(str, each.numa))}" if each.numa else "")
            first = str(number) if row == 0 else ""
            table.add_row(first, Text(each.pod), Text(each.node), str(each.priority), Text(where))
        placement = "; ".join(f"{name}: {placement_line(p)}" for name, p in plan.containers.items())
        table.add_row("", Text("then the pod fits", "green"), Text(plan.node), "", Text(placement, "green"))
        if plan is not answer.plans[-1]:
            table.add_section()
    head = pod_line(answer.pod)
    if answer.result == "fits":
        plan = answer.plans[0]
        placement = "; ".join(f"{name}: {placement_line(p)}" for name, p in plan.containers.items())
        return Group(head, Text(f"no eviction is needed: {plan.node} aligns it now: {placement}", "green"))
    if answer.result == "none":
        text = "no plan was found" if answer.complete else "no plan was found before the limit of tries"
        blocked = [Text(f"  {reason}") for reason in answer.blocked]
        return Group(head, Text(f"{text} ({answer.searched} tried)", "red"), *blocked, notes_text(answer.notes))
    return Group(head, table, notes_text(answer.notes), next_text("add --as script to print the commands of plan 1"))
