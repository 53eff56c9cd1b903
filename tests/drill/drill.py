"""One drill from beginning to end, and what came of it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from prometheus_client import generate_latest

from extender.api.service import Service
from extender.kubelet.state import ManagerState
from extender.runtime.audit import examine_waiting
from extender.scheduling.records.predictions import Result
from extender.wire.reports import read_report
from tests.drill import machines
from tests.drill.api import Api
from tests.drill.demands import add_demand
from tests.drill.extender import SimExtender
from tests.drill.fleet import TEMPLATE, Fleet, write_profiles
from tests.drill.groups import GroupBook, members_of, size_of
from tests.drill.node import Exporter, Kubelet
from tests.drill.nri import NriKubelet
from tests.drill.scheduler import Scheduler
from tests.drill.tally import Tally
from tests.drill.timeline import Timeline
from tests.drill.workload import make_pod
from tests.world.kubelet import report_of_kubelet

SETTLE_SECONDS = 240.0
"""From the end of the last pod on. While pods run, an end may be in doubt, and memory of init containers is."""
MAX_LIVES = 100
"""Mean lives after which all pods have ended, or something is wrong."""
MAX_PLACED_ELSEWHERE = 0.001
"""Pods that were placed elsewhere than predicted, of all admitted, if no sudden exit or restart explains it."""
MAX_ATTEMPTS = 12
"""After so many, a pod is taken back: some fit nowhere."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to play. `gate`: the extender binds; otherwise the scheduler. `restarts`: of every part.

    `restart_seconds`: virtual time between two restarts on one node, of its kubelet or its exporter. `spreads`: all
    nodes distribute CPUs across cores, and every second kubelet carries a fix of it that no report names. `demands`:
    pods demand alignment, and no kubelet refuses one for it. `nri`: every how manieth node runs the
    NRI topology-aware policy; 0: none. `groups`: the share of arrivals that are groups of pods; `gangs`: whether the
    extender places them together. `churn_seconds`: mean virtual time until a node leaves (see `fleet`); 0: all stay.
    """

    pods: int = 1000
    nodes: int = 20
    seed: int = 1
    gate: bool = True
    restarts: bool = True
    restart_seconds: float = 500.0
    mean_life: float = 60.0
    load: float = 0.9
    spreads: bool = False
    nri: int = 0
    demands: bool = False
    groups: float = 0.0
    gangs: bool = True
    churn_seconds: float = 0.0

    @property
    def kinds(self) -> tuple[machines.Kind, ...]:
        """The kinds of the nodes."""
        if self.demands:
            return machines.LENIENT
        return machines.SPREADING if self.spreads else machines.KINDS


@dataclass(kw_only=True)
class Outcome:
    """`refused`: by reason, after bind; `unforeseen` of them because of a restart that was not known at bind.

    `refused_again`: running pods that restarted kubelets refused, by reason.
    `leaks`: nodes whose room the extender has wrong once all is settled.
    `unexplained`: of the pods that `audit` counts as placed elsewhere, those at whose admission the extender could know
    of every end of another pod there and of every restart.
    `behaviours`: rules that the audit has found, by node.
    `create_errors`: pods with a container that the NRI policy refused, each with its story.
    `half_placed`: groups of which only a part was bound for long. `gaps`: between the first and the last binding of
    each other group; `waits`: of single pods until they were bound; both in seconds, sorted.
    `fleet`: what happened to nodes; `vanished_pods`: that went with their node before its kubelet decided about them.
    `assumed`: pods bound before the first report of their node, `refused_assumed` of them refused. `traces`: what the
    extender keeps of nodes that do not exist.
    `pods`: how many were made. Without the `gate` the extender is only asked, and kubelets may refuse.
    """

    pods: int
    gate: bool
    admitted: int
    refused: Counter[str]
    unforeseen: int
    refused_again: Counter[str]
    refusals: list[str]
    given_up: int
    leaks: list[str]
    in_flight: int
    restarts: Counter[str]
    outages: int
    lost_reports: int
    scheduling: Counter[str]
    audit: Counter[str] = field(default_factory=Counter)
    unexplained: int = 0
    behaviours: dict[str, list[str]] = field(default_factory=dict)
    demanding: int = 0
    unforeseen_demand: int = 0
    against_demand: list[str] = field(default_factory=list)
    virtual_seconds: float = 0.0
    create_errors: list[str] = field(default_factory=list)
    groups: int = 0
    placed_groups: int = 0
    half_placed: list[str] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    fleet: Counter[str] = field(default_factory=Counter)
    vanished_pods: int = 0
    assumed: int = 0
    refused_assumed: int = 0
    traces: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, in sentences; empty: the drill passed."""
        found = [*self.leaks[:5], *self.traces[:5]]
        if self.admitted == 0:
            found.append("no pod was admitted")
        lost = self.pods - self.admitted - self.refused.total() - self.given_up - self.vanished_pods
        if lost:
            found.append(f"{lost} of {self.pods} pods were neither admitted nor refused nor taken back")
        if self.in_flight:
            found.append(f"{self.in_flight} pods were still in flight after settling")
        if not self.gate:
            return found
        if self.half_placed:
            found.append(f"{len(self.half_placed)} of {self.groups} groups are half placed: {self.half_placed[0]}")
        if self.against_demand:
            found.append(f"{len(self.against_demand)} pods were placed against their demand: {self.against_demand[0]}")
        if self.given_up > self.pods // 10:
            found.append(f"{self.given_up} of {self.pods} pods fitted nowhere: the load says little")
        out_of = {reason: count for reason, count in self.refused.items() if reason.startswith("OutOf")}
        if out_of:
            found.append(f"kubelets counted other totals than the gate: {out_of}")
        by_managers = self.refused.total() - sum(out_of.values()) - self.unforeseen
        if by_managers > 0:
            found.append(f"{by_managers} pods were refused after bind: {'; '.join(self.refusals[:5])}")
        if self.create_errors:
            errors = "; ".join(self.create_errors[:5])
            found.append(f"{len(self.create_errors)} pods ended in CreateContainerError: {errors}")
        if self.unexplained > MAX_PLACED_ELSEWHERE * self.admitted + 1:
            found.append(f"{self.unexplained} pods were placed elsewhere than predicted")
        return found


