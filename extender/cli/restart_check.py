"""`numa-extender restart-check`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.answers.restart_check import (
    NodeAction,
    RestartCheckReply,
    RestartCheckRequest,
    RestartedNodeInfo,
    RestartedPodInfo,
)
from extender.answers.words import plural
from extender.cli.asking import advise, next_text, notes_text
from extender.cli.client import ExtenderClient, client_options, complete_node
from extender.cli.questions import field_options, kubelet_changes, kubelet_options
from extender.cli.render import new_table

_ACTIONS: Mapping[NodeAction, tuple[str, str]] = {
    "restart": ("✓ restart", "green"),
    "drain-first": ("! drain first", "yellow"),
    "drain-and-delete-files": ("! drain, delete files", "yellow"),
    "does-not-start": ("✗ does not start", "red"),
    "unknown": ("? unknown", "yellow"),
}


@click.command("restart-check", short_help="Show what a restart of kubelets would do to their pods.")
@click.argument("nodes", nargs=-1, shell_complete=complete_node)
@click.option("--all", "everywhere", is_flag=True, help="All live nodes.")
@kubelet_options("After the restart")
@field_options(RestartCheckRequest, "reboot")
@client_options
def restart_check(
    nodes: tuple[str, ...], *, everywhere: bool, reboot: bool, client: ExtenderClient, **kubelet: Any
) -> None:
    """What happens to the pods when kubelets restart, are upgraded, or get another configuration.

    The nodes are listed in a safe order. Nothing in the cluster changes.
    """
    if bool(nodes) == everywhere:
        raise click.UsageError("name nodes, or give --all")
    question = {"nodes": list(nodes) or None, "reboot": reboot, **kubelet_changes(**kubelet)}
    advise(client, "restart-check", question, RestartCheckReply, _table)


def _table(answer: RestartCheckReply) -> RenderableType:
    table = new_table("node", "do this", "pod", "what happens to it", "would go to")
    for node in answer.nodes:
        mark, style = _ACTIONS[node.action]
        first = Text(node.node), Text(mark, style)
        lines = [*_node_lines(node), *((pod.pod, _fate(pod), pod.elsewhere or "") for pod in node.pods)]
        for number, (pod, fate, instead) in enumerate(lines or [("", _kept(node.kept), "")]):
            table.add_row(*(first if number == 0 else ("", "")), Text(pod), Text(fate), Text(instead))
    summary = answer.summary
    results = {"kept": summary.kept, "moved": summary.moved, "may fail": summary.may_fail, "fail": summary.fails}
    counts = ", ".join(f"{count} {result}" for result, count in results.items() if count)
    last = Text(f"{plural(summary.pods, 'pod')}: {counts or 'none'}")
    return Group(table, last, notes_text(answer.notes), *_next(answer.nodes))


def _next(nodes: Iterable[RestartedNodeInfo]) -> Iterator[Text]:
    """What to do with the first node of the list that needs more than a restart."""
    if node := next((each for each in nodes if each.action.startswith("drain")), None):
        name, files = node.node, " and ".join(file.file for file in node.refused_files)
        delete = f"delete {files} in the kubelet's directory, " if files else ""
        yield next_text(
            f"kubectl drain {name} --ignore-daemonsets; then {delete}restart its kubelet; kubectl uncordon {name}"
        )


def _kept(count: int) -> str:
    return "no pod holds anything" if not count else f"{plural(count, 'pod')} {'is' if count == 1 else 'are'} kept"


def _node_lines(node: RestartedNodeInfo) -> list[tuple[str, str, str]]:
    lines = [("", node.error, "")] if node.error else []
    return lines + [("", f"{file.file}: {file.reason}", "") for file in node.refused_files]


def _fate(pod: RestartedPodInfo) -> str:
    if pod.result in ("fails", "may-fail"):
        return f"✗ {pod.result.replace('-', ' ')}: {pod.reason}: {pod.message}"
    if pod.result == "moved":
        if pod.cpus_before == pod.cpus_after:
            return f"keeps its CPUs {pod.cpus_before or ''}".rstrip() + ", but not its memory"
        return f"moves from CPUs {pod.cpus_before or 'shared'} to {pod.cpus_after or 'shared'}"
    return f"kept{', CPUs ' + pod.cpus_before if pod.cpus_before else ''}"
