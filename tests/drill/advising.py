"""Advice that is carried out: what the extender promises is compared with what the kubelets of the drill do then.

Rules of this file
- The extender answers over its own HTTP routes, from the reports that it has. Nothing else of it is looked at.
- Evicted pods leave, their controllers create new ones, and these are bound to the promised nodes through the bind
  gate. The kubelets (`tests.oracle`) decide. A promise that they do not keep is named in `AdviceOutcome.broken`.
- A part of the pods may not be evicted: their priority is high, or a disruption budget is used up. An API server that
  knows these rules carries out the evictions (`promises.why_not_evicted`).
"""

import asyncio
import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import orjson
import yaml

from extender.scheduling.victims import DisruptionBudget
from extender.wire.placement_rules import LabelRequirement
from tests.drill.api import Api
from tests.drill.extender import SimExtender
from tests.drill.node import Exporter
from tests.drill.promises import (
    ALLOWED_DISRUPTIONS,
    NaiveNode,
    RestartableKubelet,
    copies_of,
    copies_on_empty,
    is_alike,
    largest_of,
    numa_nodes_of,
    resize_by_version,
    why_not_evicted,
    with_amount,
)
from tests.drill.scheduler import Scheduler
from tests.drill.tally import Tally
from tests.drill.timeline import Timeline
from tests.drill.workload import BEGINNING, make_pod
from tests.oracle.amounts import parse_cpus
from tests.oracle.errors import NaiveKubeletError
from tests.reports import args_of
from tests.world.scheduler import binding_of

Json = dict[str, Any]
FILL_SECONDS, SETTLE_SECONDS, MAX_SECONDS = 40.0, 45.0, 120.0
MAX_OUTSIDE = 0.1
"""Numbers of admitted pods outside the range of tune, of all that were compared; the range is for 19 of 20."""
MAX_MAY_FAIL = 0.1
MAX_TURNS = 200
PRIORITY = 5
"""Of the pods that find no place. No pod of a higher priority is evicted for them."""
MAX_ASKED = 4
"""Nodes that are asked for one by one where the pod is aligned without an eviction."""
CHANGES: tuple[tuple[str | None, Json], ...] = (
    (None, {}),
    ("v1.37.0", {}),
    ("v1.31.0", {}),
    (None, {"topologyManagerPolicy": "single-numa-node"}),
    (None, {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}),
    (None, {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}),
    ("v1.36.0", {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}, "topologyManagerPolicy": "restricted"}),
    (None, {"cpuManagerPolicyOptions": {"align-by-socket": "true"}}),
    (None, {"reservedSystemCPUs": "1,2"}),
)
"""Version (None: the same) and fields of the configuration after a restart."""


@dataclass(frozen=True, kw_only=True)
class AdvicePlan:
    """One cluster. Each kind of advice is taken this many times; restarts: once a node."""

    nodes: int = 7
    seed: int = 1
    rounds: int = 4


