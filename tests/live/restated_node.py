"""A node with a kubelet's restatement: its files and sockets below a directory, and its Node object."""

import ssl
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.drill.machines import GROUP_LABEL
from tests.live import shapes
from tests.live.api import MERGE_PATCH, Api, AsyncApi, Json
from tests.live.control_plane import ControlPlane
from tests.live.front import Files, Front
from tests.live.kubelet import LiveKubelet
from tests.live.node import EXPORTER_COMMAND, LiveNode, Loop, Placing, Site
from tests.live.processes import Program

MAX_COMMON_NAME: Final = 64
"""Characters of a user's name in a certificate. A node with a longer name has the rights of an administrator."""


class RestatedNode(LiveNode):
    """One node. *scenarios*: what the node of a number is."""

    kubelet: LiveKubelet

    def __init__(self, site: Site, placing: Placing, *, scenarios: Callable[[int], Json] = shapes.scenario) -> None:
        super().__init__(site, placing, scenarios(placing.kind))
        plane, seed = site.plane, site.seed
        identities = plane.identities
        user, group = f"system:node:{self.name}", "system:nodes"
        if len(user) > MAX_COMMON_NAME:
            user, group = self.directory.name, "system:masters"
        certificate = identities.client(self.directory.name, user=user, group=group)
        context = identities.context(certificate)
        self._own_api = Api(plane.url, context)
        boot_id = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{seed} {self.directory.name}"))
        files = Files(self.directory / "root", self.scenario, boot_id)
        front = Front(
            self.directory / "root",
            self.scenario,
            _server_context(plane, self.directory.name),
            self._own_api,
            self.name,
        )
        self.kubelet = LiveKubelet(
            self.name, self.scenario, AsyncApi(plane.url, context), files, front, site.tally, seed=seed + self.number
        )
        self.kubelet_url = front.https.url
        self._boot_id = boot_id

    @property
    def allocatable(self) -> dict[str, int]:
        return shapes.allocatable(self.scenario)

    def start(self, loop: Loop) -> None:
        self.register()
        loop.run(self.kubelet.start(self.allocatable))

    def is_ready(self) -> bool:
        return self.kubelet.is_watching

    def close(self, loop: Loop) -> None:
        loop.run(self.kubelet.close())
        if self.exporter is not None:
            self.exporter.stop()
        self.kubelet.front.close()
        self._own_api.close()

    def exporter_program(self, arguments: Sequence[str | Path], log: Path) -> Program:
        command = [*EXPORTER_COMMAND, *arguments, "--root", self.directory / "root", "--listen", ""]
        return Program(f"exporter {self.name}", command, log)

    def register(self) -> None:
        allocatable = self.allocatable
        amounts = {
            "cpu": f"{allocatable['cpu']}m",
            **{name: str(amount) for name, amount in allocatable.items() if name != "cpu"},
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
        status = {
            "capacity": capacity,
            "allocatable": amounts,
            "nodeInfo": info,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "live"}],
        }
        if self.is_scaled:
            path = f"/api/v1/nodes/{self.name}"
            labels |= self.plane.api.call("GET", path)["metadata"].get("labels") or {}
            self.plane.api.call("PATCH", path, {"metadata": {"labels": labels}}, MERGE_PATCH)
            self._own_api.call("PATCH", f"{path}/status", {"status": status}, MERGE_PATCH)
            return
        metadata = {"name": self.name, "labels": labels}
        self._own_api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})


def _server_context(plane: ControlPlane, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*plane.identities.server(f"kubelet-{name}"))
    return context
