"""Two extenders behind one lease, pods coming in, and the leader killed at any moment.

What must hold at the end, of the truth in the API server:
- Every pod is on one node, or no node takes it; none was lost on the way.
- Each node's kubelet, shown its pods in the order of their bindings, admits every one of them: nobody bound a pod onto
  room that the other had given away.
"""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from extender.samples.nodes import SampleNode
from tests.fakes.apiserver import FakeApiServer
from tests.faults.parts import JSON, Extender, Reporter, kubeconfig
from tests.reports import args_of, pod_of, sample
from tests.waiting import PATIENCE_SECONDS, until
from tests.world.kubelet import Kubelet
from tests.world.scheduler import Scheduler

LEASE_SECONDS = 3


MAX_SECONDS_WITHOUT_LEADER = 15.0
"""Of a lease of three seconds; the rest is for a machine that does other work."""
MAX_RSS_BYTES = 400 << 20


@dataclass
class Story:
    """What happened. `seconds_without_leader`: from each kill to the next binding."""

    pods: int = 0
    bound: int = 0
    nowhere: int = 0
    kills: int = 0
    errors: int = 0
    refused_at_bind: int = 0
    seconds_without_leader: list[float] = field(default_factory=list)
    false_admits: list[str] = field(default_factory=list)
    peak_rss_bytes: int = 0

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, in sentences; empty: the drill passed."""
        longest = max(self.seconds_without_leader, default=0.0)
        faults = (
            (not self.bound, "no pod was bound"),
            (not self.kills, "no leader was killed"),
            (
                self.bound + self.nowhere != self.pods,
                f"{self.bound} bound and {self.nowhere} refused of {self.pods} pods",
            ),
            (longest > MAX_SECONDS_WITHOUT_LEADER, f"for {longest:.1f} s there was no leader"),
            (self.peak_rss_bytes > MAX_RSS_BYTES, f"resident memory reached {self.peak_rss_bytes >> 20} MiB"),
        )
        return [f"refused by its kubelet: {each}" for each in self.false_admits] + [
            text for is_so, text in faults if is_so
        ]


def play(directory: Path, *, seed: int, kills: int, nodes: int = 4, pods: int = 60) -> Story:
    """One story. The same seed kills at the same pods and phases, not at the same microseconds."""
    chance = random.Random(seed)
    cluster = [sample(f"node-{i}") for i in range(nodes)]
    kubelets = {node.name: Kubelet.of(node) for node in cluster}
    names = list(kubelets)
    killing = sorted(chance.sample(range(5, pods - 2), kills))
    story = Story(pods=pods)
    with FakeApiServer() as server:
        for name in names:
            server.nodes.create({"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}}})
        settings = {
            "kubeconfig": kubeconfig(directory, server.url), "lease": "on", "lease_seconds": LEASE_SECONDS,
            "unknown_nodes": "refuse", "read_rate": 1000,
        }  # fmt: skip
        extenders = [Extender(directory / f"extender-{i}.log", **settings) for i in range(2)]
        with extenders[0], extenders[1], Reporter(cluster, [e.url for e in extenders]) as reporter:
            until(lambda: all(knows(e) == nodes for e in extenders), "warmth")
            until(lambda: sum(leads(e) for e in extenders) == 1, "a leader")
            for index in range(pods):
                cpu, memory = chance.choice((1, 2, 3, 4, 6)), f"{chance.choice((1, 2, 4))}Gi"
                pod = server.pods.create(pod_of(cpu, memory, name=f"p{index}"))
                if index in killing:
                    kill_leader(extenders, server, names, pod, chance, story)
                schedule(extenders, server, names, pod, story)
                admit_bound(server, kubelets, pod, reporter)
            assert reporter.unexpected == []
            story.peak_rss_bytes = max(e.note_memory() or e.peak_rss_bytes for e in extenders)
        check(server, cluster, story)
    return story


def knows(extender: Extender) -> float:
    return extender.metric('numa_extender_nodes{certainty="exact"}')


def leads(extender: Extender) -> bool:
    return extender.metric("numa_extender_leader") == 1.0


def schedule(extenders: list[Extender], server: FakeApiServer, names: list[str], pod: JSON, story: Story) -> None:
    """As kube-scheduler would: filter, choose, bind; begin again on an error, with either extender."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for attempt in range(10_000):
        assert time.monotonic() < deadline, f"{pod['metadata']['name']} was not scheduled"
        extender = extenders[attempt % 2]
        answer = extender.post("/scheduler/filter", args_of(pod, *names))
        if answer is None or answer["Error"]:
            story.errors += 1
            time.sleep(0.05)
            continue
        if not answer["NodeNames"]:
            reasons = set(answer["FailedAndUnresolvableNodes"].values())
            if any("not known" in reason or "stale" in reason for reason in reasons):
                time.sleep(0.05)
                continue
            story.nowhere += 1
            return
        error = bind(extender, pod, answer["NodeNames"][0])
        if error == "":
            story.bound += 1
            return
        story.refused_at_bind += 1
        if (server.pods.get(pod["metadata"]["name"]) or {})["spec"].get("nodeName"):
            story.bound += 1  # the reply was lost; the scheduler sees the node name and drops the pod
            return
        time.sleep(0.02)


def bind(extender: Extender, pod: JSON, node: str) -> str | None:
    return Scheduler(lambda verb, body: extender.post(f"/scheduler/{verb}", body)).bind(pod, node)


def kill_leader(
    extenders: list[Extender], server: FakeApiServer, names: list[str], pod: JSON, chance: random.Random, story: Story
) -> None:
    """Kill the leader, before, within or after the binding of *pod*; start it again later."""
    leader = next((e for e in extenders if leads(e)), extenders[0])
    passed = (leader.post("/scheduler/filter", args_of(pod, *names)) or {}).get("NodeNames") or names
    server.faults.latency = chance.choice((0.0, 0.02, 0.1))
    binding = threading.Thread(target=bind, args=(leader, pod, passed[0]))
    binding.start()
    time.sleep(chance.choice((0.0, 0.005, 0.02, 0.05, 0.15)))
    leader.kill()
    killed_at = time.monotonic()
    binding.join()
    server.faults.latency = 0.0
    leader.start()
    until(lambda: any(leads(e) for e in extenders), "a takeover")
    story.seconds_without_leader.append(time.monotonic() - killed_at)
    story.kills += 1


def admit_bound(server: FakeApiServer, kubelets: dict[str, Kubelet], pod: JSON, reporter: Reporter) -> None:
    """The kubelet admits the pod, if it was bound, and its node's exporter tells of it soon."""
    document = server.pods.get(pod["metadata"]["name"]) or {}
    kubelet = kubelets.get(document["spec"].get("nodeName", ""))
    if kubelet is not None:
        kubelet.admit(document)
        reporter.change(kubelet.report())


def check(server: FakeApiServer, cluster: list[SampleNode], story: Story) -> None:
    """Show every node's kubelet its pods."""
    pods = server.pods.list()
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    assert len(bound) == story.bound, "a pod was lost, or bound behind the scheduler's back"
    assert len(pods) == story.bound + story.nowhere
    for node in cluster:
        kubelet = Kubelet.of(node)
        mine = [pod for pod in bound if pod["spec"]["nodeName"] == node.name]
        for pod in sorted(mine, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            verdict = kubelet.admit(pod)
            if not verdict["admit"]:
                story.false_admits.append(f"{pod['metadata']['name']} on {node.name}: {verdict['message']}")
