"""Answers as tables: what-if, capacity, nodes, decisions."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from extender.answers.capacity import CapacityReply, PlanEnd
from extender.answers.explanation import AllocationStep, HintsStep, MergeStep, PoolsStep
from extender.answers.pod_summary import PodSummary
from extender.answers.what_if import NodeAnswer, WhatIfReply
from extender.api.nodes.models import NodeSummary
from extender.api.records.models import PodDecision
from extender.cli.render_pools import comparison_lines, free_of_pools, pool_placement_line
from extender.cli.units import amount, ids, short
from extender.questions.plan import PlannedPod
from extender.wire.verdicts import ContainerPlacement, Verdict

MARKS: Final = {
    "aligned": ("✓ aligned", "green"),
    "split": ("◐ split", "yellow"),
    "not-managed": ("· not managed", ""),
    "topology": ("✗ refused", "red"),
    "never": ("✗ never", "red"),
    "scheduler": ("✗ not offered", "yellow"),
    "unknown": ("? unknown", "yellow"),
}
_COUNTED: Final = {
    "aligned": "aligned",
    "split": "split",
    "not_managed": "not managed",
    "topology": "refused",
    "scheduler": "not offered",
    "unknown": "unknown",
}
_BYTES: Final = re.compile(r"\b(\d+) bytes\b")


class WholePlan(PlanEnd):
    """A plan, read to its end."""

    pods: list[PlannedPod]


def pod_line(pod: PodSummary) -> Text:
    """The pod of a question in one line, and its notes."""
    wants = ", ".join(f"{amount} {name}" for name, amount in pod.requests.items()) or "nothing"
    text = Text(f"{pod.kind} {pod.namespace}/{pod.name} ({pod.qos}) requests {wants}")
    return _with_notes(text, pod.notes)


def _with_notes(text: Text, notes: Iterable[str]) -> Text:
    for note in notes:
        text.append(f"\nnote: {note}", style="yellow")
    return text


def what_if_table(reply: WhatIfReply) -> RenderableType:
    """One row for each node: outcome, certainty, and the placement or the reason."""
    table = new_table("node", "outcome", "placement, or why not")
    for answer in reply.nodes:
        mark, style = MARKS["never" if answer.never else answer.alignment or answer.outcome]
        if answer.certainty != "exact" and answer.outcome != "unknown":
            mark = f"{mark} ({answer.certainty})"
        table.add_row(Text(answer.node), Text(mark, style), Text("\n".join(_answer_lines(answer))))
    summary = reply.summary
    counted = ", ".join(
        f"{getattr(summary, outcome)} {word}" for outcome, word in _COUNTED.items() if getattr(summary, outcome)
    )
    nodes = "1 node" if summary.nodes == 1 else f"{summary.nodes} nodes"
    last = Text(f"of {nodes}: {counted}" if summary.nodes else "no nodes")
    notes = Counter(note for answer in reply.nodes for note in answer.notes)
    for note, count in notes.most_common():
        last.append(f"\nnote, {count} of {nodes}: {note}", style="yellow")
    return Group(table, last)


def _answer_lines(answer: NodeAnswer) -> Iterator[str]:
    verdict = answer.verdict
    if answer.outcome == "scheduler":
        fails = (check for check in answer.scheduler.checks if check.outcome == "fails")
        yield from (f"{check.check}: {check.detail}" for check in fails)
    elif not answer.passes:
        yield answer.reason or answer.why
    elif answer.reason:
        yield answer.reason
    elif verdict is None:
        is_counted = answer.certainty == "degraded"
        yield "the published amounts do not refuse it; more is not known" if is_counted else "the node is unknown"
    elif not verdict.containers:
        yield answer.why
    else:
        yield from placement_lines(verdict)


def placement_lines(verdict: Verdict) -> Iterator[str]:
    """The placement of an admitted pod: whether it is split, the CPUs of the pod as a whole, then each container."""
    if verdict.alignment == "split":
        may = "is" if verdict.alignment_certain else "can be"
        yield f"the pod {may} split over NUMA {ids(verdict.numa)}"
    elif not verdict.alignment_certain:
        yield "the kubelet chooses at random: other placements are possible"
    if verdict.pod_cpus:
        yield f"pod: CPUs {verdict.pod_cpus} as a whole, divided among its containers"
    yield from container_lines(verdict)


def container_lines(placed: Verdict | PlannedPod) -> Iterator[str]:
    """A line for each container: its pool where the NRI policy places it."""
    if placed.nri:
        yield from map(pool_placement_line, placed.nri)
    else:
        yield from (f"{name}: {placement_line(placement)}" for name, placement in placed.containers.items())


def placement_line(placement: ContainerPlacement) -> str:
    """The placement of one container: NUMA nodes, CPUs, memory, devices."""
    parts = []
    if placement.numa:
        parts.append(f"NUMA {ids(placement.numa)}")
    parts.append(f"CPUs {placement.cpus}" if placement.cpus else "shared CPUs")
    parts += [f"{amount(b.size)} {b.type} on NUMA {ids(b.numa)}" for b in placement.memory]
    for resource, devices in placement.devices.items():
        if devices:
            parts.append(f"{', '.join(devices)}{' (one of several picks)' if resource in placement.random else ''}")
    return "; ".join(parts)


def steps_text(answer: NodeAnswer) -> RenderableType:
    """The explanation of one node's answer, step by step."""
    story = answer.explanation
    text = Text(f"\n{answer.node}\n", style="bold")
    if story is None:
        return text.append(
            "  no steps: another node has the same answer, or too little is known of this one\n", style=""
        )
    for step in story.steps:
        for line in comparison_lines(step) if isinstance(step, PoolsStep) else (_step(step),):
            text.append(f"  {line}\n", style="")
    if story.steps_left_out:
        text.append(f"  … and {story.steps_left_out} more steps\n", style="")
    if story.first_fault:
        text.append(f"  → {story.first_fault}\n", style="red")
    for each in story.nearest:
        verdict = each.verdict
        style = "green" if verdict.alignment == "aligned" else ""
        text.append(f"  would be {_as_what(verdict)}: {each.change}\n", style=style)
    if story.first_fault and not story.nearest:
        text.append(f"  none of {story.replays} similar requests is admitted\n", style="")
    return text


