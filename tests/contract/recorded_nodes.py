"""Recorded scenarios as nodes: files and sockets as on a node → exporter → HTTP → extender → verdict and placement.

    python -m tests.contract.recorded_nodes [VERSION …]     # every recorded scenario that has state files

Every scenario that was recorded with `state_before` counts. The recordings lack the device checkpoint: it is made of
what the earlier pods were recorded to get, or, where that varied between repetitions, of the replayed history; then
every history that agrees with the recording so far is one that the node may have had.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from unittest import mock

import httpx
import orjson

from extender.api.service import Service
from extender.app import make_service
from extender.config.settings import Settings
from extender.conformance.agreement import Admission, Checker, Difference, run
from extender.demo.serving import serving
from extender.kubelet.admission import Outcome, admit
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import iter_bits
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import DeviceState
from extender.kubelet.verdict import Admitted, Certainty
from extender.wire import reports
from extender.wire.scenarios import Scenario, scenario_from_json
from node_exporter._podresources import podresources_pb2 as pb
from node_exporter.bounded_http import CredentialFiles
from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.node import NodeReader, NodeSettings
from node_exporter.sinks import Delivery as SinkOutcome
from node_exporter.sinks.http import HttpSink
from tests.node_exporter.fake_kubelet import FakeKubelet, pod
from tests.node_exporter.scenario_devices import device_checkpoint, plugin_devices
from tests.node_exporter.trees import KUBELET_DIR, write_scenario
from tests.replay.vectors import VERSIONS, scenarios

Json = dict[str, Any]
MAX_HISTORIES = 16
"""Histories tried for one node."""
MEMORY_FILES = Path("/dev/shm")
"""A node is about a thousand small files; in memory, where there is such a place, they cost a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One scenario up to its last admission: what to write on the node, and whom the kubelet still counts."""

    document: Json
    scenario: Scenario
    before: int
    """Number of the step whose verdict was recorded with the state files before it."""
    active: Mapping[str, Json]
    """Pods by UID that were admitted and are still there."""
    gone: frozenset[str]
    """UIDs of pods that were removed or refused."""
    checkpoints: tuple[Json, ...]
    """One of them is what the kubelet had written; never empty."""
    replayed: bool
    """Whether the checkpoints come from the replayed history."""

    @property
    def pod(self) -> Json:
        """The pod to be judged."""
        found: Json = self.document["steps"][self.before]["pod"]
        return found

    @property
    def expect(self) -> Json:
        """What the real kubelet answered."""
        found: Json = self.document["steps"][self.before]["expect"]
        return found


@dataclass(slots=True)
class Tally:
    """What became of the scenarios. `chance`: the kubelet's random choice decides, so that filter refuses."""

    compared: int = 0
    replayed: int = 0
    chance: int = 0
    wrong: list[str] = field(default_factory=list)
    """Reports not taken, nodes not known exactly, verdicts and placements that differ, other answers of filter."""


def recorded(version: str, part: int = 0, parts: int = 1) -> Iterator[Recorded]:
    """Scenarios with state files."""
    for document in scenarios(version, part, parts):
        before = next((i for i, step in enumerate(document["steps"]) if "state_before" in step), None)
        if before is None:
            continue
        active: dict[str, Json] = {}
        seen: set[str] = set()
        cpu_state = document["steps"][before]["state_before"].get("cpu_manager_state") or {}
        for step in document["steps"][:before]:
            if step["op"] == "remove":
                active.pop(step["uid"], None)
            elif step["op"] == "admit":
                uid = step["pod"]["metadata"]["uid"]
                seen.add(uid)
                # Where the answer varied between repetitions, the state file tells what it was in this one.
                if step["expect"].get("admit", uid in (cpu_state.get("entries") or {})):
                    active[uid] = step["pod"]
        scenario = scenario_from_json(document)
        checkpoint = device_checkpoint(document, before)
        yield Recorded(
            document=document,
            scenario=scenario,
            before=before,
            active=active,
            gone=frozenset(seen - active.keys()),
            checkpoints=(checkpoint,) if checkpoint else replayed_checkpoints(scenario, before, active),
            replayed=checkpoint is None,
        )