@dataclass(kw_only=True)
class AdviceOutcome:
    """What was carried out, counted, and each promise that was not kept. `outside`: see `MAX_OUTSIDE`."""

    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def add(self, other: "AdviceOutcome") -> None:
        """Add what came of another cluster."""
        self.done.update(other.done)
        self.faults += other.faults
        self.outside += other.outside

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, in sentences; empty: the drill passed."""
        found = list(self.faults)
        wanted = (
            "make-room plans",
            "moves",
            "restarted pods",
            "recreated pods",
            "tuned configurations",
            "smaller requests",
        )
        found += [f"{what}: there were none" for what in wanted if not self.done[what]]
        if len(self.outside) > max(1, MAX_OUTSIDE * self.done["tuned configurations"]):
            found.append(f"{len(self.outside)} numbers were outside their range: {'; '.join(self.outside[:3])}")
        if self.done["pods that may fail"] > MAX_MAY_FAIL * self.done["restarted pods"]:
            found.append(f"restart-check was unsure of {self.done['pods that may fail']} pods")
        return found


class Advising:
    """Fills a cluster, thins it out, asks, and does what the answers say."""

    def __init__(self, plan: AdvicePlan) -> None:
        self.plan = plan
        self.timeline = Timeline(plan.seed)
        self.random, self.rules = Random(plan.seed), Random(plan.seed)
        self.api = Api(self.timeline)
        self.extender = SimExtender(self.api)
        self.extender.budgets = [_budget(app, allowed) for app, allowed in ALLOWED_DISRUPTIONS.items()]
        self.tally = Tally()
        self.kubelets = {
            f"node-{i}": RestartableKubelet(i, self.api, self.tally, mean_life=1e12) for i in range(plan.nodes)
        }
        for kubelet in self.kubelets.values():
            Exporter(kubelet, self.extender)
        self.scheduler = Scheduler(self.api, self.extender, list(self.kubelets.values()), gate=True)
        self.outcome = AdviceOutcome()
        self.made = 0

    async def run(self) -> AdviceOutcome:
        """Play it."""
        self.extender.start()
        await self._until(lambda: False, 5)
        await self._fill()
        for _ in range(self.plan.rounds):
            await self._make_room()
            await self._defragment()
            await self._resize()
        await self._rightsize()
        await self._tune()
        for kubelet in self.kubelets.values():
            await self._restart(kubelet)
        if self.tally.refusals:
            self.outcome.faults.append(f"refused after bind: {self.tally.refusals[0]}")
        return self.outcome

    async def _fill(self) -> None:
        """As many pods as fit; then a third of them leaves."""
        for _ in range(8 * self.plan.nodes):
            self.scheduler.submit(self._create(make_pod(self.made, self.random, 0.0)))
        await self._until(lambda: False, FILL_SECONDS)
        for uid, pod in list(self.api.pods.items()):
            if not pod["spec"].get("nodeName"):
                self.api.delete(uid, force=True)
            elif self.random.random() < 0.33:
                self.api.delete(uid, force=False)
        await self._until(lambda: False, SETTLE_SECONDS)

    async def _make_room(self) -> None:
        wanted = self._pod_of(self.random.choice((4, 5, 6, 7)), f"{self.random.choice((1, 3, 6))}Gi")
        nodes = self.random.sample(sorted(self.kubelets), MAX_ASKED)
        for targets in (None, *([name] for name in nodes)):
            answer = await self._ask("make-room", {"pod": wanted, "nodes": targets})
            if answer["result"] == "room":
                break
        self.outcome.done[f"make-room: {answer['result']}"] += 1
        if not answer["plans"]:
            return
        plan = self.random.choice(answer["plans"])
        self.outcome.done["make-room plans"] += 1
        await self._carry_out(plan["evictions"])
        uid = await self._bind(wanted, plan["node"])
        self._compare(plan["node"], uid, plan["containers"], f"make-room on {plan['node']}")
        await self._until(lambda: False, SETTLE_SECONDS)

    async def _defragment(self) -> None:
        wanted = self._pod_of(self.random.choice((3, 4, 6)), "1Gi")
        answer = await self._ask("defragment", {"pod": wanted, "max_moves": 3, "priority": PRIORITY})
        for point in answer["curve"]:
            await self._carry_out(point["evictions"])
            kubelets = list(self.kubelets.values())
            told = point["copies"], point["largest_cpus"]
            found = sum(copies_of(k, wanted) for k in kubelets), max(largest_of(k, wanted) for k in kubelets)
            self.outcome.done["points of defragment"] += 1
            if told != found:
                self._fault(f"defragment after {point['moves']} moves: promised {told}, the kubelets give {found}")
        await self._until(lambda: False, SETTLE_SECONDS)

    async def _resize(self) -> None:
        """In place by the table of versions; recreated on its node, or refused there."""
        uid, pod = self.random.choice([each for each in self._running() if len(each[1]["spec"]["containers"]) == 1])
        name, kubelet = self._name(pod), self.kubelets[pod["spec"]["nodeName"]]
        now = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        cpus = self.random.choice([each for each in ("1", "2", "3", "5", "7", "20") if each != now])
        answer = await self._ask("resize-check", {"pod": name, "cpu": cpus})
        self.outcome.done["resizes checked"] += 1
        changed = with_amount(pod, "cpu", cpus)
        expected = resize_by_version(kubelet, pod, changed)
        if answer["result"] != expected:
            self._fault(f"resize-check of {name} to {cpus} CPUs: {answer['result']}, expected {expected}")
        own = answer["recreated"]
        self.outcome.done["recreated pods"] += 1
        if own["outcome"] != "fits":
            if NaiveNode.copy_of(kubelet, [uid]).admit(changed, "again"):
                self._fault(f"resize-check of {name}: {own['reason']}, and {kubelet.name} admits it")
            return
        self.api.delete(uid, force=False)
        await self._until(lambda: uid not in self.api.pods)
        await self._until(lambda: False, 10)
        again = await self._bind(changed, kubelet.name)
        self._compare(kubelet.name, again, own["containers"], f"resize-check of {name}")
        await self._until(lambda: False, SETTLE_SECONDS)

    async def _rightsize(self) -> None:
        """The smaller requests on empty kubelets of the nodes that run such pods."""
        answer = await self._ask("rightsize", {})
        running = self._running()
        by_name = {self._name(pod): pod for _, pod in running}
        for told in answer["suggestions"]:
            pod = by_name[told["examples"][0]]
            alike = {each["spec"]["nodeName"] for _, each in running if is_alike(each, pod)}
            smaller = with_amount(pod, told["resource"], told["after"], told["container"])
            found = [
                sum(copies_on_empty(self.kubelets[name], each) for name in sorted(alike)) for each in (pod, smaller)
            ]
            self.outcome.done["smaller requests"] += 1
            if (told["nodes"], told["copies_before"], told["copies_after"]) != (len(alike), *found):
                self._fault(f"rightsize of {told['examples'][0]}: {told}, the kubelets give {found} on {sorted(alike)}")

    async def _tune(self) -> None:
        """Each configuration on empty kubelets with the node's pods in another random order."""
        answer = await self._ask("tune", {"configurations": 14, "seed": self.plan.seed})
        running = self._running()
        for row in answer["configurations"]:
            patches = {name: yaml.safe_load(p["patch"]) for p in row["patches"] for name in p["nodes"]}
            admitted = failing = 0
            for kubelet in self.kubelets.values():
                pods = [pod for _, pod in running if pod["spec"]["nodeName"] == kubelet.name]
                self.random.shuffle(pods)
                try:
                    node = NaiveNode.empty(kubelet, patches.get(kubelet.name, {}))
                except NaiveKubeletError:
                    failing += 1
                    continue
                admitted += sum(node.admit(pod, pod["metadata"]["uid"]) is not None for pod in pods)
            self.outcome.done["tuned configurations"] += not row["current"]
            what = f"tune, seed {self.plan.seed}, {row['change'] or 'as it is'}"
            if failing != row["failing_nodes"]:
                self._fault(f"{what}: {row['failing_nodes']} kubelets should not start, {failing} did not")
            if not row["admitted_least"] <= admitted <= row["admitted_most"]:
                told = f"{row['admitted']} ({row['admitted_least']}-{row['admitted_most']})"
                self.outcome.outside.append(f"{what}: {told} promised, {admitted} admitted")

    async def _restart(self, kubelet: RestartableKubelet) -> None:
        """Restart a kubelet with a change, and compare what becomes of each pod."""
        version, fields = self.random.choice(CHANGES)
        question = {"nodes": [kubelet.name], "kubelet_version": version, "kubelet": fields}
        (told,) = (await self._ask("restart-check", question))["nodes"]
        what = f"restart of {kubelet.name} with {version or 'its version'} {fields}"
        pods = {self._name(pod): uid for uid, pod in self._running() if pod["spec"]["nodeName"] == kubelet.name}
        try:
            kubelet.restart_with(version, fields)
        except NaiveKubeletError as error:
            if told["action"] != "does-not-start":
                self._fault(f"{what}: {told['action']}, and the kubelet does not start: {error}")
            return
        await self._until(lambda: kubelet.is_back)
        if told["action"] == "does-not-start":
            self._fault(f"{what}: it starts, although {told['error']}")
            return
        if bool(told["refused_files"]) != bool(kubelet.refused_files):
            self._fault(f"{what}: refused files {told['refused_files']}, by the kubelet {kubelet.refused_files}")
        for pod in told["pods"]:
            self._compare_restarted(kubelet, pod, pods[pod["pod"]], what)
        if unnamed := kubelet.refused_pods - {pods[pod["pod"]] for pod in told["pods"]}:
            self._fault(f"{what}: {sorted(unnamed)} failed and were not named")

    def _compare_restarted(self, kubelet: RestartableKubelet, pod: Json, uid: str, what: str) -> None:
        self.outcome.done["restarted pods"] += 1
        self.outcome.done["pods that failed"] += uid in kubelet.refused_pods
        self.outcome.done["pods that may fail"] += pod["result"] == "may-fail"
        fails = uid in kubelet.refused_pods
        if fails != (pod["result"] == "fails") and pod["result"] != "may-fail":
            self._fault(f"{what}: {pod['pod']} {'failed' if fails else 'was kept'}, promised: {pod['result']}")
        elif not fails and pod["result"] in ("kept", "moved"):
            held = set().union(*kubelet.naive.cpus.entries.get(uid, {}).values())
            if held != parse_cpus(pod["cpus_after"]):
                self._fault(f"{what}: {pod['pod']} has CPUs {sorted(held)}, promised {pod['cpus_after']}")

    async def _carry_out(self, evictions: list[Json]) -> None:
        """Evict in the printed order; when all have left, recreate each on its promised node, in the same order."""
        by_name = {self._name(pod): (uid, pod) for uid, pod in self._running()}
        gone = [by_name[each["pod"]] for each in evictions]
        for reason in why_not_evicted([pod for _, pod in gone], PRIORITY):
            self._fault(f"an eviction is refused: {reason}")
        for uid, _ in gone:
            self.api.delete(uid, force=False)
        await self._until(lambda: not any(uid in self.api.pods for uid, _ in gone))
        await self._until(lambda: False, 10 if gone else 0)
        for each, (_, pod) in zip(evictions, gone, strict=True):
            uid = await self._bind(pod, each["to"])
            self.outcome.done["moves"] += 1
            found = numa_nodes_of(self.kubelets[each["to"]], uid)
            if found != set(each["numa"]):  # a pod of the shared pool is on none
                self._fault(f"{each['pod']} lies on NUMA {sorted(found)} of {each['to']}, promised {each['numa']}")
        await self._until(lambda: False, 10 if gone else 0)

    def _compare(self, node: str, uid: str, containers: Json, what: str) -> None:
        """The CPUs of each container as promised."""
        held = self.kubelets[node].naive.cpus.entries.get(uid, {})
        for name, placed in containers.items():
            promised = parse_cpus(placed["cpus"])
            if held.get(name, set()) != promised:
                self._fault(f"{what}: container {name} has CPUs {sorted(held.get(name, ()))}, promised {promised}")

    async def _bind(self, template: Json, node: str) -> str:
        """A new pod of this template, bound to the node through the gate; it ends admitted, or a fault is noted."""
        pod = copy.deepcopy(template)
        uid = self._create(pod)
        metadata = self.api.pods[uid]["metadata"]
        error = ""
        for _ in range(8):  # bind defers a pod while another one on the node is about to end
            await self._until(lambda: False, 2)
            if self.api.pods[uid]["spec"].get("nodeName"):  # it was bound, and the reply was lost
                error = ""
                break
            passed = await self._call("/scheduler/filter", args_of(self.api.pods[uid], node))
            error = passed["Error"] or str(passed["FailedNodes"] | passed["FailedAndUnresolvableNodes"])
            if passed["NodeNames"]:
                error = (await self._call("/scheduler/bind", binding_of(self.api.pods[uid], node)))["Error"]
            if not error:
                break
        if error:
            self._fault(f"{metadata['name']} was not bound to {node}: {error}")
            self.api.delete(uid, force=True)
        await self._until(lambda: uid not in self.api.pods or "startTime" in self.api.pods[uid]["status"])
        return uid

    def _create(self, pod: Json) -> str:
        """A new pod of a ReplicaSet, one second younger than the one before."""
        self.made += 1
        uid, name = f"uid-{self.made}", f"p{self.made}"
        pod["spec"].setdefault("priority", self.rules.choice((0, 0, 0, PRIORITY, 1000)))
        labels = pod["metadata"].get("labels") or {"app": self.rules.choice(("free", "free", *ALLOWED_DISRUPTIONS))}
        created = datetime.fromtimestamp(BEGINNING + self.made, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        pod["metadata"] = {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "labels": labels,
            "creationTimestamp": created,
            "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "controller": True}],
        }
        pod["spec"].pop("nodeName", None)
        pod["status"] = {"phase": "Pending", "qosClass": pod["status"]["qosClass"]}
        self.api.write("ADDED", pod)
        return uid

    def _running(self) -> list[tuple[str, Json]]:
        """Pods on nodes that have not finished and are not being deleted."""
        return [
            (uid, pod)
            for uid, pod in self.api.pods.items()
            if pod["spec"].get("nodeName")
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
            and "deletionTimestamp" not in pod["metadata"]
        ]

    @staticmethod
    def _pod_of(cpus: int, memory: str) -> Json:
        amounts = {"cpu": str(cpus), "memory": memory}
        container = {"name": "c0", "image": "i", "resources": {"requests": amounts, "limits": dict(amounts)}}
        metadata = {"name": "wanted", "namespace": "default", "uid": "wanted"}
        spec = {"containers": [container], "priority": PRIORITY}
        return {"metadata": metadata, "spec": spec, "status": {"qosClass": "Guaranteed"}}

    @staticmethod
    def _name(pod: Json) -> str:
        return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"

    async def _ask(self, name: str, question: Json) -> Json:
        """The story stands still meanwhile: the answer is worked out in a thread, in real time."""
        reply = await self.extender.call("POST", f"/v1/advice/{name}", orjson.dumps(question))
        return self._read(reply)

    async def _call(self, path: str, body: Json) -> Json:
        """A verb of the scheduler, which may wait in the time of the story."""
        call = asyncio.ensure_future(self.extender.call("POST", path, orjson.dumps(body)))
        for _ in range(MAX_TURNS):
            if call.done():
                break
            await asyncio.sleep(0)
        await self._until(call.done)
        return self._read(await asyncio.wait_for(call, MAX_SECONDS))

    @staticmethod
    def _read(reply: tuple[int, bytes] | None) -> Json:
        assert reply is not None
        assert reply[0] == 200, reply[1]
        answer: Json = orjson.loads(reply[1])
        return answer

    async def _until(self, is_reached: Callable[[], bool], seconds: float = MAX_SECONDS) -> None:
        """Let things happen until something is reached, or the time is over."""
        end = self.timeline.now + seconds
        while self.timeline.now < end and not is_reached():
            await self.timeline.step()

    def _fault(self, text: str) -> None:
        self.outcome.faults.append(f"seed {self.plan.seed}: {text}")


def _budget(app: str, allowed: int) -> DisruptionBudget:
    """The budget of an app, as the watch delivers it. Evicted pods are replaced before the next question."""
    requirement = LabelRequirement(key="app", operator="In", values=frozenset({app}))
    return DisruptionBudget(
        namespace="default",
        name=app,
        requirements=(requirement,),
        disruptions_allowed=allowed,
        already_disrupted=frozenset(),
    )
