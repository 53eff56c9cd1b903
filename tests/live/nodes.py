"""The nodes of a live cluster."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from node_exporter.sinks import Delivery
from tests.live.api import Json
from tests.live.control_plane import ControlPlane
from tests.live.installing import EXPORTER
from tests.live.node import Given, LiveNode, Loop, MakeNode, Placing, Site
from tests.live.processes import until
from tests.live.tally import Tally

READY_SECONDS = 120.0
"""Whole kubelets on a busy machine take long to start."""
REFUSED_REPORT = f"publishing failed outcome={Delivery.REFUSED.value}"


class Nodes:
    """All nodes of the cluster and the loop in which their kubelets live. *groups*: how many; None: all differ."""

    def __init__(
        self,
        make: MakeNode,
        plane: ControlPlane,
        directory: Path,
        logs: Path,
        count: int,
        *,
        seed: int,
        groups: int | None = None,
    ) -> None:
        self.tally = Tally()
        self.loop = Loop()
        self._make, self._plane = make, plane
        self._site = Site(plane, directory, logs, self.tally, seed)
        self._mean_life = 0.0
        self.all: list[LiveNode] = []
        self._wanted = [Placing(number, None if groups is None else number % groups) for number in range(count)]

    def __enter__(self) -> Self:
        self.loop.__enter__()
        try:
            for placing in self._wanted:
                self._start(placing)
            until(lambda: all(node.is_ready() for node in self.all), READY_SECONDS, "kubelets ready")
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        for node in self.all:
            if node.exporter is not None and node.exporter.is_running:
                node.exporter.kill()
        with ExitStack() as stack:  # all of them, also where one fails
            stack.callback(self.loop.__exit__, None, None, None)
            for node in self.all:
                stack.callback(node.close, self.loop)

    def _start(self, placing: Placing, objects: tuple[Json, ...] = ()) -> LiveNode:
        """*objects*: of the manifests, where the exporter's pod is to be there before the kubelet."""
        node = self._make(self._site, placing)
        node.kubelet.mean_life = self._mean_life
        self.all.append(node)
        if objects:
            node.place_exporter(objects)
        node.start(self.loop)
        return node

    def join(self, objects: tuple[Json, ...], number: int, group: int, life: int) -> LiveNode:
        """A new machine registers and takes pods. The exporter's pod has its room, and its program is not started."""
        return self._start(Placing(number, group, life), objects)

    def adopt(self, objects: tuple[Json, ...], name: str, number: int, group: int) -> LiveNode:
        """The machine behind a Node object that an autoscaler has made; with its exporter's pod."""
        return self._start(Placing(number, group, name=name), objects)

    def leave(self, node: LiveNode) -> None:
        """The machine stops, and its Node object is deleted."""
        self.all.remove(node)
        if node.exporter is not None:
            node.exporter.stop()
        node.close(self.loop)
        api = self._plane.api
        api.delete(f"/api/v1/namespaces/{EXPORTER[0]}/pods/numa-node-exporter-{node.name}?gracePeriodSeconds=0")
        api.delete(f"/api/v1/nodes/{node.name}")

    def start_exporters(self, objects: tuple[Json, ...], *arguments: str) -> None:
        """On every node."""
        for node in self.all:
            self.start_exporter(node, objects, *arguments)

    def start_exporter(self, node: LiveNode, objects: tuple[Json, ...], *arguments: str) -> None:
        """On one node."""
        node.start_exporter(objects, arguments)

    def live_for(self, seconds: float) -> None:
        """Pods that start from now on live for so long on average; 0: until they are deleted."""
        self._mean_life = seconds
        for node in self.all:
            node.kubelet.mean_life = seconds

    def versions(self) -> Counter[str]:
        """How many nodes have a kubelet of each version."""
        nodes = self._plane.api.items("/api/v1/nodes")
        return Counter(node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes)

    @property
    def given(self) -> list[Given]:
        """What containers were created with, on all nodes."""
        return [each for node in self.all for each in node.given]

    def refused_reports(self) -> list[str]:
        """Lines of the exporters' logs about reports that the receiver will never accept."""
        return [
            f"{node.name}: {line}"
            for node in self.all
            if node.exporter is not None
            for line in node.exporter.log.read_text(errors="replace").splitlines()
            if REFUSED_REPORT in line
        ]
