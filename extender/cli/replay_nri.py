"""`numa-extender replay --policy nri-topology-aware`: replays the policy, and compares it with recordings."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import click

from extender.cli.recordings import Replay, Replayed, read_scenarios
from extender.conformance.nri_scenario import COUNTED, check, run
from extender.nri.machine import NriMachine
from extender.wire.errors import WireError
from extender.wire.nri_machines import machine_from_json, read_machines
from extender.wire.nri_scenarios import NRIScenario, scenario_from_json


def nri_replay(machines: str) -> Replay:
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
        for where, scenario in read_scenarios(file, scenario_from_json):
            if scenario.machine not in documents:
                raise WireError(f"{where}: m", f"machine {scenario.machine!r} is not in the machines file")
            machine = machine_of(scenario.machine)
            theme = scenario.id.rpartition("-")[0]
            yield Replayed(partial(_replayed, scenario, machine), (theme,), partial(check, scenario, machine))

    return Replay(scenarios, "Agreement with the recorded NRI topology-aware policy", ("theme",), COUNTED)


def _replayed(scenario: NRIScenario, machine: NriMachine) -> dict[str, object]:
    answers = run(scenario, machine)
    if isinstance(answers, str):
        return {"id": scenario.id, "start": answers, "r": []}
    return {"id": scenario.id, "r": answers}
