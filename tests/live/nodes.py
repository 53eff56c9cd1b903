"""The nodes of a live cluster: a Node object, a kubelet's restatement with files and sockets, and the real exporter."""

import asyncio
import sys
import threading
import uuid
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.drill.machines import GROUP_LABEL
from tests.live import shapes
from tests.live.api import Api, AsyncApi, Json
from tests.live.control_plane import ControlPlane
from tests.live.front import Files, Front
from tests.live.installing import AUDIENCE, EXPORTER, exporter_pod, token
from tests.live.kubelet import LiveKubelet
from tests.live.processes import Program, until
from tests.live.tally import Tally

Result = TypeVar("Result")


class Loop:
    """An event loop in a thread of its own, for all kubelets."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubelets", daemon=True)

    def submit(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Run it there; do not wait."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Result], seconds: float = 120.0) -> Result:
        """Run it there and wait for its result."""
        return self.submit(work).result(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class LiveNode:
    """One node. `exporter`: the program; None until it is started.

    *group*: what it is, and what its label says; None: a node of its own, without the label. *life*: how many machines
    had its name before.
    """

    def __init__(
        self,
        plane: ControlPlane,
        number: int,
        directory: Path,
        tally: Tally,
        *,
        seed: int,
        group: int | None = None,
        life: int = 0,
    ) -> None:
        self.name = f"node-{number:02}"
        self.plane, self.directory = plane, directory / f"{self.name}-{life}"
        self.number, self.group, self.life = number, group, life
        self.scenario = shapes.scenario(number if group is None else group)
        identities = plane.identities
        certificate = identities.client(self.name, user=f"system:node:{self.name}", group="system:nodes")
        context = identities.context(certificate)
        self._own_api = Api(plane.url, context)
        boot_id = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{seed} {self.directory.name}"))
        files = Files(self.directory / "root", self.scenario, boot_id)
        front = Front(
            self.directory / "root", self.scenario, _server_context(plane, self.name), self._own_api, self.name
        )
        self.kubelet = LiveKubelet(
            self.name, self.scenario, AsyncApi(plane.url, context), files, front, tally, seed=seed + number
        )
        self.allocatable = shapes.allocatable(self.scenario)
        self.exporter: Program | None = None
        self._exporter_pod: Json | None = None
        self._boot_id = boot_id

    def register(self) -> None:
        """The kubelet creates its Node object."""
        amounts = {
            "cpu": f"{self.allocatable['cpu']}m",
            **{name: str(amount) for name, amount in self.allocatable.items() if name != "cpu"},
            "pods": "110",
            "ephemeral-storage": "100Gi",
        }
        capacity = {**amounts, "cpu": str(len(self.scenario["machine"]["cpus"]))}
        info = {
            "bootID": self._boot_id, "machineID": self._boot_id, "systemUUID": self._boot_id,
            "kubeletVersion": self.scenario["version"], "kubeProxyVersion": "", "kernelVersion": "6.1",
            "osImage": "live", "containerRuntimeVersion": "live://1", "operatingSystem": "linux",
            "architecture": "amd64",
        }  # fmt: skip
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        if self.group is not None:
            labels[GROUP_LABEL] = f"group-{self.group}"
        self._own_api.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": self.name, "labels": labels},
                "status": {
                    "capacity": capacity,
                    "allocatable": amounts,
                    "nodeInfo": info,
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "live"}],
                },
            }
        )

    def place_exporter(self, objects: tuple[Json, ...]) -> None:
        """Create the exporter's pod, as the DaemonSet's controller does for a new node."""
        self._exporter_pod = exporter_pod(self.plane.api, objects, self.name)

    def start_exporter(self, objects: tuple[Json, ...], logs: Path, arguments: Sequence[str]) -> None:
        """Start the program as the DaemonSet's container would run, with tokens bound to its pod."""
        api, identities = self.plane.api, self.plane.identities
        if self._exporter_pod is None:
            self.place_exporter(objects)
        pod = self._exporter_pod
        for_kubelet = identities.secret(f"{self.name}.token", token(api, EXPORTER, pod=pod))
        for_extender = identities.secret(
            f"{self.name}-extender.token", token(api, EXPORTER, audience=AUDIENCE, pod=pod)
        )
        ca = str(identities.ca_file)
        command: list[str | Path] = [
            sys.executable, "-m", "node_exporter", "run", "--root", self.directory / "root", "--node-name", self.name,
            "--listen", "", "--kubelet-url", self.kubelet.front.https.url, "--kubelet-token-file", for_kubelet,
            "--kubelet-ca-file", ca, "--token-file", for_extender, "--ca-file", ca,
            "--api-url", self.plane.url, "--api-token-file", for_kubelet, "--api-ca-file", ca, *arguments,
        ]  # fmt: skip
        self.exporter = Program(f"exporter {self.name}", command, logs / f"exporter-{self.name}.log")
        self.exporter.start()

    def close(self) -> None:
        """End the exporter and the sockets."""
        if self.exporter is not None:
            self.exporter.stop()
        self.kubelet.front.close()
        self._own_api.close()


