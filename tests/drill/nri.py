"""A node whose container runtime has the NRI topology-aware policy as a plugin.

The plugin's own law is the replay, which is exact on the recordings. What is played here is what nobody controls: the
containers of pods are created in a random order, each after its image has come; init containers run for a while; a
container that is refused is tried again and again; and reports of all that come late.
"""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from extender.nri.cpu_allocator import discover
from extender.nri.events import Node, create, remove, remove_pod, run_pod, set_up, start, stop
from extender.wire.nri_reports import nri_machine
from extender.wire.nri_scenarios import NriStep, config_from_json, container_of, pod_of
from extender.wire.parsing import parse_milli
from node_exporter.nri_plugin import read_state_file
from node_exporter.report import ReportedNriMachine, ReportedNriNode
from tests.drill.api import Api
from tests.drill.node import Kubelet
from tests.drill.tally import Tally
from tests.node_exporter.nri_trees import write_state_file
from tests.nri_states import IN_MEMORY, state_file_of

Json = dict[str, Any]
_QOS = {"Guaranteed": "G", "Burstable": "B", "BestEffort": "E"}


class NriKubelet(Kubelet):
    """A kubelet with such a runtime below it."""

    def __init__(self, number: int, api: Api, tally: Tally, mean_life: float) -> None:
        super().__init__(number, api, tally, mean_life)
        cores = len(self.scenario["machine"]["cpus"]) // 2
        # Every second plugin keeps more CPUs for itself than its kubelet does: kube-scheduler does not know of them.
        reserved = f"0,{cores}" if number % 2 else f"0-1,{cores}-{cores + 1}"
        self.config = {"pinCPU": True, "pinMemory": True, "reservedResources": {"cpu": f"cpuset:{reserved}"}}
        self.machine = _machine(self.scenario["machine"])
        setup = set_up(discover(nri_machine(self.machine)), config_from_json(self.config, "config"))
        self.plugin: Node = start(setup)
        self._manifests: dict[str, Json] = {}
        self._running: dict[str, list[str]] = {}
        self._chance = Random(number)

    def extras(self) -> Json:
        """The section of the report, from the plugin's state file."""
        file = state_file_of(self.plugin.books)
        with TemporaryDirectory(dir=IN_MEMORY) as root:
            write_state_file(Path(root), file.pop("grants"), **file)
            state = read_state_file(Path(root))
        grants = None if state is None else state.grants
        section = {"machine": self.machine, "config": self.config, "config_source": "default", "grants": grants}
        return {"nri": {"version": 1, "config_status": "Success", "release": "v0.14.0", **section}}

    def _admit(self, uid: str, pod: Json) -> None:
        self._manifests[uid] = pod
        super()._admit(uid, pod)

    def _changed(self) -> None:
        for uid in self._running.keys() - self.naive.active.keys():
            self._tear_down(uid)
        for uid in self.naive.active.keys() - self._running.keys():
            self._sandbox(uid)
        super()._changed()

    def _sandbox(self, uid: str) -> None:
        pod = self._manifests[uid]
        qos = _QOS[pod["status"]["qosClass"]]
        step = NriStep(o="pod", id=_sandbox_id(uid), ns=pod["metadata"]["namespace"], n=pod["metadata"]["name"], q=qos)  # type: ignore[arg-type]
        self.plugin = run_pod(self.plugin, pod_of(step))
        self._running[uid] = []
        self._next(uid, [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]])

    def _next(self, uid: str, containers: list[Json]) -> None:
        """The first of *containers* is created once its image is there."""
        if containers:
            seconds = self._chance.choice((0.05, 0.2, 0.5, 3.0))
            self.timeline.after(seconds, lambda: self._create(uid, containers))

    def _create(self, uid: str, containers: list[Json]) -> None:
        if uid not in self._running or self._is_down(lambda: self._create(uid, containers)):
            return
        container, pod = containers[0], self._manifests[uid]
        step = NriStep(
            o="new", id=f"{uid}/{container['name']}", p=_sandbox_id(uid), n=container["name"], r=_amounts(container)
        )
        known = self.plugin.books.pods[_sandbox_id(uid)]
        total = self.plugin.books.setup.topology.machine.memory_total_bytes
        self.plugin, outcome = create(self.plugin, container_of(step, known.qos, total))
        if outcome.refusal is not None:
            self.tally.note_create_error(uid, self._story(uid, outcome.reason))
            message = f"failed to allocate resources: topology-aware: {outcome.reason}"
            waiting = {"reason": "CreateContainerError", "message": message}
            self._publish(uid, containerStatuses=[{"name": container["name"], "state": {"waiting": waiting}}])
            self.timeline.after(self._chance.uniform(1, 4), lambda: self._create(uid, containers))
            return
        self._running[uid].append(step.id)
        self.on_change()
        if container in pod["spec"].get("initContainers", ()):
            seconds = self._chance.uniform(0.1, 5.0)
            self.timeline.after(seconds, lambda: self._init_is_over(uid, step.id, containers[1:]))
        else:
            self._next(uid, containers[1:])

    def _init_is_over(self, uid: str, container: str, containers: list[Json]) -> None:
        if uid in self._running:
            self._running[uid].remove(container)
            self.plugin = remove(stop(self.plugin, container)[0], container)
            self.on_change()
            self._next(uid, containers)

    def _tear_down(self, uid: str) -> None:
        for container in self._running.pop(uid):
            self.plugin = remove(stop(self.plugin, container)[0], container)
        self.plugin = remove_pod(self.plugin, _sandbox_id(uid))


def _sandbox_id(uid: str) -> str:
    """Of which `wire.nri_scenarios.pod_of` makes the UID again."""
    return uid.removeprefix("uid-")


def _amounts(container: Json) -> list[int]:
    resources = container["resources"]
    amounts = [
        resources.get(kind, {}).get(name) for name in ("cpu", "memory") for kind in ("requests", "limits")
    ]  # CPU request and limit, memory request and limit
    milli = [-1 if amount is None else parse_milli(amount, "") for amount in amounts]
    return [*milli[:2], *(amount // 1000 if amount >= 0 else -1 for amount in milli[2:])]


def _machine(scenario: Json) -> ReportedNriMachine:
    """The hardware of the scenario as the plugin discovers it; CPUs without caches."""
    cpus = [tuple(row[:4]) for row in scenario["cpus"]]
    threads = {core: sorted(cpu for cpu, other, _, _ in cpus if other == core) for _, core, _, _ in cpus}
    nodes = [
        ReportedNriNode(
            id=numa["id"],
            cpus=",".join(str(cpu) for cpu, _, _, node in cpus if node == numa["id"]),
            memory=numa["memory"],
            has_memory=True,
            has_normal_memory=True,
            is_online=True,
            distances=numa["distances"],
        )
        for numa in scenario["numa"]
    ]
    return ReportedNriMachine(
        cpus=tuple(
            (cpu, socket, 0, 0, node, ",".join(map(str, threads[core])), 0, "", ()) for cpu, core, socket, node in cpus
        ),
        caches=(),
        nodes=nodes,
        present=",".join(str(cpu) for cpu, *_ in sorted(cpus)),
        isolated="",
        performance=None,
        efficient=None,
        memory_total=sum(numa["memory"] for numa in scenario["numa"]),
    )
