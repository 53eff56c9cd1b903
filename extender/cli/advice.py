"""Commands that give advice: what to evict, restart, resize or configure. Nothing in the cluster changes."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.cli.client import complete_node
from extender.cli.frame import Decorator, asks, next_text
from extender.cli.questions import MANIFEST, kubelet_options, manifest_option, only_nodes
from extender.cli.render import MARKS, new_table, notes, placement_line, pod_line
from extender.questions.words import plural
from extender.replay.alignment import Alignment
from extender.wire import advice_replies as replies
from extender.wire import questions

MAX_NAMES, WIDTH = 5, 34
_ACTIONS: Final[Mapping[replies.NodeAction, tuple[str, str]]] = {
    "restart": ("✓ restart", "green"),
    "drain-first": ("! drain first", "yellow"),
    "drain-and-delete-files": ("! drain, delete files", "yellow"),
    "does-not-start": ("✗ does not start", "red"),
    "unknown": ("? unknown", "yellow"),
}


def _printed_as(*forms: str, text: str) -> Decorator:
    return click.option("--as", "form", type=click.Choice(("table", *forms)), default="table", help=text)


@asks(
    "/v1/advice/make-room",
    questions.MakeRoomRequest,
    manifest_option,
    only_nodes,
    "priority",
    "max_evictions",
    _printed_as("evictions", "script", text="Print all plans as a table, or the first one in this form."),
)
def make_room(answer: replies.MakeRoomReply, form: str) -> RenderableType:
    """The cheapest evictions that open an aligned place for a pod, and where the evicted pods would go.

    Nothing in the cluster changes: apply what --as evictions or --as script prints.
    """
    if form != "table":
        texts = [plan.objects if form == "evictions" else plan.script for plan in answer.plans[:1]]
        return Text("".join(texts).rstrip() if texts else "# no plan was found", no_wrap=True)
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
        return Group(head, Text(f"{text} ({answer.searched} tried)", "red"), *blocked, notes(answer))
    return Group(head, table, notes(answer), next_text("add --as script to print the commands of plan 1"))


@asks(
    "/v1/advice/defragment",
    questions.DefragmentRequest,
    manifest_option,
    only_nodes,
    "priority",
    "max_moves",
    _printed_as("evictions", text="What to print of it."),
)
def defragment(answer: replies.DefragmentReply, form: str) -> RenderableType:
    """How many more copies of a pod would be aligned after some moves, and which moves these are.

    Nothing in the cluster changes.
    """
    if form != "table":
        return Text(answer.objects.rstrip() or "# no move gains a copy")
    table = new_table("moves", "copies", "", "largest request", "the moves of this step")
    most = max((point.copies for point in answer.curve), default=0)
    for point in answer.curve:
        moves = "\n".join(f"{each.pod}: {each.node} to {each.to}" for each in point.evictions)
        bar = "█" * round(20 * point.copies / most) if most else ""
        largest = plural(point.largest_cpus, "CPU")
        table.add_row(str(point.moves), str(point.copies), bar, largest, Text(moves or "now"))
    is_flat = len(answer.curve) == 1
    last = Text("no move gains a copy") if is_flat else next_text("add --as evictions to print the Eviction objects")
    return Group(pod_line(answer.pod), table, notes(answer), last)


@asks(
    "/v1/advice/resize-check",
    questions.ResizeCheckRequest,
    click.argument("pod", metavar="NAMESPACE/NAME"),
    "container",
    "cpu",
    "memory",
)
def resize_check(answer: replies.ResizeCheckReply) -> RenderableType:
    """Whether the kubelet would accept an in-place resize, and where the pod would go instead.

    Nothing in the cluster changes.
    """
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
    table.add_row(Text(f"{own.node} (its own)"), Text(_placement(own)))
    for each in answer.elsewhere:
        table.add_row(Text(each.node), Text(_placement(each)))
    others = answer.other_nodes
    count = Text(f"{plural(others, 'other node')} {'admits' if others == 1 else 'admit'} it")
    return Group(head, table, count, *([notes(answer)] if answer.notes else []), _next_of_resize(answer))


def _placement(placement: replies.PodPlacement) -> str:
    """Where a pod would be placed, in a line."""
    if placement.outcome != "fits":
        return f"✗ {placement.reason or 'nothing is known of the node'}"
    where = "; ".join(f"{name}: {placement_line(each)}" for name, each in placement.containers.items())
    return f"{MARKS[placement.alignment or Alignment.NOT_MANAGED][0]}: {where}"


def _next_of_resize(answer: replies.ResizeCheckReply) -> Text:
    if answer.result != "fits":
        return next_text("change the request in the pod's controller, which recreates the pod")
    namespace, name = answer.pod.split("/")
    amounts = {"requests": answer.after, "limits": answer.limits}
    patch = {"spec": {"containers": [{"name": answer.container, "resources": amounts}]}}
    return next_text(f"kubectl patch pod {name} -n {namespace} --subresource resize -p '{json.dumps(patch)}'")


def _some_or_all(command: Any) -> Any:  # noqa: ANN401 - as click decorates
    """Nodes by name, or `--all`."""

    @click.argument("nodes", nargs=-1, shell_complete=complete_node)
    @click.option("--all", "everywhere", is_flag=True, help="All live nodes.")
    @wraps(command)
    def checked(*, nodes: tuple[str, ...], everywhere: bool, **given: Any) -> None:
        if bool(nodes) == everywhere:
            raise click.UsageError("name nodes, or give --all")
        command(nodes=nodes, **given)

    return checked


@asks(
    "/v1/advice/restart-check",
    questions.RestartCheckRequest,
    _some_or_all,
    kubelet_options("After the restart"),
    "reboot",
)
def restart_check(answer: replies.RestartCheckReply) -> RenderableType:
    """What happens to the pods when kubelets restart, are upgraded, or get another configuration.

    The nodes are listed in a safe order. Nothing in the cluster changes.
    """
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
    return Group(table, last, notes(answer), *_next(answer.nodes))


def _next(nodes: Iterable[replies.RestartedNodeInfo]) -> Iterator[Text]:
    """What to do with the first node of the list that needs more than a restart."""
    if node := next((each for each in nodes if each.action.startswith("drain")), None):
        name, files = node.node, " and ".join(file.file for file in node.refused_files)
        delete = f"delete {files} in the kubelet's directory, " if files else ""
        yield next_text(
            f"kubectl drain {name} --ignore-daemonsets; then {delete}restart its kubelet; kubectl uncordon {name}"
        )


def _kept(count: int) -> str:
    return "no pod holds anything" if not count else f"{plural(count, 'pod')} {'is' if count == 1 else 'are'} kept"


def _node_lines(node: replies.RestartedNodeInfo) -> list[tuple[str, str, str]]:
    lines = [("", node.error, "")] if node.error else []
    return lines + [("", f"{file.file}: {file.reason}", "") for file in node.refused_files]


def _fate(pod: replies.RestartedPodInfo) -> str:
    if pod.result in ("fails", "may-fail"):
        return f"✗ {pod.result.replace('-', ' ')}: {pod.reason}: {pod.message}"
    if pod.result == "moved":
        if pod.cpus_before == pod.cpus_after:
            return f"keeps its CPUs {pod.cpus_before or ''}".rstrip() + ", but not its memory"
        return f"moves from CPUs {pod.cpus_before or 'shared'} to {pod.cpus_after or 'shared'}"
    return f"kept{', CPUs ' + pod.cpus_before if pod.cpus_before else ''}"


@asks(
    "/v1/advice/tune",
    questions.TuneRequest,
    click.option(
        "--workload",
        "files",
        multiple=True,
        type=MANIFEST,
        help="Replay these pods instead of the cluster's, as many as they have replicas; repeatable.",
    ),
    only_nodes,
    "seed",
    "configurations",
    click.option("--patches", is_flag=True, help="Print the changes as KubeletConfiguration as well."),
)
def tune(answer: replies.TuneReply, *, patches: bool) -> RenderableType:
    """Replay the cluster's pods, or a list, under other kubelet configurations, and compare.

    Nothing in the cluster changes.
    """
    table = new_table("configuration", "admitted", "aligned", "split", "refused", "stranded", "at the restart")
    table.columns[0].no_wrap = True
    for each in answer.configurations:
        lines = [_setting(name, value or "(none)") for name, value in each.change.items()]
        if each.guarantee_ends:
            lines.append(f"! ends the guarantee on {plural(each.guarantee_ends, 'node')}")
        change = "\n".join(lines)
        spread = f" ({each.admitted_least}-{each.admitted_most})"
        admitted = f"{each.admitted}{spread if each.admitted_least != each.admitted_most else ''}"
        numbers = map(str, (each.aligned, each.split, each.refused))
        table.add_row(Text(change or "as it is"), admitted, *numbers, plural(each.stranded_cpus, "CPU"), _restart(each))
    head = ", ".join(
        (
            f"{plural(answer.pods, 'pod')} on {plural(answer.nodes, 'node')}",
            f"{plural(answer.tried, 'configuration')} tried",
        )
    )
    parts: list[RenderableType] = [Text(f"{head}, seed {answer.seed}"), table, notes(answer)]
    return Group(*parts, *(_patches(answer) if patches else [next_text("add --patches to print the changes")]))


def _setting(name: str, value: str) -> str:
    """One change, broken after the name where it is too wide for the column."""
    text = f"{name}={value}"
    return text if len(text) <= WIDTH else f"{name}\n  ={value}"


def _patches(answer: replies.TuneReply) -> Iterator[Text]:
    """Each configuration's changes as documents, with the nodes that need them."""
    for each in answer.configurations:
        name = ", ".join(f"{name}={value or '(none)'}" for name, value in each.change.items())
        for patch in each.patches:
            some = ", ".join(patch.nodes[:MAX_NAMES])
            more = len(patch.nodes) - MAX_NAMES
            nodes = f"{some} and {more} more" if more > 0 else some
            yield Text(f"---\n# {name}\n# nodes: {nodes}\n{patch.patch.rstrip()}")


