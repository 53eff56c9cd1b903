"""A cluster full of pods of low priority, and one pod of high priority after the other: who is evicted for whom."""

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.drill.api import Api
from tests.drill.extender import SimExtender
from tests.drill.node import Exporter, Kubelet
from tests.drill.scheduler import Scheduler
from tests.drill.tally import Tally
from tests.drill.timeline import Timeline
from tests.drill.workload import make_pod

Json = dict[str, Any]
PRIORITY = 100
WAITING = 6
"""Pods of low priority that wait for room at any time, and take what they can get."""
QUIET_SECONDS, MAX_SECONDS = 8.0, 200.0
"""A round ends when no pod was admitted for so long, and the preemptor is given up after so long."""
LIVING_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class PreemptionPlan:
    """What to play. `finish_seconds`: the setting of the extender."""

    rounds: int = 100
    nodes: int = 7
    seed: int = 1
    finish_seconds: float = 3.0


@dataclass(kw_only=True)
class PreemptionOutcome:
    """`for_nothing`: of the `victims`, those on a node that their preemptor did not go to. `waits`: seconds, sorted."""

    placed: int
    preempted: int
    victims: int
    for_nothing: list[str]
    refusals: list[str]
    waits: list[float]
    scheduling: Counter[str]


class Preempting:
    """Fills the cluster, then plays the rounds."""

    def __init__(self, plan: PreemptionPlan) -> None:
        self.plan = plan
        self.timeline = Timeline(plan.seed)
        self.random = Random(plan.seed)
        self.api = Api(self.timeline)
        self.extender = SimExtender(self.api, finish_seconds=plan.finish_seconds)
        self.tally = Tally()
        self.kubelets = [Kubelet(i, self.api, self.tally, mean_life=1e9) for i in range(plan.nodes)]
        for kubelet in self.kubelets:
            Exporter(kubelet, self.extender)
        self.scheduler = Scheduler(self.api, self.extender, self.kubelets, gate=True, flush_seconds=300.0)
        self.made = 0
        self.waiting: set[str] = set()

    async def run(self) -> PreemptionOutcome:
        """Play it."""
        self.extender.start()
        await self._until(self.timeline.now + 5)
        await self._quiet()
        preemptors: dict[str, str] = {}
        waits = []
        for _ in range(self.plan.rounds):
            began = self.timeline.now
            uid = self._make(PRIORITY)
            while not self._is_placed(uid) and self.timeline.now < began + MAX_SECONDS:
                await self.timeline.step()
            waits.append(round(self.timeline.now - began, 1))
            preemptors[uid] = self.api.pods[uid]["spec"].get("nodeName", "")
            if not self._is_placed(uid):
                self.api.delete(uid, force=True)
            for old in list(preemptors)[:-LIVING_ROUNDS]:
                self.api.delete(old, force=False)
            await self._quiet()
        return self._outcome(preemptors, sorted(waits))

    def _outcome(self, preemptors: dict[str, str], waits: list[float]) -> PreemptionOutcome:
        evicted = self.scheduler.evicted
        return PreemptionOutcome(
            placed=sum(map(bool, preemptors.values())),
            preempted=len(evicted),
            victims=sum(map(len, evicted.values())),
            for_nothing=[
                f"{victim} on {node}, evicted for {uid}, which went to {preemptors[uid] or 'no node'}"
                for uid, victims in evicted.items()
                for victim, node in victims
                if preemptors[uid] != node
            ],
            refusals=self.tally.refusals,
            waits=waits,
            scheduling=self.scheduler.outcomes,
        )

    def _make(self, priority: int) -> str:
        pod = make_pod(self.made, self.random, self.timeline.now)
        self.made += 1
        pod["spec"]["priority"] = priority
        uid = str(pod["metadata"]["uid"])
        self.api.write("ADDED", pod)
        self.scheduler.submit(uid)
        return uid

    def _is_placed(self, uid: str) -> bool:
        return "startTime" in self.api.pods[uid]["status"]

    async def _until(self, end: float) -> None:
        while self.timeline.now < end:
            await self.timeline.step()

    async def _quiet(self) -> None:
        """Keep pods of low priority waiting until none of them has found room for a while."""
        since, admitted = self.timeline.now, self.tally.admitted
        while self.timeline.now < since + QUIET_SECONDS:
            pods = self.api.pods
            self.waiting = {uid for uid in self.waiting if uid in pods and not pods[uid]["spec"].get("nodeName")}
            while len(self.waiting) < WAITING:
                self.waiting.add(self._make(0))
            await self._until(self.timeline.now + 0.5)
            if self.tally.admitted != admitted:
                since, admitted = self.timeline.now, self.tally.admitted
