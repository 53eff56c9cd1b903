"""The replay compiled by mypyc beside the replay in Python: CPU time of both, by turns.

    python -m tests.bench.compiled [--rounds 3]

Copies this tree, and compiles `COMPILED` in the copy. That takes a minute, and needs a C compiler and Python's headers.
Nothing is installed. docs/decisions.md says why the extender has no compiled wheel.

`replay`: of pods with whole CPUs, memory and a GPU on a half-full node. `what-if` and `capacity`: over nodes in states
of their own, for each node.
"""

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import orjson
from rich.console import Console
from rich.table import Table

from extender.kubelet.admission import admit
from extender.questions.capacity import Capacity
from extender.questions.what_if import what_if
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.ranking.strategies import Weights, make_strategy
from extender.wire.workloads import workload_from_json
from tests.bench.capacity import subjects_of
from tests.bench.replay import half_full, kubelet_of, machine_of, pod_request
from tests.bench.states import own_states
from tests.reports import pod_of

ROOT = Path(__file__).parents[2]
COMPILED = (
    "admission", "budget", "cpu_assignment", "cpu_distribution", "cpu_manager",
    "device_manager", "hints", "memory_manager", "never", "observed", "pod_level", "sets", "topology_manager",
)  # fmt: skip
"""The modules of `extender/kubelet` that have functions, and no value of a node that is sent to question workers."""
ROUNDS, SAMPLES, REPLAYS, NODES = 3, 30, 10, 60
_BUILD, _MEASURE = (f"from tests.bench.compiled import {name}; {name}()" for name in ("build", "measure"))


def run(console: Console, rounds: int = ROUNDS) -> None:
    """Compile, measure both and print."""
    if not (shutil.which("cc") or shutil.which("gcc")):
        console.print("compiled: left out, because there is no C compiler")
        return
    with TemporaryDirectory() as directory:
        copy = Path(directory)
        for part in ("extender", "tests/bench"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in (ROOT / "tests").glob("*.py"):
            shutil.copy(file, copy / "tests")
        console.print(f"compiling {len(COMPILED)} modules")
        _output(copy, _BUILD)
        found: dict[Path, list[Mapping[str, float]]] = {ROOT: [], copy: []}
        for _ in range(rounds):
            for place, rows in found.items():
                rows.append(orjson.loads(_output(place, _MEASURE).splitlines()[-1]))
    table = Table(title=f"µs of CPU: the shortest of {rounds} rounds of {SAMPLES} samples, by turns")
    for column in ("what", "Python", "compiled", "x as fast"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for label in found[ROOT][0]:
        python, compiled = (min(row[label] for row in rows) for rows in found.values())
        table.add_row(label, f"{python:,.1f}", f"{compiled:,.1f}", f"{python / compiled:.2f}")
    console.print(table)


def _output(place: Path, program: str) -> bytes:
    """What a Python program prints that has the modules of *place*."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=place, env=environment, stdout=subprocess.PIPE, check=True)
    return done.stdout


def build() -> None:
    """Compile the modules in the working directory."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    place = Path.cwd()
    (place / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    with TemporaryDirectory() as scratch, chdir(place):
        paths = [f"extender/kubelet/{name}.py" for name in COMPILED]
        extensions = mypycify(["--config-file=mypy.ini", *paths], opt_level="2", debug_level="0", target_dir=scratch)
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(place), scratch
        command.ensure_finalized()
        command.run()


def measure() -> None:
    """Print the rows of this process as JSON."""
    sys.stdout.buffer.write(orjson.dumps({**dict(_replays()), **dict(_questions())}))


def _shortest(call: Callable[[], object]) -> float:
    """CPU microseconds of the shortest of some calls."""
    samples = []
    for _ in range(SAMPLES):
        started = time.process_time_ns()
        call()
        samples.append(time.process_time_ns() - started)
    return min(samples) / 1e3


def _replays() -> Iterator[tuple[str, float]]:
    for numa_nodes, policy in itertools.product((2, 8), ("best-effort", "restricted", "single-numa-node")):
        kubelet = kubelet_of(machine_of(numa_nodes, 64 // numa_nodes), policy, {}, {})
        state = half_full(kubelet, numa_nodes)
        request = pod_request(kubelet, cpu="4", **{"gpu.example/gpu": "1"})
        spent = _shortest(lambda k=kubelet, s=state, r=request: [admit(k, s, r) for _ in range(REPLAYS)])  # type: ignore[misc]
        yield f"replay, {numa_nodes} NUMA nodes, {policy}", spent / REPLAYS


def _questions() -> Iterator[tuple[str, float]]:
    subjects = subjects_of(list(itertools.islice(own_states(), NODES)), NODES)
    judge = BoundedJudge(make_strategy("least-numa", Weights.parse("")), UncertaintyPolicy())
    for cpus in (4, 24):
        workload = workload_from_json(pod_of(cpus, "16Gi"))
        yield f"what-if, {cpus} CPUs", _shortest(lambda w=workload: what_if(w, subjects, judge)) / NODES  # type: ignore[misc]
        spent = _shortest(lambda w=workload: list(map(Capacity([w], judge, 1000).of, subjects)))  # type: ignore[misc]
        yield f"capacity, {cpus} CPUs", spent / NODES


@click.command()
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1))
def main(rounds: int) -> None:
    """Compile, measure both and print."""
    run(Console(width=110 if not sys.stdout.isatty() else None), rounds)


if __name__ == "__main__":
    main()
