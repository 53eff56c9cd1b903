"""Nodes that come and go: autoscaled nodes join without a report, are drained and removed, and some come back changed.

Rules of this file
- Nodes of one group have equal machines and kubelets, except that now and then a kubelet gets another configuration
  under the same label. Nothing shows that before its report.
- A new node takes pods at once. Its exporter starts some seconds later.
- Most nodes are drained before they go. Some vanish with their pods, which the API server deletes later (pod garbage
  collection), and some Node objects are deleted and created again while the kubelet runs on.
- Half of the nodes that went come back under the same name, of any group. Others get new names.
- cluster-autoscaler asks about template nodes with pods that wait.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from tests.drill import machines
from tests.drill.api import Api
from tests.drill.extender import SimExtender
from tests.drill.node import Exporter, Kubelet
from tests.drill.tally import Tally
from tests.oracle.kubelet import NaiveKubelet
from tests.world.kubelet import report_of_kubelet

Json = dict[str, Any]
TEMPLATE = "template-node-for-"
COLLECTION_SECONDS = 20.0
"""How long a pod is kept whose node does not exist, at least."""
PROFILED_GROUPS = range(0, machines.GROUPS, 2)
OTHER_CONFIGURATIONS: tuple[Json, ...] = (
    {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"},
    {"topologyManagerPolicy": "best-effort"},
    {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
)


class Fleet:
    """Lets nodes of *kubelets* go, and others come; both collections are changed in place.

    *churn_seconds*: the mean virtual time until a node leaves. *mean_life*: of pods, in seconds.
    """

    def __init__(
        self,
        churn_seconds: float,
        mean_life: float,
        extender: SimExtender,
        tally: Tally,
        kubelets: list[Kubelet],
        exporters: dict[str, Exporter],
    ) -> None:
        self.churn_seconds, self.mean_life = churn_seconds, mean_life
        self.extender, self.tally, self.kubelets, self.exporters = extender, tally, kubelets, exporters
        self.api: Api = extender.api
        self.timeline = self.api.timeline
        self.events: Counter[str] = Counter()
        self.vanished_pods = 0
        self.lost_reports = 0
        self._groups = [int(kubelet.group.removeprefix("group-")) for kubelet in kubelets]
        self._numbers = len(kubelets)
        self._missing: dict[str, float] = {}
        self._leaving: set[str] = set()
        self._is_over = False

    def start(self) -> None:
        """Let nodes go from now on."""
        self.timeline.after(self.timeline.between(3, 6), self._change)
        self.timeline.after(2.0, self._collect)
        self.timeline.after(3.0, self._simulate)

    def stop(self) -> None:
        """No more nodes go."""
        self._is_over = True

    def _change(self) -> None:
        """One node begins to leave."""
        if self._is_over:
            return
        free = [kubelet for kubelet in self.kubelets if kubelet.name not in self._leaving and not kubelet.down]
        if len(free) > 1:
            kubelet, how = self.timeline.random.choice(free), self.timeline.random.random()
            self._leaving.add(kubelet.name)
            if how < 0.7:
                self._cordon(kubelet)
            elif how < 0.85:
                self._remove(kubelet, "vanished")
            else:
                self._register_again(kubelet)
        rate = len(self.kubelets) / self.churn_seconds
        self.timeline.after(self.timeline.random.expovariate(rate or 1.0), self._change)

    def _cordon(self, kubelet: Kubelet) -> None:
        if not self.api.up:
            self.timeline.after(1.0, lambda: self._cordon(kubelet))
            return
        node = self.api.nodes[kubelet.name]
        self.api.write_node("MODIFIED", {**node, "spec": {"unschedulable": True}})
        until = self.timeline.now + 60.0
        self.timeline.after(0.2, lambda: self._drain(kubelet, until))

    def _drain(self, kubelet: Kubelet, until: float) -> None:
        there = self._pods_on(kubelet.name)
        if self.api.up:
            for uid in there:
                if uid in self.tally.decided:
                    self.api.delete(uid, force=False)
        if there and self.timeline.now < until:
            self.timeline.after(1.0, lambda: self._drain(kubelet, until))
        else:
            self._remove(kubelet, "drained")

    def _remove(self, kubelet: Kubelet, how: str) -> None:
        """The machine stops, and its Node object goes."""
        self.events[how] += 1
        kubelet.leave()
        self.kubelets.remove(kubelet)
        exporter = self.exporters.pop(kubelet.name, None)
        if exporter is not None:
            exporter.leave()
            self.lost_reports += exporter.lost
        self._delete_node(kubelet.name)
        comes_back = self.timeline.chance(0.5)
        self.timeline.after(self.timeline.between(2, 20), lambda: self._join(kubelet.name if comes_back else ""))

    def _delete_node(self, name: str) -> None:
        if not self.api.up:
            self.timeline.after(0.5, lambda: self._delete_node(name))
            return
        self.api.write_node("DELETED", self.api.nodes[name])

    def _register_again(self, kubelet: Kubelet) -> None:
        """The Node object is deleted, and the kubelet creates it again."""
        self.events["registered again"] += 1
        self._delete_node(kubelet.name)
        self.timeline.after(self.timeline.between(0.2, 8.0), lambda: self._appear(kubelet))

    def _appear(self, kubelet: Kubelet) -> None:
        if kubelet.name in self.api.nodes or not self.api.up:
            self.timeline.after(1.0, lambda: self._appear(kubelet))
            return
        kubelet.register()
        self._leaving.discard(kubelet.name)

    def _join(self, name: str) -> None:
        """A machine comes: under a name that a node had before, or a new one."""
        if not self.api.up or name in self.api.nodes or self._pods_on(name):
            self.timeline.after(1.0, lambda: self._join(name))
            return
        group = self.timeline.random.choice(self._groups)
        if self.timeline.chance(0.1):
            group = self.timeline.random.randrange(machines.GROUPS)
        number = self._numbers // machines.GROUPS * machines.GROUPS + machines.GROUPS + group
        self._numbers += 1
        changes = self.timeline.random.choice(OTHER_CONFIGURATIONS) if self.timeline.chance(0.1) else None
        self.events["came back" if name else "came"] += 1
        name = name or f"node-{self._numbers - 1}"
        kubelet = Kubelet(number, self.api, self.tally, self.mean_life, name=name, changes=changes)
        self._leaving.discard(name)
        self.kubelets.append(kubelet)
        self.timeline.after(self.timeline.between(2, 25), lambda: self._start_exporter(kubelet))

    def _start_exporter(self, kubelet: Kubelet) -> None:
        if not kubelet.has_left:
            self.exporters[kubelet.name] = Exporter(kubelet, self.extender)

    def _collect(self) -> None:
        """The garbage collection of pods: those whose node has not existed for a while go."""
        self.timeline.after(2.0, self._collect)
        if not self.api.up:
            return
        names = {pod["spec"].get("nodeName") for pod in self.api.pods.values()} - {None, ""}
        missing = {name: self._missing.get(name, self.timeline.now) for name in sorted(names - self.api.nodes.keys())}
        self._missing = missing
        for name, since in missing.items():
            if self.timeline.now - since >= COLLECTION_SECONDS:
                for uid in self._pods_on(name):
                    self.vanished_pods += uid not in self.tally.decided
                    self.api.delete(uid, force=True)

    async def _simulate(self) -> None:
        """cluster-autoscaler asks whether a pod that waits would fit on a node that does not exist."""
        self.timeline.after(3.0, self._simulate)
        waiting = [pod for pod in self.api.pods.values() if not pod["spec"].get("nodeName")]
        if waiting:
            pod, number = self.timeline.random.choice(waiting), self.timeline.random.randrange(10**6)
            names = [f"{TEMPLATE}{number}", *list(self.api.nodes)[:2]]
            body = {"Pod": pod, "Nodes": None, "NodeNames": names}
            answer = await self.extender.call("POST", "/scheduler/filter", orjson.dumps(body))
            self.events["simulations"] += answer is not None

    def _pods_on(self, name: str) -> list[str]:
        return [uid for uid, pod in self.api.pods.items() if name and pod["spec"].get("nodeName") == name]


def write_profiles(directory: Path) -> None:
    """A profile for every second group."""
    for group in PROFILED_GROUPS:
        scenario = machines.scenario(group)
        naive = NaiveKubelet.of(scenario)
        report = report_of_kubelet("profile", scenario, naive, "boot", 1)
        profile = {"labels": {machines.GROUP_LABEL: f"group-{group}"}, "report": report}
        (directory / f"group-{group:02}.json").write_text(json.dumps(profile))
