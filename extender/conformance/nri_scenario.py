"""Runs scenarios of the NRI topology-aware policy, and compares the answers with recorded ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from extender.conformance.agreement import Difference
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError
from extender.kubelet.sets import format_list
from extender.kubelet.verdict import Certainty
from extender.nri import events
from extender.nri.books import Books, Grant
from extender.nri.config import PolicyStartError
from extender.nri.cpu_allocator import CPUTopology, discover
from extender.nri.machine import DRAM, HBM, PMEM, NriMachine
from extender.nri.objects import QoS
from extender.nri.orders import MAX_RESULTS, MAX_SEARCH_STEPS
from extender.nri.pinning import Pins
from extender.nri.reconfigure import reconfigurations, restart
from extender.nri.verdict import NriRefusal
from extender.wire.nri_scenarios import NRIScenario, NriStep, config_from_json, container_of, pod_of, resources_of

COMPARED: Final = ("ec", "g", "cpus", "mems", "sh", "upd", "un", "z", "gs")
"""The fields of an answer that are compared."""

COUNTED: Final = ("scenarios", "creations", "refusals", "vary", "open", "differ")
"""What is counted. `vary`: answers that vary from run to run of the real policy; `open`: steps that are not compared,
because the replay did not follow all that is possible; `differ`: scenarios."""

MAX_STEPS_OF_SEARCHES: Final = 4 * MAX_SEARCH_STEPS
"""Steps for the random orders of one scenario. A recorded scenario needs at most an eighth of them."""

MAX_CPUS_WITH_ZONES: Final = 64
"""Answers for larger machines have no zones (`z`), as in the recordings, unless the scenario starts with `z0`."""

Answer: TypeAlias = dict[str, object]
_Expected: TypeAlias = Sequence[Mapping[str, Any]]

_TYPE_NAMES: Final = ((DRAM, "DRAM"), (PMEM, "PMEM"), (HBM, "HBM"))


@lru_cache(maxsize=256)
def _discovered(machine: NriMachine) -> CPUTopology:
    return discover(machine)


@dataclass(slots=True)
class _Branch:
    """One possible course of a scenario in progress."""

    node: events.Node
    zones: dict[int, tuple[int, int, int, int]]
    with_zones: bool

    def follow(self, step: NriStep, expected: _Expected, budget: Budget) -> tuple[list[tuple[Answer, "_Branch"]], bool]:
        """The possible answers to *step* with what follows each, and whether these are all.

        *expected*: recorded answers. After a restart only the orders that they allow are followed. *budget*: for the
        orders in which containers can be taken.
        """
        complete = True
        match step.o:
            case "restart":
                found = restart(self.node, partial(_is_expected, self.node.books, expected), budget)
                answers = [(_all_grants(node, outcome, ""), node) for node, outcome in found.states]
                complete = found.complete
            case "cfg":
                possible = reconfigurations(self.node, config_from_json(step.cfg, "cfg"), budget)
                answers = [
                    (_all_grants(node, outcome, "" if accepted else "config"), node)
                    for node, outcome, accepted in possible.states
                ]
                complete = possible.complete
            case _:
                answers = [self._answer(step)]
        return [self._after(answer, node) for answer, node in answers], complete

    def _after(self, answer: Answer, node: events.Node) -> tuple[Answer, "_Branch"]:
        zones = self.zones
        if answer.get("ec") != NriRefusal.PANIC.value and node is not self.node and self.with_zones:
            zones = node.books.zones()
            changed = {str(i): _zone(z) for i, z in zones.items() if z != self.zones.get(i)}
            if changed:
                answer["z"] = changed
        return answer, _Branch(node, zones, self.with_zones)

    def _answer(self, step: NriStep) -> tuple[Answer, events.Node]:
        match step.o:
            case "pod":
                return {}, events.run_pod(self.node, pod_of(step))
            case "rmpod":
                return {}, events.remove_pod(self.node, step.id)
            case "new":
                return self._create(step)
            case _:
                return self._existing(step)

    def _create(self, step: NriStep) -> tuple[Answer, events.Node]:
        books = self.node.books
        pod = books.pods.get(step.p)
        total = books.setup.topology.machine.memory_total_bytes
        new = container_of(step, QoS.UNKNOWN if pod is None else pod.qos, total)
        node, outcome = events.create(self.node, new)
        return _answer(node.books, outcome), node

    def _existing(self, step: NriStep) -> tuple[Answer, events.Node]:
        """A step for a container that exists; one whose creation failed is not known to the runtime."""
        node = self.node
        if step.id in node.failed:
            return {"ec": NriRefusal.NO_CONTAINER.value}, node
        if step.o == "upd":
            node, outcome = events.resize(node, step.id, resources_of(step.r))
            return _answer(node.books, outcome), node
        answer: Answer = {}
        if step.o in ("stop", "del"):
            node, outcome = events.stop(node, step.id)
            answer = _answer(node.books, outcome)
        if step.o in ("rm", "del"):
            node = events.remove(node, step.id)
        return answer, node


def _all_grants(node: events.Node, outcome: events.NriOutcome, fault: str) -> Answer:
    books = node.books
    answer = _sent(outcome)
    if fault or outcome.refusal:
        answer["ec"] = outcome.refusal.value if outcome.refusal else fault
    grants = {
        id_: _grant(books, books.grants[id_]) if id_ in books.grants else None
        for id_ in sorted(books.containers)
        if id_ not in node.stopped
    }
    if grants:
        answer["gs"] = grants
    return answer


def _is_expected(books: Books, expected: _Expected, container: str, grant: Grant | None) -> bool:
    """Whether a grant in the course of a restart can be a recorded one. Its memory may get more NUMA nodes later."""
    for answer in expected:
        recorded = answer.get("gs", {}).get(container)
        if grant is None or recorded is None:
            if grant is recorded is None:
                return True
            continue
        replayed = _grant(books, grant)
        if all(replayed.get(name) == recorded.get(name) for name in ("pool", "type", "part", "ex", "mt", "msz")):
            return True
    return not expected


@dataclass(slots=True)
class _Run:
    """One scenario in progress. `complete`: whether the branches are all possible ones."""

    branches: list[_Branch]
    complete: bool = True
    budget: Budget = field(default_factory=lambda: Budget(MAX_STEPS_OF_SEARCHES))

    def step(self, step: NriStep, expected: _Expected = ()) -> list[tuple[Answer, _Branch]]:
        """The possible answers to *step*, each with its branch. In some of them the plugin's process has ended.

        Without *expected* at most `MAX_RESULTS` branches are followed.
        """
        result: list[tuple[Answer, _Branch]] = []
        for branch in self.branches:
            answers: list[tuple[Answer, _Branch]] = []
            for wanted in [(entry,) for entry in expected] if step.o == "restart" and expected else [expected]:
                found, complete = branch.follow(step, wanted, self.budget)
                self.complete &= complete
                answers += found
            result += answers
        if len(result) > MAX_RESULTS and not expected:
            self.complete = False
            del result[MAX_RESULTS:]
        self.branches = [branch for answer, branch in result if answer.get("ec") != NriRefusal.PANIC.value]
        return result

    def possible(self, step: NriStep) -> Answer:
        """The possible answers to *step*; often there is only one."""
        distinct: list[Answer] = []
        for answer, _ in self.step(step):
            if answer not in distinct:
                distinct.append(answer)
        if len(distinct) == 1 and self.complete:
            return distinct[0]
        possible: Answer = {"varies": True, "any": distinct, "certainty": Certainty.POSSIBLE.value}
        return possible if self.complete else {**possible, "complete": False}


def run(scenario: NRIScenario, machine: NriMachine) -> list[Answer] | str:
    """The answers to the steps of *scenario*; a text if the policy does not start. Ends when the plugin's process ends.

    After a restart or a new configuration several answers can be possible: then `any` lists them, and `certainty` is
    `possible`. `complete` is False if there may be more of them.
    """
    under_way = _begin(scenario, machine)
    if isinstance(under_way, str):
        return under_way
    answers: list[Answer] = []
    for step in scenario.steps:
        try:
            answers.append(under_way.possible(step))
        except BudgetError as error:
            answers.append({"ec": "budget", "err": str(error)})
            break
        if not under_way.branches:
            break
    return answers


def _begin(scenario: NRIScenario, machine: NriMachine) -> _Run | str:
    try:
        node = events.start(events.set_up(_discovered(machine), scenario.config))
    except PolicyStartError as error:
        return str(error)
    with_zones = "z0" in scenario.recorded or machine.online.bit_count() <= MAX_CPUS_WITH_ZONES
    return _Run([_Branch(node, node.books.zones(), with_zones)])


def _answer(books: Books, outcome: events.NriOutcome) -> Answer:
    if outcome.refusal is not None:
        return {"ec": outcome.refusal.value, "err": outcome.reason}
    answer: dict[str, object] = {}
    if outcome.grant is not None:
        answer["g"] = _grant(books, outcome.grant)
    if outcome.pins is not None:
        answer.update(_pins(outcome.pins))
    answer.update(_sent(outcome))
    return answer


def _sent(outcome: events.NriOutcome) -> dict[str, object]:
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
    """The types as the recordings write them: no type for memory that is left alone."""
    return ",".join(name for bit, name in _TYPE_NAMES if types & bit)


def _zone(zone: tuple[int, int, int, int]) -> list[object]:
    available, shared, memory, isolated = zone
    return [available, format_list(shared), memory, format_list(isolated)]


def check(scenario: NRIScenario, machine: NriMachine, counts: Counter[str]) -> list[Difference]:
    """The differences of the first step that has any; adds to *counts*, whose keys are `COUNTED`.

    If the real policy gave different answers in different runs, each of them must be a possible answer here, after the
    same events.
    """
    counts["scenarios"] += 1
    under_way = _begin(scenario, machine)
    if isinstance(under_way, str) != ("start" in scenario.recorded):
        counts["differ"] += 1
        replayed = under_way if isinstance(under_way, str) else None
        return [Difference(scenario.id, None, "start", scenario.recorded.get("start"), replayed)]
    if isinstance(under_way, str):
        return []
    for number, (step, recorded) in enumerate(zip(scenario.steps, scenario.recorded.get("r", ()), strict=False)):
        if step.o == "new":
            counts["creations"] += 1
            counts["refusals"] += "ec" in recorded
        counts["vary"] += bool(recorded.get("varies"))
        differences = _check_step(scenario, number, under_way, recorded)
        if differences and not under_way.complete:
            counts["open"] += len(scenario.steps) - number
            return []
        if differences:
            counts["differ"] += 1
            return differences
    unanswered = _unanswered(scenario)
    counts["differ"] += len(unanswered)
    return unanswered


def _unanswered(scenario: NRIScenario) -> list[Difference]:
    """A difference if the recording ends before the scenario does, and not because the plugin's process has ended."""
    answers, count = scenario.recorded.get("r", ()), len(scenario.steps)
    if len(answers) >= count or (answers and answers[-1].get("ec") == NriRefusal.PANIC.value):
        return []
    return [Difference(scenario.id, None, "r", f"{len(answers)} answers", f"{count} steps")]