def replayed_checkpoints(scenario: Scenario, before: int, active: Mapping[str, Json]) -> tuple[Json, ...]:
    """Checkpoints of the histories that agree with the recording up to the step number *before*."""
    last, checker = scenario.steps[before], Checker(scenario, Counter(), [])
    states = [initial_state(start(scenario.machine, scenario.config), scenario.devices).devices]

    def follow(admission: Admission) -> tuple[Outcome, ...]:
        outcomes = checker.narrow(admission)
        if admission.step is not last:
            states[:] = [outcome.state.devices for outcome in outcomes]
        return outcomes

    for _ in run(scenario, follow):
        pass
    return tuple(_checkpoint(state, active) for state in states[:MAX_HISTORIES])


def _checkpoint(state: DeviceState, active: Mapping[str, Json]) -> Json:
    entries = []
    for uid, container, resource, ids in (
        (uid, container, resource, ids)
        for uid, containers in state.entries.items()
        if uid in active
        for container, resources in containers.items()
        for resource, ids in resources.items()
    ):
        by_node: dict[str, list[str]] = {}
        for id_ in sorted(ids):
            numa = state.devices[resource][id_].numa
            for node in iter_bits(numa) if numa else [-1]:
                by_node.setdefault(str(node), []).append(id_)
        entries.append({"PodUID": uid, "ContainerName": container, "ResourceName": resource, "DeviceIDs": by_node})
    registered = {name: sorted(i for i, d in known.items() if d.healthy) for name, known in state.devices.items()}
    return {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0}


class Extender:
    """A real extender on a real socket, and what became of the nodes that reported to it."""

    def __init__(self) -> None:
        self.service: Service = make_service(Settings(port=0))
        self.tally = Tally()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # The sockets here are as old as the test, the recorded kubelets had been running: theirs is no first list.
        self._stack.enter_context(mock.patch.object(reports, "FIRST_LIST_SECONDS", 0.0))
        self.url = self._stack.enter_context(serving(self.service))
        self._client = self._stack.enter_context(httpx.Client(base_url=self.url, trust_env=False, timeout=30))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def play(self, node: Recorded, *, as_program: bool = False) -> None:
        """Write the node, report it (by the program itself, or its parts in this process), and compare."""
        self.tally.compared += 1
        self.tally.replayed += node.replayed
        for number, checkpoint in enumerate(node.checkpoints):
            name = f"n{self.tally.compared}-{number}"
            fault = self._report(node, checkpoint, name, as_program=as_program) or self._compare(node, name)
            if not fault:
                return
        self.tally.wrong.append(f"{node.scenario.id}: {fault}")

    def _report(self, node: Recorded, checkpoint: Json, name: str, *, as_program: bool) -> str:
        """What was wrong with the report; empty if it was taken."""
        with _node_files(node, checkpoint) as (root, kubelet):
            return (_publish_by_program if as_program else _publish)(node, root, kubelet, name, self.url)

    def _compare(self, node: Recorded, name: str) -> str:
        """How verdict, placement or filter's answer differ from what was recorded; empty if they agree."""
        record = self.service.known.nodes.get(name)
        if record is None or record.kubelet is None or record.state is None or record.observation.hidden:
            return f"not known exactly: {record and record.observation.facts['problems']}"
        step = node.scenario.steps[node.before]
        assert step.pod is not None
        outcome = admit(record.kubelet, record.state, resolve(step.pod, record.kubelet.rules))
        differences: list[Difference] = []
        checker = Checker(node.scenario, Counter(), differences)
        checker.narrow(Admission(step=step, outcomes=(replace(outcome, alternatives=()), *outcome.alternatives)))
        if differences:
            return str(differences)
        reply = self._client.post("/scheduler/filter", json={"Pod": node.pod, "NodeNames": [name]}).json()
        if outcome.verdict.certainty is Certainty.POSSIBLE:
            self.tally.chance += 1
        elif (reply["NodeNames"] == [name]) != node.expect.get("admit", isinstance(outcome.verdict, Admitted)):
            return f"filter says {reply}, the kubelet {node.expect}"
        return ""


