"""Runs scenarios of the NRI topology-aware policy, and compares the answers with recorded ones."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

from extender.conformance.agreement import Difference
from extender.replay.budget import BudgetError
from extender.replay.nri.books import Books, Grant
from extender.replay.nri.config import PolicyStartError
from extender.replay.nri.cpu_taking import CPUTopology, discover
from extender.replay.nri.events import (
    Node,
    Outcome,
    create,
    remove,
    remove_pod,
    resize,
    run_pod,
    set_up,
    start,
    stop,
    synchronize,
)
from extender.replay.nri.machine import DRAM, HBM, PMEM, Machine
from extender.replay.nri.objects import QoS
from extender.replay.nri.pinning import Pins
from extender.replay.nri.reconfigure import reconfigure
from extender.replay.nri.verdict import Refusal
from extender.replay.sets import format_list
from extender.replay.verdict import Certainty
from extender.wire.nri_scenarios import NRIScenario, NriStep, config_from_json, container_of, pod_of, runtime_resources

COMPARED: Final = ("ec", "g", "cpus", "mems", "sh", "upd", "un", "z", "gs")
"""The fields of an answer that are compared."""

MAX_CPUS_WITH_ZONES: Final = 64
"""Answers for larger machines have no zones (`z`), as in the recordings, unless the scenario starts with `z0`."""

_TYPE_NAMES: Final = ((DRAM, "DRAM"), (PMEM, "PMEM"), (HBM, "HBM"))


@lru_cache(maxsize=256)
def _discovered(machine: Machine) -> CPUTopology:
    return discover(machine)


@dataclass(slots=True)
class _Run:
    """One scenario under way."""

    node: Node
    zones: dict[int, tuple[int, int, int, int]]
    with_zones: bool

    def step(self, step: NriStep) -> dict[str, object]:
        """The answer to *step*."""
        before = self.node
        answer = self._answer(step)
        if answer.get("ec") == Refusal.PANIC.value:
            return answer
        if self.node is not before and self.with_zones:
            now = self.node.books.zones()
            changed = {str(i): _zone(z) for i, z in now.items() if z != self.zones.get(i)}
            if changed:
                answer["z"] = changed
            self.zones = now
        return answer

    def _answer(self, step: NriStep) -> dict[str, object]:
        match step.o:
            case "pod":
                self.node = run_pod(self.node, pod_of(step))
                return {}
            case "rmpod":
                self.node = remove_pod(self.node, step.id)
                return {}
            case "new":
                return self._create(step)
            case "cfg":
                self.node, outcome, accepted = reconfigure(self.node, config_from_json(step.cfg, "cfg"))
                return self._all_grants(outcome, "" if accepted else "config")
            case "restart":
                self.node, outcome = synchronize(self.node)
                answer = self._all_grants(outcome, "")
                if len(self.node.books.grants) > 1:
                    answer["certainty"] = Certainty.POSSIBLE.value  # the plugin's own order is random
                return answer
            case _:
                return self._existing(step)

    def _create(self, step: NriStep) -> dict[str, object]:
        books = self.node.books
        pod = books.pods.get(step.p)
        total = books.setup.topology.machine.memory_total_bytes
        new = container_of(step, QoS.UNKNOWN if pod is None else pod.qos, total)
        self.node, outcome = create(self.node, new)
        return _answer(self.node.books, outcome)

    def _existing(self, step: NriStep) -> dict[str, object]:
        """A step for a container that exists; one whose creation failed is not known to the runtime."""
        if step.id in self.node.failed:
            return {"ec": Refusal.NO_CONTAINER.value}
        if step.o == "upd":
            self.node, outcome = resize(self.node, step.id, runtime_resources(step.r))
            return _answer(self.node.books, outcome)
        answer: dict[str, object] = {}
        if step.o in ("stop", "del"):
            self.node, outcome = stop(self.node, step.id)
            answer = _answer(self.node.books, outcome)
        if step.o in ("rm", "del"):
            self.node = remove(self.node, step.id)
        return answer

    def _all_grants(self, outcome: Outcome, fault: str) -> dict[str, object]:
        books = self.node.books
        answer = _sent(outcome)
        if fault:
            answer["ec"] = outcome.refusal.value if outcome.refusal else fault
        grants = {
            id_: _grant(books, books.grants[id_]) if id_ in books.grants else None
            for id_ in sorted(books.containers)
            if id_ not in self.node.stopped
        }
        if grants:
            answer["gs"] = grants
        return answer


def creations(scenario: NRIScenario, machine: Machine) -> Iterator[Callable[[], tuple[Node, Outcome]]]:
    """The creations of *scenario*, each on the node as the steps before it left it; a call decides it once more."""
    try:
        setup = set_up(_discovered(machine), scenario.config)
    except PolicyStartError:
        return
    node = start(setup)
    under_way = _Run(node, {}, with_zones=False)
    for step in scenario.steps:
        if step.o == "new" and step.p in under_way.node.books.pods:
            pod = under_way.node.books.pods[step.p]
            yield partial(create, under_way.node, container_of(step, pod.qos, machine.memory_total_bytes))
        under_way.step(step)


def run(scenario: NRIScenario, machine: Machine) -> list[dict[str, object]] | str:
    """The answers to the steps of *scenario*; a text where the policy does not start. Ends where the plugin dies."""
    try:
        setup = set_up(_discovered(machine), scenario.config)
    except PolicyStartError as error:
        return str(error)
    node = start(setup)
    with_zones = "z0" in scenario.recorded or machine.online.bit_count() <= MAX_CPUS_WITH_ZONES
    under_way = _Run(node, node.books.zones(), with_zones)
    answers = []
    for step in scenario.steps:
        try:
            answer = under_way.step(step)
        except BudgetError as error:
            answer = {"ec": "budget", "err": str(error)}
        answers.append(answer)
        if answer.get("ec") in (Refusal.PANIC.value, "budget"):
            break
    return answers


def _answer(books: Books, outcome: Outcome) -> dict[str, object]:
    if outcome.refusal is not None:
        return {"ec": outcome.refusal.value, "err": outcome.reason}
    answer: dict[str, object] = {}
    if outcome.grant is not None:
        answer["g"] = _grant(books, outcome.grant)
    if outcome.pins is not None:
        answer.update(_pins(outcome.pins))
    answer.update(_sent(outcome))
    return answer


def _sent(outcome: Outcome) -> dict[str, object]:
    answer: dict[str, object] = {}
    if outcome.updates:
        answer["un"] = len(outcome.updates)
    changed = {id_: _pins(pins) for id_, pins in sorted(outcome.updates.items())}
    changed = {id_: pins for id_, pins in changed.items() if pins}
    if changed:
        answer["upd"] = changed
    return answer


def _pins(pins: Pins) -> dict[str, object]:
    answer: dict[str, object] = {}
    if pins.cpus:
        answer["cpus"] = format_list(pins.cpus)
    if pins.mems:
        answer["mems"] = format_list(pins.mems)
    if pins.shares is not None:
        answer["sh"] = pins.shares
    return answer


def _grant(books: Books, grant: Grant) -> dict[str, object]:
    pool = books.setup.tree.pools[grant.pool]
    answer: dict[str, object] = {"pool": pool.name, "type": grant.cpu_type.value, "part": grant.portion}
    if grant.exclusive:
        answer["ex"] = format_list(grant.exclusive)
    if grant.exclusive & pool.isolated:
        answer["iso"] = format_list(grant.exclusive & pool.isolated)
    answer["mem"] = format_list(grant.memory_nodes)
    answer["mt"] = memory_type_names(grant.memory_types)
    answer["msz"] = grant.memory_bytes
    return answer


def memory_type_names(types: int) -> str:
    """The types as the recordings write them: nothing for memory that is left alone."""
    return ",".join(name for bit, name in _TYPE_NAMES if types & bit)


def _zone(zone: tuple[int, int, int, int]) -> list[object]:
    available, shared, memory, isolated = zone
    return [available, format_list(shared), memory, format_list(isolated)]


@dataclass(slots=True)
class NRIAgreement:
    """What was compared of a theme. `open`: steps from the first one on where the real policy's answers vary."""

    counts: Counter[str] = field(default_factory=Counter)


