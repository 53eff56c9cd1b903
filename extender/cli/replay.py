"""`numa-extender replay`: replays recorded scenarios of any policy, and compares the results with the recordings."""

import lzma
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeVar

import click
import orjson
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from extender.cli.output import console_for
from extender.conformance import dra_scenario, nri_scenario
from extender.conformance.agreement import COUNTED, Admission, Difference, KubeletCrashError, check, run
from extender.dra.cpu_driver import UnknownDeviceError
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.rules import parse_minor
from extender.kubelet.verdict import Certainty
from extender.nri.machine import NriMachine
from extender.wire.errors import WireError
from extender.wire.nri_machines import machine_from_json, read_machines
from extender.wire.nri_scenarios import NRIScenario
from extender.wire.nri_scenarios import scenario_from_json as nri_from_json
from extender.wire.scenarios import Scenario, scenario_from_json
from extender.wire.verdicts import verdict_to_json

S = TypeVar("S")
SHOWN_DIFFERENCES: Final = 10


class Replayed(NamedTuple):
    """One scenario: its line in the output, its group in the comparison, and what compares it and counts."""

    answer: Callable[[], object]
    group: tuple[str, ...]
    check: Callable[[Counter[str]], Sequence[Difference]]


class Replay(NamedTuple):
    """How the scenarios of one policy are replayed.

    *scenarios* reads a file. *title*, *groups* and *counted*: for the table of comparisons.
    """

    scenarios: Callable[[str], Iterator[Replayed]]
    title: str
    groups: Sequence[str]
    counted: Sequence[str]


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE|-]...")
@click.option("--check", "is_check", is_flag=True, help="Compare with the recorded answers of the scenarios.")
@click.option(
    "--policy",
    type=click.Choice(("kubelet", "nri-topology-aware", "dra", "dra-cpu")),
    default="kubelet",
    show_default=True,
    help="Replay the kubelet, the NRI plugin, kube-scheduler's DRA allocator, or dra-driver-cpu.",
)
@click.option("--machines", metavar="FILE", help="Machine snapshots, as JSON or .xz; required for nri-topology-aware.")
def replay(files: tuple[str, ...], *, is_check: bool, policy: str, machines: str | None) -> None:
    """Replay scenarios: one JSON object in each line, also in .xz files. No FILE or - is standard input.

    Prints one line of JSON for each scenario, with the answer of the kubelet, or of the policy, to each step. For dra,
    a line has the objects of a cluster and the claims to allocate; the answer is for each node. With --check, prints
    a comparison with the recorded answers and the first differences, and exits with 1 if there are any.
    """
    if (machines is not None) != (policy == "nri-topology-aware"):
        raise click.UsageError("--policy nri-topology-aware needs --machines, and only this policy uses it")
    try:
        policy_replay = _nri_replay(machines) if machines is not None else _REPLAYS[policy]
        if is_check:
            sys.exit(_check_files(policy_replay, files or ("-",)))
        _replay_files(policy_replay, files or ("-",))
    except WireError as error:
        raise click.ClickException(str(error)) from None


def _scenarios(name: str) -> Iterator[Replayed]:
    file = Path(name).name.removesuffix(".xz").removesuffix(".jsonl")
    for _, scenario in _read_scenarios(name, scenario_from_json):
        group = file, f"1.{parse_minor(scenario.config.kubelet_version)}"
        yield Replayed(partial(_replayed, scenario), group, partial(check, scenario))


def _replayed(scenario: Scenario) -> dict[str, object]:
    try:
        steps = [{} if step is None else _step(step) for step in run(scenario)]
    except KubeletConfigError as error:
        return {"id": scenario.id, "kubelet_error": error.reason, "field": error.field}
    except KubeletCrashError as error:
        return {"id": scenario.id, "kubelet_error": str(error)}
    return {"id": scenario.id, "steps": steps}


def _step(admission: Admission) -> dict[str, object]:
    """One admission, with all possible answers if the kubelet chooses at random."""
    first = admission.outcomes[0].verdict
    result = verdict_to_json(first)
    if first.certainty is not Certainty.EXACT:
        result["certainty"] = first.certainty.value
        result["outcomes"] = [verdict_to_json(o.verdict) for o in admission.outcomes]
    return result


def _worlds(file: str) -> Iterator[Replayed]:
    name = Path(file).name.removesuffix(".xz").removesuffix(".jsonl")
    for _, scenario in _read_scenarios(file, dra_scenario.scenario_from_json):
        theme = scenario.id.rpartition("-")[0] if isinstance(scenario, dra_scenario.DraWorld) else name
        yield Replayed(partial(dra_scenario.run, scenario), (theme,), partial(dra_scenario.check, scenario))


def _series(file: str) -> Iterator[Replayed]:
    for where, series in _read_scenarios(file, dra_scenario.cpu_series_from_json):
        try:
            answer = dra_scenario.run_cpus(series)
        except UnknownDeviceError as error:
            raise WireError(f"{where}: claims", str(error)) from None
        theme = series.id.rpartition("-")[0]
        yield Replayed(partial(dict, answer), (theme,), partial(dra_scenario.check_cpus, series))


