"""`numa-extender replay --policy nri-topology-aware`: what that policy would answer, and whether recordings agree."""

import lzma
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

import click
import orjson
from rich.console import Console
from rich.table import Table

from extender.replay.nri.machine import Machine
from extender.verbs.nri_scenario import NRIAgreement, NRIDifference, check, run
from extender.wire.errors import WireError
from extender.wire.nri_machines import machine_from_json, read_machines
from extender.wire.nri_scenarios import NRIScenario, scenario_from_json

SHOWN_DIFFERENCES: Final = 10
_COLUMNS: Final = ("scenarios", "creations", "refusals", "open", "differ")


def replay_nri(files: tuple[str, ...], machines: str, *, is_check: bool) -> int:
    """Replay *files* on the machines of the file *machines*; the exit code.

    Raises:
        WireError: a file or a line is malformed.
    """
    known = _Machines(machines)
    if is_check:
        return _check(files, known)
    for name in files:
        for where, line in scenario_lines(name):
            scenario = _read(line, where)
            sys.stdout.buffer.write(orjson.dumps(_replayed(scenario, known.of(scenario, where))) + b"\n")
    return 0


def scenario_lines(name: str) -> Iterator[tuple[str, bytes]]:
    """(where it stands, line) of the file *name* without its empty lines; `-` is standard input.

    Raises:
        click.ClickException: the file cannot be read.
    """
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


class _Machines:
    """The machines of a file; each is read when it is first needed."""

    def __init__(self, name: str) -> None:
        try:
            body = Path(name).read_bytes()
        except OSError as error:
            raise click.ClickException(f"{name}: {error.strerror}") from None
        try:
            self._documents = read_machines(body)
        except WireError as error:
            raise error.below(name) from None
        self._machines: dict[str, Machine] = {}

    def of(self, scenario: NRIScenario, where: str) -> Machine:
        """The machine that *scenario* is about."""
        name = scenario.machine
        if name not in self._documents:
            raise WireError(f"{where}: m", f"machine {name!r} is not in the machines file")
        if name not in self._machines:
            self._machines[name] = machine_from_json(self._documents[name], f"machine {name}")
        return self._machines[name]


def _read(line: bytes, where: str) -> NRIScenario:
    try:
        return scenario_from_json(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise WireError(where, f"not JSON: {error}") from None
    except WireError as error:
        raise WireError(f"{where}: {error.field}", error.reason) from None


def _replayed(scenario: NRIScenario, machine: Machine) -> dict[str, object]:
    answers = run(scenario, machine)
    if isinstance(answers, str):
        return {"id": scenario.id, "start": answers, "r": []}
    return {"id": scenario.id, "r": answers}


def _check(files: tuple[str, ...], machines: _Machines) -> int:
    agreements, differences = dict[str, NRIAgreement](), list[NRIDifference]()
    for name in files:
        for where, line in scenario_lines(name):
            scenario = _read(line, where)
            agreement = agreements.setdefault(scenario.id.rpartition("-")[0], NRIAgreement())
            differences += check(scenario, machines.of(scenario, where), agreement)
    console = Console()
    console.print(_table(agreements))
    for difference in differences[:SHOWN_DIFFERENCES]:
        step = "" if difference.step is None else f" step {difference.step}"
        console.print(f"\n{difference.scenario}{step}: {difference.field}", highlight=False, markup=False)
        console.print(f"  recorded: {difference.recorded!r}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"  replayed: {difference.replayed!r}", highlight=False, markup=False, soft_wrap=True)
    if len(differences) > SHOWN_DIFFERENCES:
        console.print(f"\n… and {len(differences) - SHOWN_DIFFERENCES} more differences")
    return 1 if differences else 0


def _table(agreements: Mapping[str, NRIAgreement]) -> Table:
    """What was compared, a row for each theme; `open` counts steps after one where the real answers vary."""
    table = Table(title="Agreement with the recorded NRI topology-aware policy")
    for column in ("theme", *_COLUMNS):
        table.add_column(column, justify="left" if column == "theme" else "right")
    for theme, agreement in sorted(agreements.items()):
        table.add_row(theme, *(str(agreement.counts[column]) for column in _COLUMNS))
    if len(agreements) > 1:
        table.add_section()
        table.add_row("all", *(str(sum(a.counts[column] for a in agreements.values())) for column in _COLUMNS))
    return table
