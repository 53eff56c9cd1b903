"""Filter's work for a new pod shape: every class of nodes is judged, with nodes in states of their own or shared ones.

    python -m tests.bench.distinct_states [--nodes 1000 --nodes 5000 …] [--states own --states shared] [--profile]

Nodes of one machine type are filled with random pods, which leave and come from then on. Pod shapes that were never
seen are judged for all classes, as filter does it, in one thread and without HTTP. On a sample of the classes the full
replay judges as well, in turns in the same process, and both judgements are compared. The table shows:

- `one shape`: CPU seconds for all classes, the median and the worst of the shapes.
- `full replay`: CPU seconds for all classes if each was replayed in full, from the sample.
- `gain`: full replay / one shape, both as means.
- `a class`: CPU time of one judgement, and of the free amounts, which are computed when a node changes.

`in doubt`: two pods of each node may be gone or not, so a node can be in up to four states.
"""

import cProfile
import gc
import itertools
import pstats
import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from extender.cluster.node_class import ClassTable, NodeClass
from extender.kubelet.admission import admit, release_pods
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.replay.free_amounts import FreeAmounts
from extender.replay.possible_states import PossibleStates
from extender.scheduling.cached_judge import alike
from extender.scheduling.judge import BoundedJudge, judge_all
from extender.scheduling.judgement import Judgement, UncertaintyPolicy
from extender.scheduling.pod_shape import SHAPE_UID, PodShape
from extender.scheduling.ranking.strategies import STRATEGIES, Weights, make_strategy
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import devices_from_json, kubelet_config_from_json, machine_from_json

Json = dict[str, Any]
NODES = (1000, 5000, 20_000, 65_536)
KINDS = ("own", "shared")
SHARED_STATES = 300
SHAPES = 12
SAMPLE = 60
"""Classes that the full replay judges as well, for every pod shape."""
NODES_A_START = 200
"""States that follow one after another from one filled node."""
GIB = 1 << 30
GPU, NIC = "vendor.example/gpu", "vendor.example/nic"


@dataclass(frozen=True)
class Type:
    """A machine type and its configuration."""

    name: str
    numa_nodes: int
    cores_per_node: int
    policy: str
    scope: str = "container"
    cpu_options: tuple[str, ...] = ()
    topology_options: tuple[str, ...] = ()
    gpus: int = 0
    page_size: str | None = None
    memory_manager: bool = True
    in_doubt: bool = False


TYPES = (
    Type("2 NUMA nodes, CPUs alone, restricted", 2, 32, "restricted", memory_manager=False),
    Type("2 NUMA nodes, restricted", 2, 32, "restricted", page_size="1Gi"),
    Type("2 NUMA nodes, restricted, in doubt", 2, 32, "restricted", page_size="1Gi", in_doubt=True),
    Type("2 NUMA nodes, 8 GPUs, single-numa-node, pod", 2, 32, "single-numa-node", scope="pod", gpus=8),
    Type(
        "4 NUMA nodes, 4 GPUs, restricted, closest",
        4,
        16,
        "restricted",
        topology_options=("prefer-closest-numa-nodes",),
        gpus=4,
    ),
    Type("8 NUMA nodes, best-effort, full cores", 8, 16, "best-effort", cpu_options=("full-pcpus-only",)),
)


@dataclass
class Tally:
    """What was measured of some nodes of one type, in seconds of this process."""

    shapes: list[float] = field(default_factory=list)
    sampled: int = 0
    full: float = 0.0
    amounts: float = 0.0


def run(console: Console) -> None:
    """Measure and print the usual sizes."""
    measure(NODES, KINDS, console)


def measure(sizes: Sequence[int], kinds: Sequence[str], console: Console, *, profiled: bool = False) -> None:
    """A table of each machine type: rows by number of nodes and kind of states."""
    for kind in TYPES:
        table = Table(title=kind.name)
        for column in ("nodes", "states", "one shape", "worst", "full replay", "gain", "a class", "amounts"):
            table.add_column(column, justify="right")
        states = list(track(_states(kind, max(sizes)), kind.name, max(sizes), console=console, transient=True))
        for size, shared in itertools.product(sizes, (each == "shared" for each in kinds)):
            given = states[: min(size, SHARED_STATES) if shared else size]
            tally = _measured(kind, given, profiled=profiled)
            table.add_row(f"{size:,}", "shared" if shared else "own", *_row(tally, len(given)))
        console.print(table)
    console.print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