class Drill:
    """Builds the cluster, feeds it pods at the rate that keeps it as full as `load` says, and looks at the end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.timeline = Timeline(plan.seed)
        self.api = Api(self.timeline)
        self._directory = TemporaryDirectory() if plan.churn_seconds else None
        profiles = None if self._directory is None else Path(self._directory.name)
        if profiles is not None:
            write_profiles(profiles)
        self.extender = SimExtender(self.api, gangs=bool(plan.groups) and plan.gangs, profiles=profiles)
        self.book = GroupBook()
        if plan.groups:
            self.book.follow(self.api)
        self.tally = Tally(
            believed=self._believed, running=self.extender.running_on, may_end=self.book.is_whole_or_over
        )
        self.kubelets = [
            NriKubelet(i, self.api, self.tally, plan.mean_life)
            if plan.nri and i % plan.nri == 0
            else Kubelet(i, self.api, self.tally, plan.mean_life, kinds=plan.kinds)
            for i in range(plan.nodes)
        ]
        self.exporters = {kubelet.name: Exporter(kubelet, self.extender) for kubelet in self.kubelets}
        self.fleet = Fleet(plan.churn_seconds, plan.mean_life, self.extender, self.tally, self.kubelets, self.exporters)
        self.scheduler = Scheduler(self.api, self.extender, self.kubelets, gate=plan.gate)
        self.made = self.given_up = self.outages = 0
        self.restarts: Counter[str] = Counter()
        self.audit: Counter[str] = Counter()
        self.unexplained = 0
        self.pending: set[str] = set()

    async def run(self, progress: Callable[[int], None] = lambda _: None) -> Outcome:
        """Play it, once."""
        with self._directory or nullcontext():
            return await self._played(progress)

    async def _played(self, progress: Callable[[int], None]) -> Outcome:
        timeline = self.timeline
        self.extender.start()
        timeline.after(3.0, self._arrive)
        if self.plan.restarts:
            timeline.after(timeline.between(5, 20), self._restart_extender)
            timeline.after(timeline.between(10, 40), self._outage)
            timeline.after(timeline.between(10, 40), self._restart_scheduler)
            timeline.after(timeline.between(1, 10), self._restart_something)
        if self.plan.churn_seconds:
            self.fleet.start()
        while self.made < self.plan.pods or self.pending:
            await timeline.step()
            if self.extender.service is not None:
                await examine_waiting(self.extender.service)
            progress(self.tally.admitted + self.tally.refused.total())
        self.fleet.stop()
        last = timeline.now + MAX_LIVES * self.plan.mean_life
        while timeline.now < last and any(kubelet.naive.active for kubelet in self.kubelets):
            await timeline.step()
        end = timeline.now + SETTLE_SECONDS
        while timeline.now < end:
            await timeline.step()
        return self._outcome()

    def _arrive(self) -> None:
        """Make a pod, and look after those that nobody takes."""
        if self.made >= self.plan.pods:
            return
        pod = make_pod(self.made, self.timeline.random, self.timeline.now)
        if self.plan.demands:
            add_demand(pod, self.timeline.random)
        size = size_of(self.timeline.random, self.plan.groups)
        for each in [pod] if size == 1 else members_of(pod, size):
            uid = each["metadata"]["uid"]
            self.made += 1
            self.book.came(each, self.timeline.now)
            self.api.write("ADDED", each)
            self.scheduler.submit(uid)
            self.pending.add(uid)
            self._look_after(uid)
        per_second = self.plan.load * self.plan.nodes * 3.2 / self.plan.mean_life / size
        self.timeline.after(self.timeline.random.expovariate(per_second), self._arrive)

    def _look_after(self, uid: str) -> None:
        pod = self.api.pods.get(uid)
        if pod is None or pod["status"]["phase"] != "Pending" or "startTime" in pod["status"]:
            self.pending.discard(uid)
        elif not pod["spec"].get("nodeName") and (hopeless := self._hopeless(uid)):
            for each in hopeless:
                self.given_up += 1
                self.pending.discard(each)
                self.api.delete(each, force=True)
        else:
            self.timeline.after(2.0, lambda: self._look_after(uid))

    def _hopeless(self, uid: str) -> list[str]:
        """The pods to take back: this one, or all of its group."""
        attempts = self.scheduler.attempts[uid]
        if uid in self.book.group_of:
            return self.book.to_take_back(uid, attempts, self.timeline.now)
        return [uid] if attempts >= MAX_ATTEMPTS else []

    def _restart_extender(self) -> None:
        if self.made >= self.plan.pods:
            return
        self._count_audit()
        self.restarts["extender"] += 1
        self.extender.kill()
        self.timeline.after(self.timeline.between(0.2, 3.0), self.extender.start)
        self.timeline.after(self.timeline.between(60, 200), self._restart_extender)

    def _restart_scheduler(self) -> None:
        if self.made >= self.plan.pods:
            return
        self.restarts["scheduler"] += 1
        self.scheduler.restart()
        self.timeline.after(self.timeline.between(100, 300), self._restart_scheduler)

    def _restart_something(self) -> None:
        """A kubelet, now and then with its node, or an exporter; each about once in twice `restart_seconds`."""
        if self.made >= self.plan.pods:
            return
        number = self.timeline.random.randrange(len(self.kubelets))
        kubelet = self.kubelets[number]
        if self.timeline.chance(0.5):
            self.restarts["exporter"] += 1
            if kubelet.name in self.exporters:
                self.exporters[kubelet.name].restart()
        elif not kubelet.down:
            boots = kubelet.boots
            kubelet.stop()
            self.restarts["node" if kubelet.boots > boots else "kubelet"] += 1
        self.timeline.after(
            self.timeline.random.expovariate(len(self.kubelets) / self.plan.restart_seconds), self._restart_something
        )

    def _outage(self) -> None:
        """The API server goes, and comes back."""
        if self.made >= self.plan.pods:
            return
        self.outages += 1
        self.api.set_up(False)
        self.timeline.after(self.timeline.between(0.1, 4.0), lambda: self.api.set_up(True))
        self.timeline.after(self.timeline.between(60, 200), self._outage)

    def _believed(self, node_name: str) -> str:
        service = self.extender.service
        record = None if service is None else service.known.nodes.get(node_name)
        if service is None or record is None:
            return "extender knows nothing"
        seen, now = record.observation, self.timeline.now
        starting = "starting" if node_name in service.known.nodes.starting(now) else "running"
        return f"extender: {starting} by report {seen.sequence} of {seen.observed_at:.2f}, {len(record.states)} states"

    def _count_audit(self) -> None:
        if self.extender.service is not None:
            for kind, count in self.extender.service.audit.counts.items():
                self.audit[kind.result.value] += count
            elsewhere = [each for each in self.extender.service.audit.recent if each.kind.result is Result.PLACEMENT]
            self.unexplained += sum(each.uid not in self.tally.unpredictable for each in elsewhere)

    def _outcome(self) -> Outcome:
        self._count_audit()
        service = self.extender.service
        assert service is not None
        return Outcome(
            pods=self.made,
            gate=self.plan.gate,
            admitted=self.tally.admitted,
            refused=self.tally.refused,
            unforeseen=self.tally.unforeseen,
            refused_again=self.tally.refused_again,
            refusals=self.tally.refusals,
            given_up=self.given_up,
            leaks=[wrong for kubelet in self.kubelets if (wrong := self._difference(kubelet))],
            in_flight=service.known.nodes.pods_in_flight,
            restarts=self.restarts,
            outages=self.outages,
            lost_reports=sum(exporter.lost for exporter in self.exporters.values()) + self.fleet.lost_reports,
            scheduling=self.scheduler.outcomes,
            audit=self.audit,
            unexplained=self.unexplained,
            behaviours=_behaviours(service),
            demanding=self.tally.demanding,
            unforeseen_demand=self.tally.unforeseen_demand,
            against_demand=self.tally.against_demand,
            virtual_seconds=self.timeline.now,
            create_errors=list(self.tally.create_errors.values()),
            groups=len(self.book.groups),
            placed_groups=self.book.placed,
            half_placed=self.book.half_placed,
            gaps=self.book.gaps,
            waits=self.book.waits,
            fleet=self.fleet.events,
            vanished_pods=self.fleet.vanished_pods,
            assumed=self.tally.assumed,
            refused_assumed=self.tally.refused_assumed,
            traces=list(self._traces(service)),
        )

    def _traces(self, service: Service) -> Iterator[str]:
        """What the extender keeps of nodes that the API server does not have."""
        nodes, metrics = service.known.nodes, generate_latest(service.metrics.registry).decode()
        known = {record.name for record in nodes} | set(nodes.index.names.ordered) | nodes._trackers.keys()
        if self.plan.churn_seconds:
            yield from (f"{name}: not in the API server, and kept" for name in sorted(known - self.api.nodes.keys()))
            yield from (f"a metric has {line}" for line in metrics.splitlines() if TEMPLATE in line)

    def _difference(self, kubelet: Kubelet) -> str:
        """Where the extender's states of a node are not those that its kubelet may go by at its next admission."""
        service = self.extender.service
        assert service is not None
        record = service.known.nodes.get(kubelet.name)
        truths = {truth.key: truth for truth in _next_states(kubelet)}
        if record is None or not truths:
            return f"{kubelet.name}: not known"
        states = record.node_class.states
        if {state.key for state in states} != truths.keys():
            holders = sorted(states[0].pod_uids ^ next(iter(truths.values())).pod_uids)
            return f"{kubelet.name}: {len(states)} states, {len(truths)} are possible, holders {holders}"
        return ""


def _next_states(kubelet: Kubelet) -> Iterator[ManagerState]:
    """The states of the kubelet after it has collected what ended pods hold: memory in any order (a Go map)."""
    naive = kubelet.naive
    naive.cpus.collect(naive.active)
    naive.devices.collect(naive.active)
    for memory in naive.memory.collected(naive.active):
        naive.memory = memory
        document = report_of_kubelet(kubelet.name, kubelet.scenario, naive, "truth", 1) | kubelet.extras()
        state = read_report(orjson.dumps(document)).state
        if state is not None:
            yield state


def _behaviours(service: Service) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in service.behaviours():
        found.setdefault(each.node_name, []).append(str(each.setting))
    return found
