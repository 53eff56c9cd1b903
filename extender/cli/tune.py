"""`numa-extender tune`."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from extender.answers.tune import TunedConfiguration, TuneReply
from extender.answers.words import plural
from extender.cli.advice import advise, next_text, notes_text
from extender.cli.client import ExtenderClient, client_options, complete_node
from extender.cli.output import output_option
from extender.cli.questions import naming_what_was_typed, read_manifests
from extender.cli.render import new_table

MAX_NAMES, WIDTH = 5, 34


@click.command(short_help="Compare kubelet configurations for the cluster's pods.")
@click.option(
    "--workload",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Replay these pods instead of the cluster's, as many as they have replicas; repeatable.",
)
@click.option("--node", "nodes", multiple=True, shell_complete=complete_node, help="Only these nodes; repeatable.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Seed of the search.")
@click.option(
    "--configurations",
    type=click.IntRange(2, 200),
    default=32,
    show_default=True,
    help="Number of configurations to try.",
)
@click.option("--patches", is_flag=True, help="Print the changes as KubeletConfiguration as well.")
@output_option
@client_options
def tune(
    *,
    files: tuple[Path, ...],
    nodes: tuple[str, ...],
    seed: int,
    configurations: int,
    patches: bool,
    output: str,
    client: ExtenderClient,
) -> None:
    """Replay the cluster's pods, or a list, under other kubelet configurations, and compare.

    Nothing in the cluster changes.
    """
    pods = read_manifests(files)
    question = {
        "pods": [{"pod": pod.document} for pod in pods],
        "nodes": list(nodes) or None,
        "seed": seed,
        "configurations": configurations,
    }
    with naming_what_was_typed(pods, nodes=nodes):
        advise(client, "tune", question, TuneReply, lambda answer: _table(answer, is_long=patches), output)


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
