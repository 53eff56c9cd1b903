"""`numa-extender replay --policy nri-topology-aware`: replays the policy, and compares it with recordings."""

import sys
from pathlib import Path
from typing import Final

import click
import orjson

from extender.cli.recordings import agreement_table, read_scenarios, show_agreement
from extender.conformance.agreement import Difference
from extender.conformance.nri_scenario import NRIAgreement, check, run
from extender.nri.machine import NriMachine
from extender.wire.errors import WireError
from extender.wire.nri_machines import machine_from_json, read_machines
from extender.wire.nri_scenarios import NRIScenario, scenario_from_json

_COLUMNS: Final = ("scenarios", "creations", "refusals", "vary", "open", "differ")


def replay_nri(files: tuple[str, ...], machines: str, *, is_check: bool) -> int:
    """Replay *files* on the machines of the file *machines*. Returns the exit code.

    Raises:
        WireError: a file or a line is malformed.
    """
    known = _Machines(machines)
    if is_check:
        return _check(files, known)
    for name in files:
        for where, scenario in read_scenarios(name, scenario_from_json):
            sys.stdout.buffer.write(orjson.dumps(_replayed(scenario, known.of(scenario, where))) + b"\n")
    return 0


class _Machines:
    """The machines of a file. Each is parsed when it is first used."""

    def __init__(self, name: str) -> None:
        try:
            body = Path(name).read_bytes()
        except OSError as error:
            raise click.ClickException(f"{name}: {error.strerror}") from None
        try:
            self._documents = read_machines(body)
        except WireError as error:
            raise error.below(name) from None
        self._machines: dict[str, NriMachine] = {}

    def of(self, scenario: NRIScenario, where: str) -> NriMachine:
        """The machine of *scenario*."""
        name = scenario.machine
        if name not in self._documents:
            raise WireError(f"{where}: m", f"machine {name!r} is not in the machines file")
        if name not in self._machines:
            self._machines[name] = machine_from_json(self._documents[name], f"machine {name}")
        return self._machines[name]


def _replayed(scenario: NRIScenario, machine: NriMachine) -> dict[str, object]:
    answers = run(scenario, machine)
    if isinstance(answers, str):
        return {"id": scenario.id, "start": answers, "r": []}
    return {"id": scenario.id, "r": answers}


def _check(files: tuple[str, ...], machines: _Machines) -> int:
    agreements, differences = dict[str, NRIAgreement](), list[Difference]()
    for name in files:
        for where, scenario in read_scenarios(name, scenario_from_json):
            agreement = agreements.setdefault(scenario.id.rpartition("-")[0], NRIAgreement())
            differences += check(scenario, machines.of(scenario, where), agreement)
    rows = [((theme,), [found.counts[column] for column in _COLUMNS]) for theme, found in sorted(agreements.items())]
    title = "Agreement with the recorded NRI topology-aware policy"
    return show_agreement(agreement_table(title, ("theme",), _COLUMNS, rows), differences)