def _as_what(verdict: Verdict) -> str:
    """The result for an admitted pod, in a few words."""
    if verdict.alignment == "split":
        return f"admitted, split over NUMA {ids(verdict.numa)}"
    return "admitted, not managed" if verdict.alignment == "not-managed" else "aligned"


def _step(step: HintsStep | MergeStep | AllocationStep) -> str:
    who = step.container or "pod"
    if isinstance(step, HintsStep):
        if step.opinion == "none":
            return f"{who}: {step.resource}: any NUMA node"
        if step.opinion == "impossible":
            return f"{who}: {step.resource}: impossible"
        hints = ", ".join(f"{ids(h.numa)}{'*' if h.preferred else ''}" for h in step.hints)
        more = f" and {step.hints_left_out} more" if step.hints_left_out else ""
        return f"{who}: {step.resource}: {{{hints}}}{more}  (* preferred)"
    if isinstance(step, MergeStep):
        if not step.admitted:
            return f"{who}: merge under {step.policy}: refused ({step.why})"
        where = "any NUMA node" if step.affinity is None else f"NUMA {ids(step.affinity)}"
        preferred = "preferred" if step.preferred else "not preferred"
        return f"{who}: merge under {step.policy}: {where}, {preferred} ({step.why})"
    return f"{who}: takes {_BYTES.sub(lambda found: amount(int(found[1])), step.taken)}"


def capacity_table(reply: CapacityReply) -> RenderableType:
    """One row for each node: copies, how many of them are aligned, and why there are no more. Then the totals."""
    table = new_table("node", "copies", "aligned", "then")
    for node in reply.nodes:
        copies = str(node.copies) + ("" if len(node.per_pod) == 1 else f" {tuple(node.per_pod)}")
        table.add_row(Text(node.node), copies, str(node.aligned), Text(node.limited_by.detail))
    summary = reply.summary
    kinds = ", ".join(f"{getattr(summary, key)} {_COUNTED[key]}" for key in ("aligned", "split", "not_managed"))
    admitted = f"{summary.copies} pods are admitted on {summary.nodes} nodes"
    replayed = "1 admission" if summary.replays == 1 else f"{summary.replays} admissions"
    lines = [f"{admitted}: {kinds} ({replayed} replayed)"]
    if summary.group > 1:
        lines.append(f"{summary.groups} whole groups of {summary.group} pods fit")
    lines += [f"  then on {each.nodes}: {each.why}" for each in summary.runs_out]
    return Group(table, _with_notes(Text("\n".join(lines)), summary.notes))


