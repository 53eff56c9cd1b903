"""Commands that list what the extender knows: nodes, machines, the last scheduling calls, groups, and its audit."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from extender.api.nodes.models import NodeDetail, NodeSummary
from extender.api.questions.machines import MachineShape
from extender.api.records.models import AuditView, DecisionIndex
from extender.cli.client import ExtenderClient, client_options, complete_node, options, server_options
from extender.cli.output import show
from extender.cli.render import MAX_NAMES, call_lines, new_table
from extender.cli.render_map import node_map
from extender.cli.render_pools import free_of_pools
from extender.cli.units import amount, short
from extender.kubelet.config import TopologyPolicy
from extender.questions.words import plural
from extender.scheduling.records.predictions import DISAGREEING, Result

SHOWN_DISAGREEMENTS: Final = 20


def _shows(
    path: str,
    reply: Any,  # noqa: ANN401 - a type or a generic alias
    *decorators: Callable[[Any], Any],
    key: str = "",
    names: Callable[[Any], Iterable[str]] | None = None,
    offline: bool = True,
) -> Callable[[Callable[..., RenderableType]], click.Command]:
    """A command that prints the reply to a GET. *key*: of the list in each page. *offline*: report files can answer."""

    def make(render: Callable[..., RenderableType]) -> click.Command:
        @wraps(render)
        def command(*, client: ExtenderClient, **given: Any) -> None:
            params = {name: value for name, value in given.items() if value is not None}
            found = client.pages(path, key, params) if key else client.get(path, params)
            show(client.output, found, reply, render, names)

        of_client = client_options if offline else server_options
        return click.command()(options(*decorators, of_client)(command))

    return make


@_shows(
    "/v1/nodes",
    list[NodeSummary],
    click.option("--name", default="", help="Only names that contain this text."),
    click.option(
        "--policy", type=click.Choice([each.value for each in TopologyPolicy]), help="Only nodes with this policy."
    ),
    click.option("--min-free-cpus", type=click.IntRange(min=0), default=0, help="Only nodes with so many free CPUs."),
    click.option("-l", "--selector", "label_selector", default="", help="Only nodes with these labels, as in kubectl."),
    key="nodes",
    names=lambda found: (f"node/{each.name}" for each in found),
)
def nodes(found: Sequence[NodeSummary]) -> RenderableType:
    """List nodes with their kubelet, policy, and free resources: in all, and in brackets by NUMA node."""
    table = new_table("node", "kubelet", "policy", "free CPUs", "free memory", "free devices")
    for node in found:
        policy = f"{node.topology_policy}/{node.topology_scope}".removesuffix("/container")
        if node.resource_policy or not node.topology_policy:
            policy = f"NRI {node.resource_policy}" if node.resource_policy else node.certainty
        if node.certainty in ("stale", "degraded", "unknown") and policy != node.certainty:
            policy = f"{policy}\n({node.certainty})"
        memory = [numa.free_memory_bytes for numa in node.numa]
        table.add_row(
            Text(node.name),
            node.kubelet_version or "?",
            policy,
            _free_cpus(node),
            " ".join("-" if each is None else amount(each) for each in memory),
            ", ".join(f"{d.free}/{d.total} {short(r)}" for r, d in node.devices.items()),
        )
    return table if found else Text("No node is known that matches.")


def _free_cpus(node: NodeSummary) -> str:
    if (node.resource_policy and not node.pools) or "cpu" in node.hidden:
        return "?"
    if node.cpu_policy not in ("static", None) and not node.resource_policy:  # no container has CPUs for itself
        return f"{node.cpus} shared"
    total = free_of_pools(node.pools) if node.pools else f"{node.free_cpus}/{node.cpus}"
    return f"{total} ({' '.join(str(numa.free_cpus) for numa in node.numa)})"


@click.command("map")
@click.argument("node", shell_complete=complete_node)
@client_options
def map_(*, node: str, client: ExtenderClient) -> None:
    """Show the NUMA map of NODE: sockets, NUMA nodes, CPUs by pod, memory and devices."""
    show(client.output, client.get(f"/v1/nodes/{quote(node, safe='')}"), NodeDetail, node_map)


@_shows("/v1/machines", list[MachineShape], key="machines")
def machines(found: Iterable[MachineShape]) -> RenderableType:
    """List the machines of the catalogue, for --machine of the other commands."""
    table = new_table("machine", "CPUs", "NUMA nodes", "memory", "devices", "")
    for each in found:
        devices = ", ".join(f"{count} {short(resource)}" for resource, count in each.devices.items())
        memory = amount(each.memory_bytes)
        table.add_row(each.name, str(each.cpus), str(each.numa_nodes), memory, devices, each.about)
    return table


@_shows("/v1/audit", AuditView, offline=False)
def audit(answer: AuditView) -> RenderableType:
    """Compare the predictions since the extender started with what the kubelets did, and list those that were wrong."""
    rows, total = defaultdict[tuple[str, ...], Counter[Result]](Counter), Counter[Result]()
    for count in answer.counts:
        rows[count.version, f"{count.policy}/{count.scope}", count.certainty][count.result] += count.count
        total[count.result] += count.count
    counts = new_table("kubelet", "policy", "certainty", *(each.replace("_", "\n") for each in Result))
    for kind, counted in rows.items():
        wrong_here = {each for each in DISAGREEING if counted[each]}
        counts.add_row(*kind, *(Text(f"{counted[each]:,}", "red" if each in wrong_here else "") for each in Result))
    wrong = new_table("wrong prediction", "predicted, and what the kubelet did")
    for each in answer.recent[:SHOWN_DISAGREEMENTS]:
        result = f"{each.kind.result.replace('_', ' ')}, {each.seconds_ago:.0f} s ago"
        rules = f"\nagrees with {' or '.join(each.agrees_with)}" if each.agrees_with else ""
        wrong.add_row(
            Text(f"{result}\n{each.namespace}/{each.pod_name}\non {each.node_name}"),
            Text(f"predicted: {each.predicted}\nkubelet: {each.reported}{rules}"),
        )
    wrongs, demands = sum(total[each] for each in DISAGREEING), answer.demands
    lines = [
        f"{plural(total.total(), 'prediction')}: {total[Result.AGREED]:,} agreed, {wrongs:,} wrong",
        f"{plural(answer.pods_in_flight, 'pod')} in flight",
        f"demands of alignment: {demands.met} met, {demands.broken} broken, {demands.not_known} not known",
    ]
    lines += [f"{n.name}: {n.disagreements} of {n.results} wrong, only scored" for n in answer.nodes if n.distrusted]
    lines += [f"{n.node_name}: left out for {n.seconds_left:.0f} s: {n.reason}" for n in answer.left_out]
    return Group(*([counts] if rows else []), *([wrong] if answer.recent else []), Text("\n".join(lines)))


@_shows(
    "/v1/decisions",
    DecisionIndex,
    click.option("--pod", default="", help="Only pods with this part of a UID, or of NAMESPACE/NAME."),
    click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Largest number of pods."),
    names=lambda answer: (f"pod/{each.pod.name}" for each in answer.decisions),
    offline=False,
)
def decisions(answer: DecisionIndex) -> RenderableType:
    """List the pods of kube-scheduler's last calls, newest first. `why POD` shows one of them in full."""
    table = new_table("pod", "last call")
    for each in answer.decisions:
        table.add_row(Text(f"{each.pod.namespace}/{each.pod.name}"), call_lines(each.calls[0]))
    return table


class _GroupRow(msgspec.Struct):
    """What is read of `GroupView`, which belongs to a feature that may not be there."""

    namespace: str
    name: str
    state: str
    size: int
    bound: int
    held: int
    places: list[dict[str, Any]]
    note: str


@_shows(
    "/v1/groups",
    list[_GroupRow],
    click.option("--name", default="", help="Only groups with this text in NAMESPACE/NAME."),
    key="groups",
    offline=False,
)
def groups(found: Sequence[_GroupRow]) -> RenderableType:
    """List the groups of pods that are placed together or not at all, and what each waits for."""
    if not found:
        return Text("No group is known. The extender knows groups while NUMA_EXTENDER_GANGS is on.")
    table = new_table("group", "state", "pods", "bound", "held", "nodes", "waits for")
    for each in found:
        names = list(dict.fromkeys(place["node_name"] for place in each.places if place["node_name"]))
        nodes = ", ".join(names[:MAX_NAMES]) + ("…" if len(names) > MAX_NAMES else "")
        numbers = map(str, (each.size, each.bound, each.held))
        table.add_row(Text(f"{each.namespace}/{each.name}"), each.state, *numbers, Text(nodes), Text(each.note))
    return table
