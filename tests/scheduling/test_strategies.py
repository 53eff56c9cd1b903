"""Strategies by example: the worked example of the docs, odd machines, weights and their setting."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from extender.app import make_service
from extender.cluster.node_class import ClassTable
from extender.config.settings import Settings
from extender.kubelet.admission import admit
from extender.kubelet.machine import CPUFacts, Machine, NUMANodeFacts
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import Device, DeviceState
from extender.kubelet.verdict import Admitted
from extender.replay.possible_states import PossibleStates
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.judge import BoundedJudge, judge_all
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.headrooms import Headroom, headrooms_of
from extender.scheduling.ranking.placement import AdmissionOutcome
from extender.scheduling.ranking.strategies import STRATEGIES, Weights, make_strategy
from extender.scheduling.scoring import score_nodes
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import kubelet_config_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.observations import observation_of
from tests.reports import pod_of, sample

DOC = Path(__file__).parents[2] / "docs" / "strategies.md"
GIB = 1 << 30
ALIKE = Weights({})
GPU = "vendor.example/gpu"


def _held(name: str, cpu: int, memory: str, copies: int = 1) -> Workload:
    return Workload(name=name, copies=copies, resources={"cpu": cpu, "memory": memory})


NODES = {
    "empty": sample("empty"),
    "half": sample("half", workloads=[_held("a", 6, "20Gi")]),
    "holes": sample("holes", workloads=[_held("a", 6, "2Gi"), _held("b", 4, "2Gi", copies=3)]),
    "split": sample("split", topologyManagerPolicy="best-effort", workloads=[_held("a", 10, "8Gi", copies=2)]),
}
"""The nodes of the docs."""


def _table(heading: str) -> dict[str, list[str]]:
    """The table of the docs whose header row begins with *heading*: cells by the first cell of each row."""
    lines = DOC.read_text().partition("## A worked example")[2].splitlines()
    start_of = next(i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows: dict[str, list[str]] = {}
    for line in lines[start_of:]:
        if not line.startswith("|"):
            break
        first, *cells = (cell.strip().strip("`") for cell in line.strip("|").split("|"))
        rows[first] = cells
    return rows


def _admission(node: SampleNode, pod: Mapping[str, object]) -> AdmissionOutcome:
    outcome = admit(node.kubelet, node.state, resolve(pod_from_json(pod), node.kubelet.rules))
    assert isinstance(outcome.verdict, Admitted)
    return AdmissionOutcome(kubelet=node.kubelet, before=node.state, after=outcome.state, admitted=outcome.verdict)


def test_the_example_is_on_the_nodes_that_the_docs_describe() -> None:
    described = _table("node")

    assert list(described)[2:] == list(NODES)
    for name, node in NODES.items():
        rooms = headrooms_of(node.kubelet, node.state)
        cpus = ", ".join(map(str, rooms["cpu"].aligned))
        memory = ", ".join(str(free // GIB) for free in rooms["memory"].aligned)
        placement = _admission(node, pod_of(8, "4Gi")).admitted.placements["app"]
        places = [str(i) for i in range(2) if node.kubelet.machine.numa_bits_of_cpus(placement.cpus) >> i & 1]
        assert described[name] == [cpus, memory, ", ".join(places)]


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_example_has_the_merits_and_scores_of_the_docs(name: str) -> None:
    written = [cell.split(" → ") for cell in _table("strategy")[name]]
    table = ClassTable()
    classes = [
        table.hold(node.kubelet, PossibleStates((node.state,)), frozenset(), stale=False) for node in NODES.values()
    ]
    shape = PodShape(pod_from_json(pod_of(8, "4Gi")))

    judgements = judge_all(BoundedJudge(make_strategy(name, ALIKE), UncertaintyPolicy()), shape, classes).judgements
    scores = score_nodes([judgements[each.id] for each in classes])

    assert [judgements[each.id].merit for each in classes] == [
        int(merit.replace("\N{MINUS SIGN}", "-")) for merit, _ in written
    ]
    assert scores == [int(score) for _, score in written]


def test_the_docs_name_every_strategy_and_no_other() -> None:
    assert tuple(re.findall(r"^\| `([a-z-]+)`(?: \(default\))? \| [a-z]", DOC.read_text(), re.MULTILINE)) == STRATEGIES


@pytest.mark.parametrize("node", NODES.values(), ids=list(NODES))
def test_the_largest_room_is_what_the_kubelet_still_aligns(node: SampleNode) -> None:
    """One CPU more is refused by a kubelet that aligns on one NUMA node."""
    config = replace(node.kubelet.config, topology_manager_policy="single-numa-node", memory_manager_policy="None")
    kubelet = start(node.kubelet.machine, config)
    largest = headrooms_of(node.kubelet, node.state)["cpu"].largest

    fits = [
        isinstance(admit(kubelet, node.state, resolve(pod_from_json(pod_of(cpu)), kubelet.rules)).verdict, Admitted)
        for cpu in (largest, largest + 1)
    ]

    assert fits == [True, False]


def test_numa_ids_may_be_sparse_and_nodes_without_cpus_or_devices() -> None:
    cpus = [CPUFacts(i, i, 0, 1 if i < 4 else 8, None) for i in range(8)]
    machine = Machine.build(cpus, [NUMANodeFacts(i, 8 * GIB) for i in (1, 8, 40)])
    kubelet = start(
        machine,
        kubelet_config_from_json(
            "v1.36.0",
            {"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted", "reservation": {"cpu": "1"}},
        ),
    )
    devices = {
        "a": Device(numa=1 << 40, healthy=True),
        "b": Device(numa=1 << 1 | 1 << 8, healthy=True),
        "c": Device(numa=None, healthy=True),
        "d": Device(numa=1 << 8, healthy=False),
        "e": Device(numa=1 << 63, healthy=True),
    }
    state = replace(initial_state(kubelet, {GPU: devices}), devices=DeviceState(devices={GPU: devices, "empty/x": {}}))

    rooms = headrooms_of(kubelet, state)

    assert rooms == {"cpu": Headroom(7, 7, (3, 4)), GPU: Headroom(4, 4, (1, 1, 1, 1))}
    outcome = admit(kubelet, state, resolve(pod_from_json(pod_of(2, devices={GPU: 1})), kubelet.rules))
    for verdict, after in ((o.verdict, o.state) for o in (outcome, *outcome.alternatives)):
        assert isinstance(verdict, Admitted)
        admission = AdmissionOutcome(kubelet=kubelet, before=state, after=after, admitted=verdict)
        for name in STRATEGIES:
            assert isinstance(make_strategy(name, ALIKE)(admission), int)


def test_with_whole_cores_only_half_reserved_cores_are_no_room() -> None:
    node = sample(cpuManagerPolicyOptions={"full-pcpus-only": "true"}, reservedSystemCPUs="0,1")

    assert headrooms_of(node.kubelet, node.state)["cpu"] == Headroom(30, 30, (12, 16))


def test_what_is_not_managed_is_not_measured() -> None:
    node = sample(memoryManagerPolicy="None")

    assert [name for name, *_ in _admission(node, pod_of(2)).taken()] == ["cpu"]
    assert [name for name, *_ in _admission(NODES["empty"], pod_of(2)).taken()] == ["cpu", "memory"]


def test_memory_of_a_numa_node_in_a_group_is_no_room_for_one() -> None:
    node = sample(topologyManagerPolicy="best-effort", workloads=[_held("wide", 2, "40Gi")])

    memory = headrooms_of(node.kubelet, node.state)["memory"]

    assert memory.free == 22 * GIB
    assert memory.largest == 0


def test_a_weight_moves_the_mean_and_zero_leaves_out() -> None:
    admission = _admission(NODES["half"], pod_of(8, "4Gi"))

    def merit(weights: dict[str, int]) -> int:
        return make_strategy("least-allocated", Weights(weights))(admission)

    assert merit({"memory": 0}) == merit({"cpu": 100, "memory": 0}) == 16 * 10**6 // 30
    assert merit({"cpu": 0}) == 38 * 10**6 // 62
    assert merit({"cpu": 0}) > merit({"memory": 3}) > merit({}) > merit({"cpu": 3}) > merit({"memory": 0})
    assert merit({GPU: 100}) == merit({})


@pytest.mark.parametrize("name", STRATEGIES[1:])
def test_where_nothing_counts_the_merit_is_0(name: str) -> None:
    admission = _admission(NODES["half"], pod_of(8, "4Gi"))

    assert make_strategy(name, Weights({"cpu": 0, "memory": 0}))(admission) == 0


def test_weights_are_read() -> None:
    weights = Weights.parse(" cpu=2, hugepages-1Gi = 0 ,nvidia.com/gpu=100,")

    assert [weights[r] for r in ("cpu", "hugepages-1Gi", "nvidia.com/gpu", "memory")] == [2, 0, 100, 1]
    assert Weights.parse("")["cpu"] == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gpu=1", "'gpu' is not a resource that a kubelet manages per NUMA node"),
        ("ephemeral-storage=1", "not a resource"),
        ("hugepages-=1", "not a resource"),
        ("=1", "'' is not a resource"),
        ("/gpu=1", "not a resource"),
        ("a.b/c/d=1", "not a resource"),
        ("cpu", "'cpu' is not of the form NAME=WEIGHT"),
        ("cpu=", "the weight of cpu is an integer from 0 to 100, not ''"),
        ("cpu=-1", "not '-1'"),
        ("cpu=101", "not '101'"),
        ("cpu=1.5", "not '1.5'"),
        ("cpu=٣", "an integer"),
        ("cpu=1,cpu=2", "cpu is given twice"),
        ("x" * 99, "..."),
    ],
)
def test_weights_that_cannot_be_read_stop_the_service(text: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        Settings(resource_weights=text)


def test_a_strategy_that_does_not_exist_stops_the_service() -> None:
    with pytest.raises(ValidationError, match="unknown strategy; use one of balanced, least-allocated"):
        Settings(strategy="best")


@pytest.mark.parametrize("name", STRATEGIES)
def test_amounts_are_computed_for_each_kind_of_answer_and_prioritize_scores_as_the_strategy_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, looked = make_service(Settings(strategy=name)), list[str]()
    for number in range(24):
        held: dict[str, int | str] = {"cpu": number % 11 + 1, "memory": f"{number % 7 + 1}Gi"}
        node = sample(f"node-{number}", workloads=[Workload(name="w", resources=held)])
        service.known.nodes.observe(observation_of(node.name, node), service.clock())

    def noted(self: Any, taken: Any = AdmissionOutcome.taken) -> Any:  # noqa: ANN401
        looked.append(name)
        return taken(self)

    monkeypatch.setattr(AdmissionOutcome, "taken", noted)
    pod = pod_from_json(pod_of(3, "2Gi"))
    names = [f"node-{number}" for number in range(24)]
    args = SchedulerArgs(pod=pod, names=names, nodes=None, priority=0)

    assert len(asyncio.run(service.scheduling.filter.filter(args)).feasible) == 24
    assert len(looked) <= 4, "once for each kind of answer, not for each node"
    scores = list(asyncio.run(service.scheduling.prioritize.prioritize(args)))
    assert bool(looked) == (name != "least-numa")
    assert len(looked) <= 8, "twice for each kind of answer, not for each node"
    classes = service.known.nodes.classes_of(names)
    judge = BoundedJudge(make_strategy(name, ALIKE), UncertaintyPolicy())
    assert scores == score_nodes([judge(PodShape(pod), each) for each in classes])