def plan_table(reply: WholePlan) -> RenderableType:
    """One row for each pod: its node, or why it has none. Then the totals."""
    table = new_table("pod", "node", "outcome", "placement, or why not")
    for pod in reply.pods:
        if pod.node is None:
            why = ", ".join(f"{count} nodes: {reason}" for reason, count in pod.reasons.items())
            why = why or "held back: another pod of the plan has no node"
            table.add_row(Text(pod.name), "", Text("✗ no node", "red"), Text(why))
            continue
        mark, style = MARKS[pod.alignment or "unknown"]
        table.add_row(Text(pod.name), Text(pod.node), Text(mark, style), Text("\n".join(container_lines(pod))))
    summary = reply.summary
    kinds = ", ".join(f"{getattr(summary, key)} {_COUNTED[key]}" for key in ("aligned", "split", "not_managed"))
    text = Text(f"{summary.placed} of {summary.pods} pods have a node: {kinds}")
    if summary.held_back:
        text.append(f"\nall or nothing: {summary.held_back} pods with a node are held back", style="red")
    return Group(table, _with_notes(text, summary.notes))


def nodes_table(nodes: Sequence[NodeSummary]) -> RenderableType:
    """One row for each node: kubelet, policy, free resources."""
    table = new_table("node", "kubelet", "policy", "free CPUs", "per NUMA node", "free memory", "free devices")
    table.columns[2].no_wrap = True
    for node in nodes:
        policy = f"{node.topology_policy}/{node.topology_scope}" if node.topology_policy else node.certainty
        if node.resource_policy:
            policy = f"NRI {node.resource_policy}"
        if node.certainty in ("stale", "degraded", "unknown") and policy != node.certainty:
            policy = f"{policy} ({node.certainty})"
        memory = [numa.free_memory_bytes for numa in node.numa]
        table.add_row(
            Text(node.name),
            node.kubelet_version or "?",
            policy,
            _free_cpus(node),
            " ".join(str(numa.free_cpus) for numa in node.numa) if _has_own_cpus(node) else "",
            " ".join("-" if each is None else amount(each) for each in memory),
            ", ".join(f"{d.free}/{d.total} {short(r)}" for r, d in node.devices.items()),
        )
    return table


def _free_cpus(node: NodeSummary) -> str:
    if node.resource_policy:
        return free_of_pools(node.pools) if node.pools else "?"
    return f"{node.free_cpus}/{node.cpus}" if _has_own_cpus(node) else f"{node.cpus} shared"


def _has_own_cpus(node: NodeSummary) -> bool:
    """Whether a container can have exclusive CPUs. True as well if that is not known."""
    return node.cpu_policy in ("static", None) or node.resource_policy is not None


def decision_text(decision: PodDecision) -> RenderableType:
    """The answers of the last calls about a pod."""
    pod = decision.pod
    text = Text(f"{pod.namespace}/{pod.name} ({pod.uid})\n", style="bold")
    for call in decision.calls:
        head = f"{call.verb}, {call.seconds_ago:.0f} s ago: {call.passed} of {call.candidates} nodes pass"
        offered = f"; only {call.place} is offered, the place in its group" if call.place else ""
        text.append(f"{head}{offered}\n", style="")
        if not call.aligned:
            text.append("  no node aligns anything that the pod requests\n", style="")
        for reason in call.reasons:
            names = ", ".join(reason.examples) + ("…" if reason.nodes > len(reason.examples) else "")
            text.append(f"  ✗ {reason.nodes}: {reason.reason} ({names})\n", style="red")
        # Scores are relative to the other candidates, so people get the order only.
        ranks = groupby(call.best, key=attrgetter("score"))
        for rank, (_, best) in enumerate(ranks, start=1):
            text.append(f"  {rank}. {', '.join(each.node for each in best)}\n", style="green")
    node = decision.node
    if node is not None:
        said = "the node was unknown" if node.verdict is None else _said(node.verdict)
        text.append(f"{node.node}: {node.reason or 'passed'} ({said})\n", style="")
    return text


def _said(verdict: Verdict) -> str:
    """The verdict in a few words."""
    if verdict.reason:
        return f"{verdict.reason}: {verdict.message}"
    return verdict.message or f"admitted, {_as_what(verdict).removeprefix('admitted, ')}"


def new_table(*columns: str) -> Table:
    """An empty table with these columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