def _check_step(scenario: NRIScenario, number: int, under_way: _Run, recorded: Mapping[str, Any]) -> list[Difference]:
    """The differences of one step; *under_way* goes on with the branches that the recording allows."""
    expected: _Expected = recorded["any"] if recorded.get("varies") else [recorded]
    if not under_way.branches:
        return _compare(scenario, number, expected[0], {})
    try:
        possible = under_way.step(scenario.steps[number], expected)
    except BudgetError as error:
        possible = [({"ec": "budget", "err": str(error)}, branch) for branch in under_way.branches]
    agreeing = set[int]()
    for entry in expected:
        found = {i for i, (answer, _) in enumerate(possible) if not _compare(scenario, number, entry, answer)}
        if not found:
            return _compare(scenario, number, entry, possible[0][0] if possible else {})
        agreeing |= found
    under_way.branches = [
        branch for i, (answer, branch) in enumerate(possible)
        if i in agreeing and answer.get("ec") != NriRefusal.PANIC.value
    ]  # fmt: skip
    return []


def _compare(
    scenario: NRIScenario, number: int, recorded: Mapping[str, Any], replayed: Mapping[str, object]
) -> list[Difference]:
    """The fields that differ. If the plugin's process ends with an answer, only the answer's class is compared."""
    names: tuple[str, ...] = ("ec",) if recorded.get("ec") == NriRefusal.PANIC.value else COMPARED
    if "z0" not in scenario.recorded:
        names = tuple(name for name in names if name != "z")
    return [
        Difference(scenario.id, number, name, recorded.get(name), replayed.get(name))
        for name in names
        if recorded.get(name) != replayed.get(name)
    ]
