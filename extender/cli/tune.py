"""`numa-extender tune`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.answers.tune import TunedConfiguration, TuneReply, TuneRequest
from extender.answers.words import plural
from extender.cli.asking import advise, next_text, notes_text
from extender.cli.client import ExtenderClient, client_options
from extender.cli.questions import MANIFEST, field_options, only_nodes, read_manifests
from extender.cli.render import new_table

MAX_NAMES, WIDTH = 5, 34


@click.command(short_help="Compare kubelet configurations for the cluster's pods.")
@click.option(
    "--workload",
    "files",
    multiple=True,
    type=MANIFEST,
    help="Replay these pods instead of the cluster's, as many as they have replicas; repeatable.",
)
@only_nodes
@field_options(TuneRequest, "seed", "configurations")
@click.option("--patches", is_flag=True, help="Print the changes as KubeletConfiguration as well.")
@client_options
def tune(
    *, files: tuple[Path, ...], nodes: tuple[str, ...], patches: bool, client: ExtenderClient, **limits: Any
) -> None:
    """Replay the cluster's pods, or a list, under other kubelet configurations, and compare.

    Nothing in the cluster changes.
    """
    pods = read_manifests(files)
    question = {"pods": [{"pod": pod.document} for pod in pods], "nodes": list(nodes) or None, **limits}
    advise(client, "tune", question, TuneReply, lambda answer: _table(answer, is_long=patches), pods, nodes=nodes)


def _table(answer: TuneReply, *, is_long: bool) -> RenderableType:
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
    parts: list[RenderableType] = [Text(f"{head}, seed {answer.seed}"), table, notes_text(answer.notes)]
    return Group(*parts, *(_patches(answer) if is_long else [next_text("add --patches to print the changes")]))


def _setting(name: str, value: str) -> str:
    """One change, broken after the name where it is too wide for the column."""
    text = f"{name}={value}"
    return text if len(text) <= WIDTH else f"{name}\n  ={value}"


def _patches(answer: TuneReply) -> Iterator[Text]:
    """Each configuration's changes as documents, with the nodes that need them."""
    for each in answer.configurations:
        name = ", ".join(f"{name}={value or '(none)'}" for name, value in each.change.items())
        for patch in each.patches:
            some = ", ".join(patch.nodes[:MAX_NAMES])
            more = len(patch.nodes) - MAX_NAMES
            nodes = f"{some} and {more} more" if more > 0 else some
            yield Text(f"---\n# {name}\n# nodes: {nodes}\n{patch.patch.rstrip()}")


def _restart(each: TunedConfiguration) -> str:
    restart = each.restart
    if restart is None:
        return ""
    parts = [f"{plural(restart.pods_to_drain, 'pod')} to drain"] if restart.pods_to_drain else []
    parts += [f"state files refused on {plural(restart.files_refused, 'node')}"] if restart.files_refused else []
    parts += [f"{plural(restart.not_starting, 'kubelet')} would not start"] if restart.not_starting else []
    return ", ".join(parts) or "restart; no pod fails"