def _nri_replay(machines: str) -> Replay:
    """The replay on the machines of this file, each of which is parsed when it is first used.

    Raises:
        WireError: the file is malformed. Its iterators raise it for a scenario.
    """
    try:
        documents = read_machines(Path(machines).read_bytes())
    except OSError as error:
        raise click.ClickException(f"{machines}: {error.strerror}") from None
    except WireError as error:
        raise error.below(machines) from None

    @cache
    def machine_of(name: str) -> NriMachine:
        return machine_from_json(documents[name], f"machine {name}")

    def scenarios(file: str) -> Iterator[Replayed]:
        for where, scenario in _read_scenarios(file, nri_from_json):
            if scenario.machine not in documents:
                raise WireError(f"{where}: m", f"machine {scenario.machine!r} is not in the machines file")
            machine = machine_of(scenario.machine)
            theme = scenario.id.rpartition("-")[0]
            yield Replayed(
                partial(_nri_replayed, scenario, machine), (theme,), partial(nri_scenario.check, scenario, machine)
            )

    title = "Agreement with the recorded NRI topology-aware policy"
    return Replay(scenarios, title, ("theme",), nri_scenario.COUNTED)


def _nri_replayed(scenario: NRIScenario, machine: NriMachine) -> dict[str, object]:
    answers = nri_scenario.run(scenario, machine)
    if isinstance(answers, str):
        return {"id": scenario.id, "start": answers, "r": []}
    return {"id": scenario.id, "r": answers}


def _replay_files(replay: Replay, files: Sequence[str]) -> None:
    """Print a line for each scenario."""
    for name in files:
        for each in replay.scenarios(name):
            sys.stdout.buffer.write(orjson.dumps(each.answer()) + b"\n")


def _check_files(replay: Replay, files: Sequence[str]) -> int:
    """Print how often replay and recordings agree, and the first differences. Returns the exit code: 1 if any."""
    counts, differences = defaultdict[tuple[str, ...], Counter[str]](Counter), list[Difference]()
    with Progress(
        SpinnerColumn(),
        TextColumn("replaying"),
        MofNCompleteColumn(),
        TextColumn("scenarios, {task.fields[differences]} differences"),
        TimeElapsedColumn(),
        console=console_for(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=None, differences=0)
        for name in files:
            for each in replay.scenarios(name):
                differences += each.check(counts[each.group])
                progress.update(task, advance=1, differences=len(differences))
    console = console_for()
    console.print(_table(replay, counts))
    for difference in differences[:SHOWN_DIFFERENCES]:
        step = "" if difference.step is None else f" step {difference.step}"
        console.print(f"\n{difference.scenario}{step}: {difference.path}", soft_wrap=True)
        console.print(f"  recorded: {difference.recorded!r}", soft_wrap=True)
        console.print(f"  replayed: {difference.replayed!r}", soft_wrap=True)
    if len(differences) > SHOWN_DIFFERENCES:
        console.print(f"\n… and {len(differences) - SHOWN_DIFFERENCES} more differences")
    return 1 if differences else 0


def _table(replay: Replay, counts: dict[tuple[str, ...], Counter[str]]) -> Table:
    """The counts of each group, and the sums of several groups."""
    table = Table(title=replay.title)
    for column in (*replay.groups, *replay.counted):
        table.add_column(column, justify="left" if column in replay.groups else "right", no_wrap=True)
    for group, counted in sorted(counts.items()):
        table.add_row(*group, *(str(counted[column]) for column in replay.counted))
    if len(counts) > 1:
        total = sum(counts.values(), Counter())
        table.add_section()
        table.add_row("all", *("" for _ in replay.groups[1:]), *(str(total[column]) for column in replay.counted))
    return table


def _read_scenarios(name: str, read: Callable[[object], S]) -> Iterator[tuple[str, S]]:
    """The place and the scenario of each line of the file *name*. `-` is standard input. Empty lines are skipped.

    Raises:
        click.ClickException: the file cannot be read.
        WireError: a line is malformed.
    """
    for where, line in _lines(name):
        try:
            yield where, read(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            raise WireError(where, f"not JSON: {error}") from None
        except WireError as error:
            raise WireError(f"{where}: {error.field}" if error.field else where, error.reason) from None


def _lines(name: str) -> Iterator[tuple[str, bytes]]:
    with _open(name) as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{name}:{number}", line
        except (lzma.LZMAError, EOFError) as error:
            raise click.ClickException(f"{name}: not an xz file: {error}") from None


def _open(name: str) -> IO[bytes]:
    if name == "-":
        return sys.stdin.buffer
    try:
        return lzma.open(name) if name.endswith(".xz") else Path(name).open("rb")
    except OSError as error:
        raise click.ClickException(f"{name}: {error.strerror}") from None


_REPLAYS: Final = {
    "kubelet": Replay(_scenarios, "Agreement with the recorded kubelets", ("file", "kubelet"), COUNTED),
    "dra": Replay(_worlds, "Agreement with the recorded allocator of kube-scheduler", ("theme",), dra_scenario.COUNTED),
    "dra-cpu": Replay(_series, "Agreement with the recorded dra-driver-cpu", ("machine",), dra_scenario.COUNTED),
}