def _row(tally: Tally, classes: int) -> Iterator[str]:
    one, full = statistics.mean(tally.shapes), tally.full / tally.sampled * classes
    yield f"{statistics.median(tally.shapes):.3f} s"
    yield f"{max(tally.shapes):.3f} s"
    yield f"{full:.2f} s"
    yield f"{full / one:.0f}"
    yield f"{one / classes * 1e6:.1f} µs"
    yield f"{tally.amounts / classes * 1e6:.0f} µs"


def _measured(kind: Type, states: Sequence[PossibleStates], *, profiled: bool) -> Tally:
    tally, random, table, kubelet = Tally(), Random(kind.name), ClassTable(), _kubelet(kind)
    classes = [table.hold(kubelet, each, frozenset(), stale=False) for each in states]
    gc.collect()
    gc.freeze()  # as the service does it after its start
    began = time.process_time()
    for each in itertools.chain.from_iterable(possible.states for possible in states):
        FreeAmounts.of(kubelet, each)
    tally.amounts = time.process_time() - began
    judge = BoundedJudge(make_strategy(STRATEGIES[0], Weights({})), UncertaintyPolicy())
    profile = cProfile.Profile()
    for number in range(SHAPES):
        pod = replace(pod_from_json(random_pod(kind, f"new-{number}", random)), uid=SHAPE_UID)
        if profiled:
            profile.runcall(_judgements, judge, PodShape(pod), classes, table)
        began = time.process_time()
        judgements = _judgements(judge, PodShape(pod), classes, table)
        tally.shapes.append(time.process_time() - began)
        some = random.sample(classes, min(len(classes), SAMPLE))
        seconds, full = _full_replays(judge, PodShape(pod), some)
        tally.full, tally.sampled = tally.full + seconds, tally.sampled + len(some)
        assert full == {each.id: judgements[each.id] for each in some}
    gc.unfreeze()
    if profiled:
        pstats.Stats(profile).sort_stats("tottime").print_stats(10)
    return tally


def _judgements(
    judge: BoundedJudge, shape: PodShape, classes: list[NodeClass], table: ClassTable
) -> dict[int, Judgement]:
    """As `CachedJudge` finds them: one of each set of classes that are alike, and then those that are alike to none."""
    judgements: dict[int, Judgement] = {}
    for members, _, _ in alike(table.free, shape, np.array([each.place for each in classes])):
        first = classes[members[0]]
        judgement = judge(shape, first)
        if judge.follows_from_key(shape, first, judgement):
            judgements |= dict.fromkeys([classes[i].id for i in members.tolist()], judgement)
    rest = [each for each in classes if each.id not in judgements]
    return judgements | judge_all(judge, shape, rest).judgements


def _full_replays(judge: Any, shape: PodShape, classes: list[NodeClass]) -> tuple[float, object]:  # noqa: ANN401
    """CPU seconds and judgements of full replays."""
    began = time.process_time()
    judgements = judge_all(judge, shape, classes).judgements
    return time.process_time() - began, judgements


def _states(kind: Type, count: int) -> Iterator[PossibleStates]:
    """What nodes of a type can be in: each node in another state."""
    seen: set[int] = set()
    random, kubelet = Random(kind.name), _kubelet(kind)
    for state in itertools.chain.from_iterable(_story(kind, kubelet, random) for _ in itertools.count()):
        key = hash(state.key)
        if key not in seen:
            seen.add(key)
            yield PossibleStates((state,)) if not kind.in_doubt else _in_doubt(state)
        if len(seen) == count:
            return


def _in_doubt(state: ManagerState) -> PossibleStates:
    first, *more = sorted(state.pod_uids)[:2] or [""]
    gone = [[first], more, [first, *more]]
    return PossibleStates(tuple({s.key: s for s in (state, *(release_pods(state, uids) for uids in gone))}.values()))


def _story(kind: Type, kubelet: Kubelet, random: Random) -> Iterator[ManagerState]:
    """A filled node; then pods leave and others come."""
    state = _filled(kind, kubelet, random)
    for step in range(NODES_A_START):
        yield state
        uids = sorted(state.pod_uids)
        if uids and random.random() < 0.6:
            state = release_pods(state, [random.choice(uids)])
        pod = resolve(pod_from_json(random_pod(kind, f"later-{step}", random)), kubelet.rules)
        state = admit(kubelet, state, pod, max_replays=1).state


