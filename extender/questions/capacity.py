"""Capacity: how many pods fit one after another, and what runs out first.

Rules of this file
- Copies are replayed one after another, each on the state after the one before. None is extrapolated.
- A copy counts only if it is admitted, and placed as it demands, whatever the kubelet picks at random.
- Work is shared: what follows from a state is computed once, for all nodes and all ways that lead to it.
- The node's totals, selectors and taints limit the number as well, by arithmetic, as in kube-scheduler.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from extender.kubelet.admission import admit, is_indifferent, start_pod
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Certainty, Provider, RecordingTrace, Rejected
from extender.questions.asked import Asked
from extender.questions.dra import NO_DEVICES, copies_with_devices, forecast_of, less_certain, with_forecast
from extender.questions.explain import demand_fault, first_fault
from extender.questions.node_context import Subject
from extender.questions.notes import all_notes
from extender.questions.reading import pods_question_of, subjects_asked, workload_of
from extender.questions.scheduler_checks import check_node
from extender.questions.snapshot import Snapshot
from extender.replay.alignment import Alignment, alignment_of_outcomes
from extender.replay.alignment_demand import Demand
from extender.replay.possible_states import admit_in_all
from extender.scheduling.judge import Judge
from extender.scheduling.judgement import refusal_by_demand
from extender.scheduling.node_totals import add, format_milli, pod_requests, shortages
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason, refusal_of
from extender.wire.pod_replies import CapacityEnd, CapacityLimit, CapacityReply, CapacitySummary, NodeCapacity, RunsOut
from extender.wire.questions import CapacityRequest
from extender.wire.replies import ReplyBody
from extender.wire.verdicts import alignment_counts
from extender.wire.workloads import PodWorkload

MAX_REPLAYS_A_COPY: Final = 16
"""Budget for random device choices of one copy. A long series cannot afford the default of a single admission."""


def capacity_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """One document for each node, then one with the summary; or one `CapacityReply`."""
    question, paths = pods_question_of(asked, CapacityRequest, "pods", list)
    paths = paths or [f"pods[{i}]" for i in range(len(question.pods))]
    mix = [workload_of(asked, pod, path) for pod, path in zip(question.pods, paths, strict=True)]
    subjects = subjects_asked(snapshot, question.nodes, question.hypothetical)
    subjects = with_forecast(asked.forecast, [each.pod for each in mix], subjects)
    capacity = Capacity(mix, judge, question.max_copies, question.group)
    yield from counted(capacity, subjects, asked)


def counted(capacity: "Capacity", subjects: Sequence[Subject], asked: Asked) -> Iterator[ReplyBody]:
    """The documents of one question."""
    nodes: list[NodeCapacity] = []
    for node in map(capacity.of, subjects):
        nodes.append(node)
        if asked.lines:
            yield node
    notes = all_notes(capacity.mix, subjects, capacity.left_out if asked.forecast else None)
    summary = _summary(capacity, nodes, notes)
    yield CapacityEnd(summary=summary) if asked.lines else CapacityReply(summary=summary, nodes=nodes)


def _summary(capacity: "Capacity", nodes: Sequence[NodeCapacity], notes: list[str]) -> CapacitySummary:
    ends = Counter((node.limited_by.why, node.limited_by.resource) for node in nodes)
    per_pod = [sum(each) for each in zip(*(node.per_pod for node in nodes), strict=True)] or capacity.per_pod(0)
    return CapacitySummary(
        copies=sum(node.copies for node in nodes),
        group=capacity.group,
        groups=capacity.groups(per_pod),
        aligned=sum(node.aligned for node in nodes),
        split=sum(node.split for node in nodes),
        not_managed=sum(node.not_managed for node in nodes),
        per_pod=per_pod,
        nodes=len(nodes),
        full_nodes=sum(not node.copies and node.certainty is not Certainty.UNKNOWN for node in nodes),
        unknown_nodes=sum(node.certainty is Certainty.UNKNOWN for node in nodes),
        bounded=any(node.limited_by.by == "max_copies" for node in nodes),
        runs_out=[RunsOut(why=why, resource=resource, nodes=n) for (why, resource), n in ends.most_common()],
        replays=capacity.replays,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class _Rest:
    """What follows from a state: this many copies, and then the limit.

    `first` is the alignment of the first copy, and `then` what follows it; None if no copy was replayed.
    """

    copies: int
    limit: CapacityLimit
    first: Alignment | None = None
    then: "_Rest | None" = None


ENOUGH: Final = CapacityLimit("max_copies", "counting stopped at max_copies", "more may fit")
_NO_DEVICES: Final = CapacityLimit("scheduler", NO_DEVICES, "no devices are left for the claims of the pod")
_NOT_KNOWN: Final = CapacityLimit("unknown", RefusalReason.UNKNOWN.text, "not enough is known about the node")


class Capacity:
    """Counts copies of one mix of pods, taken in turn. *group*: how many of them must run together.

    One object serves one question, and caches what follows a state. The nodes must live as long as the object.
    """

    def __init__(self, mix: Sequence[PodWorkload], judge: Judge, max_copies: int, group: int = 1) -> None:
        self.mix: Final = mix
        self.left_out = 0
        """The nodes where claims are left out because it is not known what they get."""
        self.group: Final = group
        self._judge: Final = judge
        self._max: Final = max_copies
        self._shapes: Final = [PodShape(workload.copy(0)) for workload in mix]
        self._demands: Final = [shape.pod.demand.is_required for shape in self._shapes]
        self._wanted: Final = [pod_requests(w.pod, w.rules.overhead_milli) for w in mix]
        self._known: dict[object, _Rest] = {}
        self._counts: dict[tuple[int, int], Counter[Alignment]] = {}
        """Key: the identity of a `_Rest` in `_known`, and a number of copies."""
        self._numbers: dict[object, int] = {}
        self._number_of: dict[int, int] = {}
        """Of kubelets, by identity; equal kubelets have equal numbers."""
        self.replays = 0

    def aligned(self, subject: Subject) -> int:
        """How many aligned copies one node takes."""
        return self.of(subject).aligned

    def per_pod(self, copies: int) -> list[int]:
        """How many of *copies* pods belong to each entry of the mix."""
        rounds, extra = divmod(copies, len(self.mix))
        return [rounds + (i < extra) for i in range(len(self.mix))]

    def groups(self, per_pod: Sequence[int]) -> int:
        """How many whole groups these copies of each entry are. Nodes do not depend on each other, so they all fit."""
        wanted = self.per_pod(self.group)
        return min(have // need for have, need in zip(per_pod, wanted, strict=True) if need)

    def of(self, subject: Subject) -> NodeCapacity:
        """The capacity of one node."""
        by_totals = self._by_totals(subject)
        certainty, kubelet = Certainty.EXACT if subject.node_class.complete else Certainty.POSSIBLE, subject.kubelet
        alignments: Mapping[Alignment, int] = {}
        certainty = Certainty.STALE if subject.node_class.stale else certainty
        if kubelet is None or not subject.states or not self._is_known(subject):
            rest, certainty = _Rest(0, _NOT_KNOWN), Certainty.UNKNOWN
        elif by_totals.copies == 0:
            rest = by_totals
        else:
            most = min(by_totals.copies, self._max)
            found, has_claims = None, any(shape.pod.has_claims for shape in self._shapes)
            if forecast_of(subject.around) is not None and (has_claims or subject.around.served):
                found = self._by_claims(kubelet, subject, most)
                certainty = less_certain(certainty) if found is None else certainty
                self.left_out += found is None
            rest, alignments = found or self._by_topology(kubelet, subject.states, most)
            if by_totals.copies <= rest.copies and by_totals.copies < self._max:
                rest = by_totals
        return NodeCapacity(
            node=subject.name,
            hypothetical=subject.hypothetical,
            copies=rest.copies,
            per_pod=self.per_pod(rest.copies),
            **alignment_counts(alignments),
            certainty=certainty,
            totals_known=subject.around.requested_milli is not None,
            limited_by=rest.limit,
        )

    def _is_known(self, subject: Subject) -> bool:
        """Whether verdicts are possible. Only classes with missing state are checked."""
        node_class = subject.node_class
        if Provider.RUNTIME in node_class.hidden:
            return False
        if not (node_class.hidden or node_class.stale):
            return True
        judged = (self._judge(shape, node_class) for shape in self._shapes)
        return all(j.certainty is not Certainty.UNKNOWN and j.refusal is not RefusalReason.STALE for j in judged)

    def _by_topology(
        self, kubelet: Kubelet, states: tuple[ManagerState, ...], most: int
    ) -> tuple[_Rest, Mapping[Alignment, int]]:
        """At most *most* copies that the kubelet admits and places as they demand.

        They are replayed one after another until one is refused, or what follows is already known.
        """
        requests = [shape.request(kubelet.rules) for shape in self._shapes]
        if all(is_indifferent(kubelet, request) for request in requests) and not any(self._demands):
            return _Rest(most, ENOUGH), {Alignment.NOT_MANAGED: most}
        number = self._number(kubelet)
        chain: list[tuple[object, Alignment]] = []
        while True:
            turn = len(chain) % len(requests)
            key = number, turn, states[0].key if len(states) == 1 else frozenset(state.key for state in states)
            rest = self._known.get(key)
            if rest is not None:
                break
            if len(chain) >= most:
                return _Rest(most, ENOUGH), Counter(alignment for _, alignment in chain)
            demand = self._shapes[turn].pod.demand
            states, found = self._one_more(kubelet, states, requests[turn], len(chain), demand)
            if isinstance(found, CapacityLimit):
                rest = self._known[key] = _Rest(0, found)
                break
            chain.append((key, found))
        for passed, alignment in reversed(chain):
            rest = self._known[passed] = _Rest(rest.copies + 1, rest.limit, alignment, rest)
        counts = self._counted(rest, min(most, rest.copies))
        return (rest if rest.copies < most else _Rest(most, ENOUGH)), counts

    def _by_claims(self, kubelet: Kubelet, subject: Subject, most: int) -> tuple[_Rest, Mapping[Alignment, int]] | None:
        """As `_by_topology`, with the devices of the copies' claims; None: what the first one gets is not known."""
        states, counts = subject.states, Counter[Alignment]()
        for number, shape in enumerate(copies_with_devices(islice(cycle(self._shapes), most), subject)):
            if shape is None:
                return (_Rest(number, _NOT_KNOWN), counts) if number else None
            states, found = self._one_more(kubelet, states, shape.request(kubelet.rules), number, shape.pod.demand)
            if isinstance(found, CapacityLimit):
                return _Rest(number, found), counts
            counts[found] += 1
        return _Rest(counts.total(), ENOUGH if counts.total() == most else _NO_DEVICES), counts

    def _counted(self, rest: _Rest, copies: int) -> Mapping[Alignment, int]:
        """The alignments of the first *copies* of *rest*. Equal nodes are counted once."""
        key = id(rest), copies
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counter()
            here: _Rest | None = rest
            while copies and here is not None and here.first is not None:
                counts[here.first] += 1
                copies, here = copies - 1, here.then
        return counts

    def _one_more(
        self, kubelet: Kubelet, states: tuple[ManagerState, ...], request: PodRequest, number: int, demand: Demand
    ) -> tuple[tuple[ManagerState, ...], Alignment | CapacityLimit]:
        """The states after one more copy and its alignment, or why there is none."""
        request = request.copy(f"what-if-{number}")
        self.replays += len(states)
        outcomes = admit_in_all(kubelet, states, request, max_replays=MAX_REPLAYS_A_COPY)
        for outcome in outcomes:
            verdict = outcome.verdict
            if isinstance(verdict, Rejected):
                detail = _first_fault(kubelet, outcome.before, verdict, request)
                return (), CapacityLimit("topology", refusal_of(verdict).text, detail, verdict.resource)
        if not outcomes[0].complete:
            return (), CapacityLimit(
                "topology", RefusalReason.CHANCE.text, "too many random choices of devices to try them all"
            )
        broken = refusal_by_demand(demand, kubelet, request, outcomes, each_must=True)
        if broken is not None:
            return (), CapacityLimit("topology", broken.text, demand_fault(demand, kubelet, request, outcomes))
        alignment = alignment_of_outcomes(kubelet, outcomes)
        assert alignment is not None  # no outcome is a refusal
        started = any(c.reusable for c in request.containers)
        after = (start_pod(o.state, request) if started else o.state for o in outcomes)
        return tuple({state.key: state for state in after}.values()), alignment.alignment

    def _number(self, kubelet: Kubelet) -> int:
        """The kubelet's number; its long identity is hashed once per object."""
        if id(kubelet) not in self._number_of:
            self._number_of[id(kubelet)] = self._numbers.setdefault(kubelet.identity, len(self._numbers))
        return self._number_of[id(kubelet)]

    def _by_totals(self, subject: Subject) -> _Rest:
        """How many fit by the totals that kube-scheduler checks."""
        around = subject.around
        for workload in self.mix:
            answer = check_node(subject.name, {}, workload.rules, around)
            failure = answer.first_failure
            if failure is not None:
                return _Rest(0, CapacityLimit("scheduler", f"kube-scheduler: {failure.check}", failure.detail))
        if around.allocatable_milli is None:
            return _Rest(self._max, ENOUGH)
        return self._by_amounts(around.allocatable_milli, around.requested_milli or {}, around.served)

    def _by_amounts(self, total: Mapping[str, int], requested: Mapping[str, int], served: Collection[str]) -> _Rest:
        in_all: dict[str, int] = {}
        each_wanted = [{name: n for name, n in wanted.items() if name not in served} for wanted in self._wanted]
        for wanted in each_wanted:
            in_all = add(in_all, wanted)
        rounds = min(
            (
                (total.get(name, 0) - requested.get(name, 0)) // amount
                for name, amount in in_all.items()
                if name in total or "/" in name
            ),
            default=self._max,
        )
        rounds = max(0, min(rounds, self._max))
        copies = rounds * len(self.mix)
        used = add(requested, {name: rounds * amount for name, amount in in_all.items()})
        for wanted in (*each_wanted, *each_wanted):
            short = next(shortages(wanted, total, used), None)
            if short is not None:
                name, amount, left = short
                detail = f"{format_milli(name, amount)} {name} wanted, {format_milli(name, max(0, left))} left in all"
                return _Rest(copies, CapacityLimit("scheduler", "kube-scheduler: resources", detail, name))
            copies += 1
            used = add(used, wanted)
        return _Rest(self._max, ENOUGH)


def _first_fault(kubelet: Kubelet, before: ManagerState, verdict: Rejected, request: PodRequest) -> str:
    """The sentence about a refusal. If only the steps of the merge give it, the admission is replayed once more."""
    trace = RecordingTrace()
    if verdict.provider is Provider.TOPOLOGY:
        admit(kubelet, before, request, trace, verdict_only=True)
    return first_fault(kubelet, before, request, verdict, trace.events)