def _restart(each: replies.TunedConfiguration) -> str:
    restart = each.restart
    if restart is None:
        return ""
    parts = [f"{plural(restart.pods_to_drain, 'pod')} to drain"] if restart.pods_to_drain else []
    parts += [f"state files refused on {plural(restart.files_refused, 'node')}"] if restart.files_refused else []
    parts += [f"{plural(restart.not_starting, 'kubelet')} would not start"] if restart.not_starting else []
    return ", ".join(parts) or "restart; no pod fails"


@asks("/v1/advice/rightsize", questions.RightsizeRequest, only_nodes, "limit")
def rightsize(answer: replies.RightsizeReply) -> RenderableType:
    """Pods whose request just misses a boundary, and how many more would be aligned with a smaller one.

    Nothing in the cluster changes.
    """
    table = new_table("pods", "such as", "request", "instead", "which is", "aligned copies")
    for each in answer.suggestions:
        request = f"{each.before} {each.resource}"
        copies = f"{each.copies_before} to {each.copies_after}"
        boundary = Text(each.boundary)
        table.add_row(str(each.pods), Text(each.examples[0]), request, each.after, boundary, copies)
    last = [Text(f"{plural(answer.found, 'suggestion')} for {plural(answer.shapes, 'shape')} of pods")]
    last.append(notes(answer))
    if answer.suggestions:
        first = answer.suggestions[0]
        last.append(
            next_text(
                f"numa-extender resize-check {first.examples[0]} --container {first.container} "
                f"--{first.resource} {first.after}"
            )
        )
    return Group(table, *last)
