"""Commands about pods: where one fits and why not elsewhere, how many fit, and why one waits."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from extender.api.records.models import PodDecision
from extender.cli import render
from extender.cli.client import ExtenderClient, client_options, complete_node
from extender.cli.frame import ask, asks, exit_code_option
from extender.cli.kubectl import kubectl_get
from extender.cli.output import show
from extender.cli.questions import MANIFEST, manifest_option, node_options, read_manifest, row_options
from extender.questions.words import plural
from extender.wire.pod_replies import CapacityReply, PlanEnd, PlannedPod, WhatIfReply
from extender.wire.questions import CapacityRequest, PlanRequest, WhatIfRequest
from extender.wire.verdicts import Verdict


@asks(
    "/v1/what-if",
    WhatIfRequest,
    manifest_option,
    node_options,
    "explain",
    row_options,
    exit_code_option,
    one_by_one=True,
    names=lambda answer: (f"node/{each.node}" for each in answer.nodes if each.outcome == "fits"),
)
def what_if(answer: WhatIfReply, *, rows: int, explain: bool) -> RenderableType:
    """Show what each node's kubelet would do with a pod: where it would place the pod, or why it would refuse it.

    The nodes are all live ones, those of --node, or hypothetical ones: a changed --copy of a live node, or a --machine
    of the catalogue. -o name lists the nodes that it fits on. Nothing in the cluster changes.
    """
    stories = map(render.steps_text, answer.nodes) if explain else ()
    return Group(render.pod_line(answer.pod), render.what_if_table(answer, rows), *stories)


@asks(
    "/v1/capacity",
    CapacityRequest,
    manifest_option,
    node_options,
    "max_copies",
    "group",
    row_options,
    exit_code_option,
    lines="nodes",
    names=lambda answer: (f"node/{each.node}" for each in answer.nodes if each.copies),
)
def capacity(answer: CapacityReply, rows: int) -> RenderableType:
    """Show how many copies of a pod fit now on each node, and what runs out first.

    Several -f are a mix of pods, which are added in turn. -o name lists the nodes with room.
    """
    table = render.new_table("node", "copies", "aligned", "then")
    for group in render.grouped(
        answer.nodes, rows, lambda each: (each.copies, tuple(each.per_pod), each.aligned, each.certainty)
    ):
        node = group[0]
        first = f"{node.node}: " if group[1:] else ""
        copies = str(node.copies) + ("" if len(node.per_pod) == 1 else f" {tuple(node.per_pod)}")
        copies += "" if node.certainty in ("exact", "unknown") else f" ({node.certainty})"
        names = render.names_of([each.node for each in group], "node")
        table.add_row(names, copies, str(node.aligned), Text(first + node.limited_by.detail))
    summary = answer.summary
    kinds = ", ".join(f"{getattr(summary, key)} {render.COUNTED[key]}" for key in ("aligned", "split", "not_managed"))
    admitted = f"{summary.copies} pods are admitted on {summary.nodes} nodes"
    lines = [f"{admitted}: {kinds} ({plural(summary.replays, 'admission')} replayed)"]
    if summary.group > 1:
        lines.append(f"{summary.groups} whole groups of {summary.group} pods fit")
    lines += [f"  then on {each.nodes}: {each.why}" for each in summary.runs_out]
    return Group(table, render.notes(summary, "\n".join(lines)))


class WholePlan(PlanEnd):
    """A plan, read to its end."""

    pods: list[PlannedPod]


@asks(
    "/v1/plan",
    PlanRequest,
    manifest_option,
    node_options,
    "all_or_nothing",
    row_options,
    exit_code_option,
    lines="pods",
    names=lambda answer: (f"pod/{each.name}" for each in answer.pods if each.node),
)
def plan(answer: WholePlan, rows: int) -> RenderableType:
    """Show where each pod would go. Pods are placed one after another, as many of each workload as it has replicas.

    The extender's own ranking decides. kube-scheduler also uses other scores, and may choose other nodes. -o name lists
    the pods that have a node.
    """
    table = render.new_table("pod", "node", "outcome", "placement, or why not")
    for group in render.grouped(answer.pods, rows, lambda each: (each.entry, each.node is None, each.alignment)):
        pod, names = group[0], render.names_of([each.name for each in group], "pod")
        if pod.node is None:
            why = ", ".join(f"{plural(count, 'node')}: {reason}" for reason, count in pod.reasons.items())
            why = why or "held back: another pod of the plan has no node"
            table.add_row(names, "", Text("✗ no node", "red"), Text(why))
            continue
        mark, style = render.MARKS[pod.alignment or "unknown"]
        nodes = render.names_of([*dict.fromkeys(each.node for each in group if each.node)], "node")
        table.add_row(names, nodes, Text(mark, style), Text("\n".join(render.container_lines(pod))))
    summary = answer.summary
    kinds = ", ".join(f"{getattr(summary, key)} {render.COUNTED[key]}" for key in ("aligned", "split", "not_managed"))
    text = Text(f"{summary.placed} of {summary.pods} pods have a node: {kinds}")
    if summary.held_back:
        text.append(f"\nall or nothing: {summary.held_back} pods with a node are held back", style="red")
    return Group(table, render.notes(summary, text))


@click.command()
@click.argument("pod", metavar="[NAMESPACE/]POD")
@click.option("-f", "--file", type=MANIFEST, help="The pod's manifest.  [default: what `kubectl get pod` prints]")
@click.option(
    "--node", help="Show details of this candidate, as it was at the time of the call.", shell_complete=complete_node
)
@row_options
@client_options
@click.pass_context
def why(
    context: click.Context, *, pod: str, file: Path | None, node: str | None, rows: int, client: ExtenderClient
) -> None:
    """Show what kube-scheduler says of POD, what the extender answered in the last calls, and what it would answer now.

    POD may also be a UID, or a part of a name. Report files (--report) have no calls.
    """
    decision = None if context.params["reports"] else _decision_of(client, pod, node)
    document, fault = None, ""
    if file is not None:
        document = read_manifest(file, "-f")
    else:
        known = pod if decision is None else f"{decision['pod']['namespace']}/{decision['pod']['name']}"
        namespace, _, name = known.rpartition("/")
        chosen = [f"--namespace={namespace}"] if namespace else []
        try:
            document = kubectl_get("pod", "-o", "json", *chosen, "--", name)
        except click.ClickException as error:
            fault = error.message
    if decision is None and document is None:
        raise click.ClickException(f"there is no recent call about {pod!r}. Name its manifest with -f: {fault}")
    now = None
    if document is not None and not document.get("spec", {}).get("nodeName"):
        (now,) = ask(client, "/v1/what-if", {"pod": document})
    answer = {
        "said": _said_of(document) if document else [f"{fault}, so nothing is known of the pod's status"],
        "decision": decision,
        "now": now,
    }
    show(client.output, answer, _Why, lambda read: Group(*_why_parts(read, rows)))


class _Why(msgspec.Struct):
    """What is known of a pod. `said`: sentences of its status. `now` null: it has a node, or no manifest."""

    said: list[str]
    decision: PodDecision | None
    now: WhatIfReply | None


def _decision_of(client: ExtenderClient, pod: str, node: str | None) -> Any:  # noqa: ANN401 - JSON
    """The last calls about the pod as `PodDecision`; None: there are none. Raises ClickException if several match."""
    found = client.get("/v1/decisions", {"pod": pod, "limit": 20})["decisions"]
    named = [(each, f"{each['pod']['namespace']}/{each['pod']['name']}") for each in found]
    exact = [pair for pair in named if pod in (pair[0]["pod"]["uid"], pair[0]["pod"]["name"], pair[1])] or named
    if len(exact) > 1:
        names = ", ".join(sorted(name for _, name in exact))
        raise click.ClickException(f"{pod!r} matches several pods: {names}")
    if exact and node is not None:
        return client.get(f"/v1/pods/{exact[0][0]['pod']['uid']}/decision", {"node": node})
    return exact[0][0] if exact else None


def _said_of(pod: Mapping[str, Any]) -> list[str]:
    """What the status of a pod says: its phase and node, and why it is not scheduled, or was refused."""
    status, node = pod.get("status") or {}, pod.get("spec", {}).get("nodeName")
    where = f" on {node}" if node else ""
    said = [f"{status['phase']}{where}"] if "phase" in status else []
    if status.get("reason"):
        said.append(f"{status['reason']}: {status.get('message', '')}")
    conditions = status.get("conditions") or []
    waits = (each for each in conditions if each.get("type") == "PodScheduled" and each.get("status") != "True")
    return said + [f"kube-scheduler: {each.get('message') or each.get('reason', '')}" for each in waits]


def _why_parts(answer: _Why, rows: int) -> Iterator[RenderableType]:
    """The last calls, the status, and the answers of now."""
    if decision := answer.decision:
        yield Text(f"{decision.pod.namespace}/{decision.pod.name} ({decision.pod.uid})", "bold")
        yield from map(render.call_lines, decision.calls)
        if node := decision.node:
            said = "the node was unknown" if node.verdict is None else _said(node.verdict)
            yield Text(f"{node.node}: {node.reason or 'passed'} ({said})")
    yield from map(Text, answer.said)
    if answer.now:
        yield Text("now:", "bold")
        yield render.what_if_table(answer.now, rows)


def _said(verdict: Verdict) -> str:
    """The verdict in a few words."""
    if verdict.reason:
        return f"{verdict.reason}: {verdict.message}"
    return verdict.message or f"admitted, {render.as_what(verdict).removeprefix('admitted, ')}"
