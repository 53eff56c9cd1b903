"""The story as a table, for a terminal of 100 columns."""

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.demo.story import Row, Story


def render(story: Story, width: int) -> RenderableType:
    """The table and its conclusion."""
    table = Table(box=box.SIMPLE_HEAD, width=width, padding=(0, 1), show_edge=False)
    table.add_column("node", width=26)
    table.add_column("free in total", width=14)
    table.add_column("the kubelet would say", ratio=1)
    table.add_column("our answer", width=11)
    for rank, row in enumerate(story.rows, start=1):
        if rank > 1:
            table.add_row()
        table.add_row(_node(row), _totals(row, rank), _kubelet(row), _answer(row))
    return Group(_title(story), table, _moral(story))


def _title(story: Story) -> Text:
    pod = story.pod
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    wants = ", ".join(f"{amount} {_unit(name)}".strip() for name, amount in limits.items())
    return Text.assemble("\n", ("Where does pod ", ""), (pod["metadata"]["name"], "bold"), f" go?  It wants {wants}.\n")


def _unit(resource: str) -> str:
    return {"cpu": "CPUs", "memory": "memory"}.get(resource, resource.rpartition("/")[2])


def _node(row: Row) -> Text:
    described, kubelet = row.node.description, row.node.kubelet
    return Text.assemble(
        (row.node.name, "bold"),
        (f"  {described.kubelet_version}\n", "dim"),
        (f"{described.about}\n", "dim"),
        (f"{kubelet.policy}/{kubelet.scope}", "dim"),
    )


def _totals(row: Row, rank: int) -> Text:
    """What is free in all; rank 1 is the choice of kube-scheduler alone."""
    mark = Text("\n★ rank 1", "bold yellow") if rank == 1 else Text(f"\n  rank {rank}", "dim")
    return Text(f"{row.free_milli['cpu'] // 1000} CPUs\n{row.free_milli['memory'] // 1000 >> 30} GiB") + mark


def _kubelet(row: Row) -> Text:
    verdict = row.answer["verdict"]
    if not verdict["admit"]:
        return Text.assemble(("✗ ", "bold red"), (verdict["reason"], "red"), f"\n{row.answer['reason']}")
    (placement,) = verdict["containers"].values()
    return Text.assemble(("✓ ", "bold green"), ("admitted", "green"), f"\n{_placement(placement)}")


def _placement(placement: dict[str, Any]) -> str:
    if not placement["cpus"]:
        return "shared CPUs: nothing is aligned, the kernel decides where it runs"
    numa = placement["numa"]
    devices = "".join(f"; {', '.join(ids)}" for ids in placement["devices"].values())
    spread = "spread over " if len(numa) > 1 else ""
    return f"{spread}NUMA {','.join(map(str, numa))}: CPUs {placement['cpus']}{devices}"


def _answer(row: Row) -> Text:
    if row.score is None:
        return Text("refused", "red")
    alignment = row.answer["verdict"]["alignment"]
    return Text(alignment.replace("-", " "), "green" if alignment == "aligned" else "yellow")


def _moral(story: Story) -> Text:
    refusing = [row for row in story.rows if not row.answer["verdict"]["admit"]]
    by_totals = story.choice_by_totals
    text = Text("\n")
    if story.left_out:
        names = ", ".join(node.name for node in story.left_out)
        text.append(f"kube-scheduler leaves out, for missing resources or a taint of devices: {names}.\n", "dim")
    text.append(f"By totals it fits {len(story.rows)} nodes; on {len(refusing)} of them the kubelet would refuse it.\n")
    if by_totals in refusing:
        reason = by_totals.answer["verdict"]["reason"]
        node = (by_totals.node.name, "bold yellow")
        fails = (f"fails ({reason})", "bold red")
        text.append_text(Text.assemble("Without the extender it goes to ", node, " and ", fails))
        text.append(", each time.\n")
    if story.choice is not None:
        text.append_text(Text.assemble("With numa-extender it goes to ", (story.choice.node.name, "bold green"), ".\n"))
    return text
