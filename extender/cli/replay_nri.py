"""`numa-extender replay --policy nri-topology-aware`: what that policy would answer, and whether recordings agree."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import orjson
from rich.table import Table

from extender.cli.recordings import scenario_lines, show_agreement
from extender.conformance.agreement import Difference
from extender.conformance.nri_scenario import NRIAgreement, check, run
from extender.replay.nri.machine import Machine
from extender.wire.errors import WireError
from extender.wire.nri_machines import machine_from_json, read_machines
from extender.wire.nri_scenarios import NRIScenario, scenario_from_json

_COLUMNS: Final = ("scenarios", "creations", "refusals", "vary", "open", "differ")


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
    agreements, differences = dict[str, NRIAgreement](), list[Difference]()
    for name in files:
        for where, line in scenario_lines(name):
            scenario = _read(line, where)
            agreement = agreements.setdefault(scenario.id.rpartition("-")[0], NRIAgreement())
            differences += check(scenario, machines.of(scenario, where), agreement)
    return show_agreement(_table(agreements), differences)


def _table(agreements: Mapping[str, NRIAgreement]) -> Table:
    """What was compared, a row for each theme; for the columns see `NRIAgreement`."""
    table = Table(title="Agreement with the recorded NRI topology-aware policy")
    for column in ("theme", *_COLUMNS):
        table.add_column(column, justify="left" if column == "theme" else "right")
    for theme, agreement in sorted(agreements.items()):
        table.add_row(theme, *(str(agreement.counts[column]) for column in _COLUMNS))
    if len(agreements) > 1:
        table.add_section()
        table.add_row("all", *(str(sum(a.counts[column] for a in agreements.values())) for column in _COLUMNS))
    return table
