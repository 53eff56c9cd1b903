"""Parts of answers as text and tables. Many equal answers are one row."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from extender.api.records.models import DecisionCall
from extender.cli.render_pools import comparison_lines, pool_placement_line
from extender.cli.units import amount, ids
from extender.questions.words import plural
from extender.wire import pod_replies as replies
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
COUNTED: Final = {
    "aligned": "aligned",
    "split": "split",
    "not_managed": "not managed",
    "topology": "refused",
    "scheduler": "not offered",
    "unknown": "unknown",
}
MAX_NAMES: Final = 3
"""Names of a group of equal answers."""
MAX_NAME: Final = 48
"""Names that are longer are broken where the table is too wide."""
MAX_MARK: Final = 24
"""So are texts that are longer, such as those of outcomes."""
MIN_TEXT: Final = 14
GAP: Final = 3
"""Columns of the terminal between two of a table."""
T = TypeVar("T")
_BYTES: Final = re.compile(r"\b(\d+) bytes\b")


def pod_line(pod: replies.PodSummary) -> Text:
    """The pod of a question in one line, and its notes."""
    wants = ", ".join(f"{amount} {name}" for name, amount in pod.requests.items()) or "nothing"
    text = Text(f"{pod.kind} {pod.namespace}/{pod.name} ({pod.qos}) requests {wants}")
    return notes(pod, text)


def notes(answer: Any, text: str | Text = "") -> Text:  # noqa: ANN401 - any reply with notes
    """The text with the notes of an answer below it, one a line."""
    texts = [Text(f"note: {note}", "yellow") for note in answer.notes]
    return Text("\n").join([Text.assemble(text), *texts] if text else texts)


def grouped(answers: Iterable[T], rows: int, same: Callable[[T], Hashable]) -> Iterator[Sequence[T]]:
    """The *answers* one by one if there are at most so many *rows*; otherwise those that are the *same*, most first."""
    found = list(answers)
    if len(found) <= rows:
        return iter([[each] for each in found])
    groups = defaultdict[Hashable, list[T]](list)
    for each in found:
        groups[same(each)].append(each)
    return iter(sorted(groups.values(), key=len, reverse=True))


def names_of(names: Sequence[str], noun: str) -> Text:
    """The name, or how many there are and the first three, one a line."""
    more = ["…"] if len(names) > MAX_NAMES else []
    return Text("\n".join([f"{plural(len(names), noun)}:", *names[:MAX_NAMES], *more]) if names[1:] else names[0])


def what_if_table(reply: replies.WhatIfReply, rows: int) -> RenderableType:
    """One row for each node: outcome, certainty, and the placement or the reason. More than *rows* are grouped."""
    table = new_table("node", "outcome", "placement, or why not")
    for group in grouped(reply.nodes, rows, attrgetter("outcome", "never", "alignment", "certainty", "why")):
        answer = group[0]
        mark, style = MARKS["never" if answer.never else answer.alignment or answer.outcome]
        if answer.certainty != "exact" and answer.outcome != "unknown":
            mark = f"{mark} ({answer.certainty})"
        names = names_of([each.node for each in group], "node")
        first = f"{answer.node}: " if group[1:] else ""
        table.add_row(names, Text(mark, style), Text(first + "\n".join(_answer_lines(answer))))
    summary = reply.summary
    counted = ", ".join(
        f"{getattr(summary, outcome)} {word}" for outcome, word in COUNTED.items() if getattr(summary, outcome)
    )
    nodes = plural(summary.nodes, "node")
    last = Text(f"of {nodes}: {counted}" if summary.nodes else "no nodes")
    notes = Counter(note for answer in reply.nodes for note in answer.notes)
    for note, count in notes.most_common():
        last.append(f"\nnote, {count} of {nodes}: {note}", style="yellow")
    return Group(table, last)


def _answer_lines(answer: replies.NodeAnswer) -> Iterator[str]:
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


def container_lines(placed: Verdict | replies.PlannedPod) -> Iterator[str]:
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


def steps_text(answer: replies.NodeAnswer) -> RenderableType:
    """The explanation of one node's answer, step by step."""
    story = answer.explanation
    text = Text(f"\n{answer.node}\n", style="bold")
    if story is None:
        return text.append(
            "  no steps: another node has the same answer, or too little is known of this one\n", style=""
        )
    for step in story.steps:
        for line in comparison_lines(step) if isinstance(step, replies.PoolsStep) else (_step(step),):
            text.append(f"  {line}\n", style="")
    if story.steps_left_out:
        text.append(f"  … and {story.steps_left_out} more steps\n", style="")
    if story.first_fault:
        text.append(f"  → {story.first_fault}\n", style="red")
    for each in story.nearest:
        verdict = each.verdict
        style = "green" if verdict.alignment == "aligned" else ""
        text.append(f"  would be {as_what(verdict)}: {each.change}\n", style=style)
    if story.first_fault and not story.nearest:
        text.append(f"  none of {story.replays} similar requests is admitted\n", style="")
    return text