def _filled(kind: Type, kubelet: Kubelet, random: Random) -> ManagerState:
    """Random pods until three in a row do not fit; then every fifth leaves."""
    gpus = [{"id": f"gpu-{i}", "numa": [i * kind.numa_nodes // kind.gpus]} for i in range(kind.gpus)]
    nics = [{"id": f"nic-{i}", "numa": [i * kind.numa_nodes // kind.gpus]} for i in range(kind.gpus)]
    state = initial_state(kubelet, devices_from_json({GPU: gpus, NIC: nics} if kind.gpus else {}))
    refused = number = 0
    while refused < 3:
        number += 1
        outcome = admit(
            kubelet,
            state,
            resolve(pod_from_json(random_pod(kind, f"pod-{number}", random)), kubelet.rules),
            max_replays=1,
        )
        refused = 0 if isinstance(outcome.verdict, Admitted) else refused + 1
        state = outcome.state
    return release_pods(state, [uid for uid in sorted(state.pod_uids) if random.random() < 0.2])


def random_pod(kind: Type, name: str, random: Random) -> Json:
    """One or two containers, now and then a sidecar or an init container; a few CPUs, and GPUs where there are any."""
    containers = [_container(kind, "app", random)]
    inits: list[Json] = []
    extra = random.random()
    if extra < 0.15:
        inits.append({**_plain("proxy", "1", "1Gi"), "restartPolicy": "Always"})
    elif extra < 0.3:
        inits.append(_plain("init", "500m", "2Gi"))
    elif extra < 0.4:
        containers.append(_plain("logs", "1", "1Gi"))
    spec = {"containers": containers, "initContainers": inits}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


def _container(kind: Type, name: str, random: Random) -> Json:
    cpus = random.choice((2, 2, 4, 4, 4, 6, 8, 8, 12, 16, 24))
    container = _plain(name, str(cpus), f"{cpus * random.choice((1, 2, 2, 4))}Gi")
    amounts = container["resources"]["limits"]
    if kind.page_size and random.random() < 0.2:
        amounts[f"hugepages-{kind.page_size}"] = f"{random.choice((1, 2, 4))}Gi"
    if kind.gpus and random.random() < 0.5:
        amounts[GPU] = str(random.choice((1, 1, 1, 2, 4)))
        if random.random() < 0.4:
            amounts[NIC] = "1"
    return container


def _plain(name: str, cpu: str, memory: str) -> Json:
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}}


def _kubelet(kind: Type) -> Kubelet:
    cores = kind.numa_nodes * kind.cores_per_node
    cpus = [[c + t * cores, c, 2 * c // cores, c // kind.cores_per_node, c // 8] for c in range(cores) for t in (0, 1)]
    ids = range(kind.numa_nodes)
    half = max(1, kind.numa_nodes // 2)
    numa = [
        {
            "id": i,
            "memory": 256 * GIB // kind.numa_nodes * 2,
            "hugepages": {kind.page_size: 16} if kind.page_size else {},
            "distances": [10 if i == j else 12 if i // half == j // half else 32 for j in ids],
        }
        for i in ids
    ]
    document = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": dict.fromkeys(kind.cpu_options, "true"),
        "memoryManagerPolicy": "Static" if kind.memory_manager else "None",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}] if kind.memory_manager else [],
        "topologyManagerPolicy": kind.policy,
        "topologyManagerScope": kind.scope,
        "topologyManagerPolicyOptions": dict.fromkeys(kind.topology_options, "true"),
        "reservation": {"cpu": "2", "memory": "1Gi"},
    }
    return start(machine_from_json({"cpus": cpus, "numa": numa}), kubelet_config_from_json("1.36", document))


@click.command()
@click.option("--nodes", multiple=True, type=int, default=NODES, show_default=True)
@click.option("--states", multiple=True, type=click.Choice(KINDS), default=KINDS, show_default=True)
@click.option("--profile", is_flag=True, help="Print the top ten of a profile of each row's judgements.")
def main(nodes: tuple[int, ...], states: tuple[str, ...], *, profile: bool) -> None:
    """Filter's work for a new pod shape, by number of nodes and kind of states."""
    measure(nodes, states, Console(width=110), profiled=profile)


if __name__ == "__main__":
    main()