@contextmanager
def _node_files(node: Recorded, checkpoint: Json) -> Iterator[tuple[Path, FakeKubelet]]:
    """The node's directories, with the kubelet's socket answering."""
    where = MEMORY_FILES if os.access(MEMORY_FILES, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="n", dir=where) as directory:
        document = node.document
        state = {**document["steps"][node.before]["state_before"], "kubelet_internal_checkpoint": checkpoint}
        root = write_scenario(Path(directory), document, state)
        for uid in node.gone | node.active.keys():
            (root / f"var/log/pods/recorded_{uid}_{uid}").mkdir(parents=True)
        kubelet = FakeKubelet(root / KUBELET_DIR / "pod-resources/kubelet.sock")
        kubelet.devices = plugin_devices(document)
        kubelet.pods = [_listed(uid, active, state) for uid, active in node.active.items()]
        kubelet.start()
        try:
            yield root, kubelet
        finally:
            kubelet.stop()


def _listed(uid: str, manifest: Json, state: Json) -> pb.PodResources:
    """The pod as podresources lists it: app containers, with what the state files say that they hold."""
    held = ((state.get("cpu_manager_state") or {}).get("entries") or {}).get(uid, {})
    listed = pb.PodResources(name=uid, namespace="recorded")
    for container in manifest["spec"]["containers"]:
        name = container["name"]
        cpus = sorted(parse_cpu_list(held[name])) if name in held else ()
        listed.containers.extend(pod("", cpus=cpus, container=name).containers)
    return listed


def _publish(node: Recorded, root: Path, kubelet: FakeKubelet, name: str, url: str) -> str:
    """Report with the exporter's own parts; empty if the report was taken, else what was wrong.

    Devices that are not healthy now were so when the exporter looked for the first time.
    """
    document = node.document
    settings = NodeSettings(
        root=root, node_name=name, kubelet_version=document["kubelet_version"], rules=document.get("rules", {})
    )
    exporter, sink = NodeReader(settings), HttpSink(url, name, timeout_seconds=30, credentials=CredentialFiles())
    if any(not device["healthy"] for devices in document["devices"].values() for device in devices):
        kubelet.devices = {
            resource: {device["id"]: device["numa"] for device in devices}
            for resource, devices in document["devices"].items()
        }
        exporter.look(is_tick=True)
        kubelet.devices = plugin_devices(document)
    report = replace(exporter.look(is_tick=True), sequence=1, observed_at=time.time())
    reply = sink.put_report(report, orjson.dumps(report))
    sink.close()
    return "" if reply.outcome is SinkOutcome.ACCEPTED else reply.detail


def _publish_by_program(node: Recorded, root: Path, _kubelet: FakeKubelet, name: str, url: str) -> str:
    """Report with the program; empty if the report was taken, else what it logged."""
    command = [sys.executable, "-m", "node_exporter", "run", "--once", "--listen", "", "--push", url]
    command += ["--root", str(root), "--node-name", name, "--kubelet-version", node.document["kubelet_version"]]
    for rule, setting in node.document.get("rules", {}).items():
        command += ["--rule", f"{rule}={str(setting).lower()}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr if done.returncode else ""


def main(versions: list[str]) -> int:
    """Play every recorded scenario and print what became of them; 1 if anything differed."""
    failed = False
    for version in versions or VERSIONS:
        started = time.monotonic()
        with Extender() as extender:
            for node in recorded(version):
                extender.play(node)
        tally = extender.tally
        failed |= bool(tally.wrong)
        print(
            f"{version}: {tally.compared} nodes ({tally.replayed} with replayed device checkpoints), {tally.chance} "
            f"decided by chance, {len(tally.wrong)} wrong, {time.monotonic() - started:.0f} s",
            flush=True,
        )
        for line in tally.wrong:
            print(f"  {line:.600}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
