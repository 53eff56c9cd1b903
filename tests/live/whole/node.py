"""A node with a kubelet's own program, on a recorded machine that is bound over the host's."""

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.drill.machines import GROUP_LABEL
from tests.live.api import ApiError, AsyncApi, Json
from tests.live.node import EXPORTER_COMMAND, Given, LiveNode, Loop, Placing, Site
from tests.live.processes import Program
from tests.live.whole import machine_trees
from tests.live.whole.config import KUBELET_DIR, SYSCTLS, Own, kubelet_configuration
from tests.live.whole.kubelet import WholeKubelet
from tests.live.whole.namespace import Inside, Namespace, cgroup, own_cgroup
from tests.live.whole.plugins import DevicePlugin
from tests.live.whole.runtime import Runtime
from tests.oracle.amounts import milli, whole
from tests.ports import reserve_port

BOUND = (
    "sys/devices/system/node", "sys/devices/system/cpu", "sys/kernel/mm/hugepages", "proc/cpuinfo", "proc/meminfo",
)  # fmt: skip
CPU_STATE = "cpu_manager_state"
POD_ADDRESS = "127.0.0.1"
"""Of all pods: behind none of them is a program."""


class WholeNode(LiveNode):
    """One node. *programs*: kubelets, of which two nodes each have one in turn.

    Namespaces, cgroups and processes exist from `start` to `close`.

    The exporter's pod waits for its volumes, which nobody makes; its program runs in the node's namespaces.
    """

    kubelet: WholeKubelet

    def __init__(self, site: Site, placing: Placing, *, programs: Sequence[Path]) -> None:
        super().__init__(site, placing, machine_trees.scenario(placing.kind))
        self._kind, self._boot_id = placing.kind, str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{site.seed} {self.directory}"))
        self._stack = ExitStack()
        self._loop: Loop | None = None
        self._own_cgroup = own_cgroup(self.directory.name)
        plane, port, healthz = site.plane, reserve_port(), reserve_port()
        self.kubelet_url = f"https://127.0.0.1:{port}"
        self._own = Own(
            port=port, healthz_port=healthz, certificate=plane.identities.server(f"kubelet-{self.name}"),
            authority=plane.identities.ca_file, runtime_socket=self.directory / "cri.sock",
            cgroup=f"/{self._own_cgroup}",
        )  # fmt: skip
        self._runtime = Runtime(self._own.runtime_socket, POD_ADDRESS, seed=site.seed + self.number)
        self._namespace = Namespace(self._binds())
        program = programs[self.number // 2 % len(programs)]  # of two machines, one has devices
        kubelet = Inside(self._namespace, f"kubelet {self.name}", self._command(program), self._log("kubelet"))
        plugins = [
            DevicePlugin(self._files / "device-plugins", resource, devices)
            for resource, devices in self.scenario["devices"].items()
        ]
        self.kubelet = WholeKubelet(
            self.name, kubelet, self._runtime, plugins, AsyncApi(plane.url, plane.admin_context),
            f"http://127.0.0.1:{healthz}/healthz", site.tally, seed=site.seed,
        )  # fmt: skip

    @property
    def allocatable(self) -> dict[str, int]:
        """As its Node object says."""
        found = self._node_object()["status"]["allocatable"]
        return {name: milli(amount) if name == "cpu" else whole(amount) for name, amount in found.items()}

    @property
    def given(self) -> Sequence[Given]:
        return self._runtime.given

    def start(self, loop: Loop) -> None:
        self._loop = loop
        self._write_files()
        self._stack.enter_context(cgroup(self._own_cgroup))
        self._stack.enter_context(self._namespace)
        loop.run(self.kubelet.start())

    def register(self) -> None:
        """A kubelet creates its Node object once only after each start."""
        assert self._loop is not None
        self._loop.run(self.kubelet.restart(0.0))

    def is_ready(self) -> bool:
        self.kubelet.program.check()
        try:
            status = self._node_object()["status"]
        except ApiError:
            return False
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        devices = {name: len(listed) for name, listed in self.scenario["devices"].items()}
        shown = {name: int(status.get("allocatable", {}).get(name, 0)) for name in devices}
        return conditions.get("Ready") == "True" and self.kubelet.has_devices and shown == devices

    def close(self, loop: Loop) -> None:
        with self._stack:
            if self.exporter is not None:
                self.exporter.stop()
            loop.run(self.kubelet.close())

    def write_manifest(self, name: str, pod: Json) -> None:
        """Write a static pod's manifest at once, as a person or a tool would."""
        new = self._files / f"{name}.new"
        new.write_text(json.dumps(pod))
        new.rename(self._files / "manifests" / name)

    def configure(self, settings: Json) -> None:
        """Change fields of the configuration, which the kubelet reads at its next start."""
        self.scenario["kubelet"].update(settings)
        self._write_configuration()

    def held(self) -> Mapping[str, str]:
        """CPUs by UID, as the kubelet's state file has them for a pod's first container; empty: there is none."""
        try:
            state = json.loads((self._files / CPU_STATE).read_text())
        except OSError:
            return {}
        return {uid: next(iter(containers.values())) for uid, containers in state.get("entries", {}).items()}

    def delete_state(self, *names: str) -> None:
        """Delete state files, as a person does after the kubelet has refused them."""
        for name in names:
            (self._files / name).unlink(missing_ok=True)

    def exporter_program(self, arguments: Sequence[str | Path], log: Path) -> Program:
        words = [*EXPORTER_COMMAND, *arguments, "--listen", ""]
        return Inside(self._namespace, f"exporter {self.name}", words, log)

    @property
    def _files(self) -> Path:
        """What the kubelet knows as `KUBELET_DIR`."""
        return self.directory / "lib" / KUBELET_DIR.name

    def _log(self, program: str) -> Path:
        return self._logs / f"{program}-{self.directory.name}.log"

    def _node_object(self) -> Json:
        return self.plane.api.call("GET", f"/api/v1/nodes/{self.name}")

    def _binds(self) -> dict[Path, Path]:
        """What the node sees at a path, and where it is on the host."""
        machine, sysctls = self.directory / "machine", self.directory / "sysctls"
        return {
            **{Path("/", path): machine / path for path in BOUND},
            **{Path("/proc/sys", path): sysctls / path for path in SYSCTLS},
            Path("/proc/sys/kernel/random/boot_id"): sysctls / "boot_id",
            KUBELET_DIR.parent: self.directory / "lib",
            Path("/var/log"): self.directory / "log",
        }

    def _write_files(self) -> None:
        machine_trees.unpack(self._kind, self.directory / "machine")
        for name in ("manifests", "volume-plugins", "device-plugins"):
            (self._files / name).mkdir(parents=True)
        (self.directory / "log/pods").mkdir(parents=True)
        for path, value in {**SYSCTLS, "boot_id": self._boot_id}.items():
            file = self.directory / "sysctls" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        self._write_configuration()

    def _write_configuration(self) -> None:
        configuration = kubelet_configuration(self.scenario["kubelet"], self._own)
        (self._files / "config.yaml").write_text(json.dumps(configuration, indent=1))

    def _command(self, program: Path) -> list[str | Path]:
        identities = self.plane.identities
        certificate, key = identities.client(self.name, user=f"system:node:{self.name}", group="system:nodes")
        user = {"client-certificate": str(certificate), "client-key": str(key)}
        labels = {} if self.group is None else {GROUP_LABEL: f"group-{self.group}"}
        return [
            program, f"--config={KUBELET_DIR}/config.yaml",
            f"--kubeconfig={identities.kubeconfig(self.directory.name, self.plane.url, user)}",
            f"--hostname-override={self.name}", f"--root-dir={KUBELET_DIR}", f"--cert-dir={KUBELET_DIR}/pki",
            f"--node-labels={','.join(f'{name}={value}' for name, value in labels.items())}",
        ]  # fmt: skip
