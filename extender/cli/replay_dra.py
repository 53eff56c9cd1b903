"""`numa-extender replay --policy dra` and `dra-cpu`: allocations of devices, replayed and compared with recordings."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from extender.cli.recordings import Replay, Replayed, read_scenarios
from extender.conformance.dra_scenario import COUNTED, check, check_cpus, run, run_cpus
from extender.dra.cpu_driver import UnknownDeviceError
from extender.wire.dra_scenarios import DraWorld, cpu_series_from_json, scenario_from_json
from extender.wire.errors import WireError


def _worlds(file: str) -> Iterator[Replayed]:
    name = Path(file).name.removesuffix(".xz").removesuffix(".jsonl")
    for _, scenario in read_scenarios(file, scenario_from_json):
        theme = scenario.id.rpartition("-")[0] if isinstance(scenario, DraWorld) else name
        yield Replayed(partial(run, scenario), (theme,), partial(check, scenario))


def _series(file: str) -> Iterator[Replayed]:
    for where, series in read_scenarios(file, cpu_series_from_json):
        try:
            answer = run_cpus(series)
        except UnknownDeviceError as error:
            raise WireError(f"{where}: claims", str(error)) from None
        yield Replayed(partial(_known, answer), (series.id.rpartition("-")[0],), partial(check_cpus, series))


def _known(answer: object) -> object:
    return answer


DRA: Final = Replay(_worlds, "Agreement with the recorded allocator of kube-scheduler", ("theme",), COUNTED)
DRA_CPU: Final = Replay(_series, "Agreement with the recorded dra-driver-cpu", ("machine",), COUNTED)