def _server_context(plane: ControlPlane, name: str) -> Any:  # noqa: ANN401
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*plane.identities.server(f"kubelet-{name}"))
    return context


class Nodes:
    """All nodes of the cluster and the loop in which their kubelets live. *groups*: how many; None: all differ."""

    def __init__(
        self, plane: ControlPlane, directory: Path, logs: Path, count: int, *, seed: int, groups: int | None = None
    ) -> None:
        self.tally = Tally()
        self.loop = Loop()
        self._plane, self._directory, self._logs, self._seed = plane, directory, logs, seed
        self._mean_life = 0.0
        self.all = [self._node(number, None if groups is None else number % groups) for number in range(count)]

    def _node(self, number: int, group: int | None, life: int = 0) -> LiveNode:
        return LiveNode(self._plane, number, self._directory, self.tally, seed=self._seed, group=group, life=life)

    def __enter__(self) -> Self:
        self.loop.__enter__()
        for node in self.all:
            self._start(node)
        until(lambda: all(node.kubelet.is_watching for node in self.all), 60, "kubelets watch")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for node in self.all:
            if node.exporter is not None and node.exporter.is_running:
                node.exporter.kill()
        for node in self.all:
            self._end(node)
        self.loop.__exit__(None, None, None)

    def _start(self, node: LiveNode) -> None:
        node.register()
        self.loop.run(node.kubelet.start(node.allocatable))

    def _end(self, node: LiveNode) -> None:
        self.loop.run(node.kubelet.close())
        node.close()

    def join(self, objects: tuple[Json, ...], number: int, group: int, life: int) -> LiveNode:
        """A new machine registers and takes pods. The exporter's pod has its room, and its program is not started."""
        node = self._node(number, group, life)
        node.kubelet.mean_life = self._mean_life
        node.place_exporter(objects)
        self._start(node)
        self.all.append(node)
        return node

    def leave(self, node: LiveNode) -> None:
        """The machine stops, and its Node object is deleted."""
        self.all.remove(node)
        if node.exporter is not None:
            node.exporter.stop()
        self._end(node)
        api = self._plane.api
        api.delete(f"/api/v1/namespaces/{EXPORTER[0]}/pods/numa-node-exporter-{node.name}?gracePeriodSeconds=0")
        api.delete(f"/api/v1/nodes/{node.name}")

    def start_exporters(self, objects: tuple[Json, ...], *arguments: str) -> None:
        """On every node."""
        for node in self.all:
            self.start_exporter(node, objects, *arguments)

    def start_exporter(self, node: LiveNode, objects: tuple[Json, ...], *arguments: str) -> None:
        """On one node."""
        node.start_exporter(objects, self._logs, arguments)

    def live_for(self, seconds: float) -> None:
        """Pods that start from now on live for so long on average; 0: until they are deleted."""
        self._mean_life = seconds
        for node in self.all:
            node.kubelet.mean_life = seconds