def as_what(verdict: Verdict) -> str:
    """The result for an admitted pod, in a few words."""
    if verdict.alignment == "split":
        return f"admitted, split over NUMA {ids(verdict.numa)}"
    return "admitted, not managed" if verdict.alignment == "not-managed" else "aligned"


def _step(step: replies.HintsStep | replies.MergeStep | replies.AllocationStep) -> str:
    who = step.container or "pod"
    if isinstance(step, replies.HintsStep):
        if step.opinion == "none":
            return f"{who}: {step.resource}: any NUMA node"
        if step.opinion == "impossible":
            return f"{who}: {step.resource}: impossible"
        hints = ", ".join(f"{ids(h.numa)}{'*' if h.preferred else ''}" for h in step.hints)
        more = f" and {step.hints_left_out} more" if step.hints_left_out else ""
        return f"{who}: {step.resource}: {{{hints}}}{more}  (* preferred)"
    if isinstance(step, replies.MergeStep):
        if not step.admitted:
            return f"{who}: merge under {step.policy}: refused ({step.why})"
        where = "any NUMA node" if step.affinity is None else f"NUMA {ids(step.affinity)}"
        preferred = "preferred" if step.preferred else "not preferred"
        return f"{who}: merge under {step.policy}: {where}, {preferred} ({step.why})"
    return f"{who}: takes {_BYTES.sub(lambda found: amount(int(found[1])), step.taken)}"


def call_lines(call: DecisionCall) -> Text:
    """The answer of one call: how many nodes passed, why the others did not, and the best."""
    offered = f"; only {call.place} is offered, the place in its group" if call.place else ""
    text = Text(f"{call.verb}, {call.seconds_ago:.0f} s ago: {call.passed} of {call.candidates} nodes pass{offered}")
    if not call.aligned:
        text.append("\n  no node aligns anything that the pod requests")
    for reason in call.reasons:
        names = ", ".join(reason.examples) + ("…" if reason.nodes > len(reason.examples) else "")
        text.append(f"\n  ✗ {reason.nodes}: {reason.reason} ({names})", "red")
    # Scores are relative to the other candidates, so people get the order only.
    for rank, (_, best) in enumerate(groupby(call.best, key=attrgetter("score")), start=1):
        text.append(f"\n  {rank}. {', '.join(each.node for each in best)}", "green")
    return text


class _Table(Table):
    """A table that breaks no names: where they need it, its lines are longer than the terminal's, as kubectl's are."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = GAP * len(self.columns)
        for column in self.columns:
            lines = [line for cell in (column.header, *column.cells) for line in str(cell).split("\n")]
            widest = max(map(len, lines))
            is_words = all(" " not in line or line.endswith(":") for line in lines[1:])
            column.no_wrap = column.no_wrap or widest <= (MAX_NAME if is_words else MAX_MARK)
            needed += widest if column.no_wrap else min(widest, MIN_TEXT)
        return super().__rich_console__(console, options.update(max_width=max(options.max_width, needed)))


def new_table(*columns: str) -> Table:
    """An empty table with these columns."""
    table = _Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