def check(scenario: NRIScenario, machine: Machine, agreement: NRIAgreement) -> list[Difference]:
    """The differences of the first step that has any, counted in *agreement*.

    A scenario is compared up to the step where the recorded answers vary from run to run.
    """
    counts = agreement.counts
    counts["scenarios"] += 1
    answers = run(scenario, machine)
    refused_start = isinstance(answers, str)
    if refused_start != ("start" in scenario.recorded):
        counts["differ"] += 1
        return [
            Difference(
                scenario=scenario.id, step=None, path="start", recorded=scenario.recorded.get("start"), replayed=answers
            )
        ]
    if isinstance(answers, str):
        return []
    for number, (step, recorded) in enumerate(zip(scenario.steps, scenario.recorded.get("r", ()), strict=False)):
        if recorded.get("varies"):
            counts["open"] += len(scenario.steps) - number
            return []
        replayed = answers[number] if number < len(answers) else {}
        if step.o == "new":
            counts["creations"] += 1
            counts["refusals"] += "ec" in recorded
        differences = _compare(scenario, number, recorded, replayed)
        if differences:
            counts["differ"] += 1
            return differences
    return []


def _compare(
    scenario: NRIScenario, number: int, recorded: Mapping[str, Any], replayed: Mapping[str, object]
) -> list[Difference]:
    """The fields that differ. Of an answer that ends the plugin only the class is compared."""
    names: tuple[str, ...] = ("ec",) if recorded.get("ec") == Refusal.PANIC.value else COMPARED
    if "z0" not in scenario.recorded:
        names = tuple(name for name in names if name != "z")
    return [
        Difference(
            scenario=scenario.id, step=number, path=name, recorded=recorded.get(name), replayed=replayed.get(name)
        )
        for name in names
        if recorded.get(name) != replayed.get(name)
    ]
