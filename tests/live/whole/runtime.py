"""A container runtime that only pretends: no process is started, and everything else is as the kubelet expects.

It keeps what each container was given (`cpuset_cpus`, `cpuset_mems`): that, and no state file, is what a container on a
real node would run with. A container runs until it is stopped or its pod's time is over; init containers end at once.
"""
# ruff: noqa: N802 - methods are named as the calls

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import grpc

from tests.live.node import Given
from tests.live.tally import USUAL, Lags

Message = Any
"""Of the generated code, or a gRPC context."""
_P, _SERVICES = grpc.protos_and_services("tests/live/whole/cri.proto")
READY, NOT_READY = 0, 1
"""States of sandboxes."""
CREATED, RUNNING, EXITED = 0, 1, 2
"""States of containers."""
CGROUPFS: Final = 1
INIT: Final = "init"
"""The name of an init container that ends begins so."""
LIFE = "live.example/life-seconds"
"""Annotation: the pod's containers end by themselves after so long."""
STOP = "live.example/stop-seconds"
"""Annotation: the runtime takes so long to stop a container."""
SANDBOX_STOP = "live.example/sandbox-stop-seconds"
"""Annotation: the runtime takes so long to stop the pod's sandbox."""


@dataclass
class Sandbox:
    """One sandbox. `ends_at`: monotonic seconds; None: not drawn yet, or it has no end."""

    id: str
    config: Message
    handler: str
    created_at: int = field(default_factory=time.time_ns)
    state: int = READY
    ends_at: float | None = None


@dataclass
class Container:
    """One container. `resources`: as created, with later updates."""

    id: str
    sandbox: Sandbox
    config: Message
    resources: Message
    created_at: int = field(default_factory=time.time_ns)
    started_at: int = 0
    finished_at: int = 0
    state: int = CREATED
    exit_code: int = 0


class Runtime:
    """One node's runtime. All of it lives in one event loop.

    `given`: every container that was created, in order. `on_sandbox`: called with the metadata of each new sandbox; its
    pod was admitted. `mean_life`: seconds that pods without `LIFE` run on average; 0: until they are deleted.
    """

    def __init__(self, socket: Path, pod_ip: str, *, seed: int, lags: Lags = USUAL) -> None:
        self.socket, self._pod_ip, self.lags = socket, pod_ip, lags
        self.mean_life = 0.0
        self.given: list[Given] = []
        self.on_sandbox: Callable[[Message], None] = lambda _metadata: None
        self._random = Random(seed)
        self._ids = itertools.count(1)
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Container] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._server: Any = None

    async def start(self) -> None:
        """Listen."""
        self._server = grpc.aio.server()
        _SERVICES.add_RuntimeServiceServicer_to_server(self, self._server)
        _SERVICES.add_ImageServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def close(self) -> None:
        """Stop to answer."""
        for task in self._ends:
            task.cancel()
        if self._server is not None:
            await self._server.stop(None)

    def finish(self, uid: str) -> None:
        """The containers of a pod end by themselves, without an error."""
        for container in self._containers.values():
            if container.sandbox.config.metadata.uid == uid:
                _end(container, 0)

    # -- the runtime itself --

    async def Version(self, _request: Message, _context: Message) -> Message:
        return _P.Version(version="0.1.0", runtime_name="pretending", runtime_version="1", runtime_api_version="v1")

    async def Status(self, _request: Message, _context: Message) -> Message:
        conditions = [_P.Condition(type=kind, status=True) for kind in ("RuntimeReady", "NetworkReady")]
        return _P.StatusAnswer(status=_P.Conditions(conditions=conditions))

    async def RuntimeConfig(self, _request: Message, _context: Message) -> Message:
        return _P.ConfigAnswer(linux=_P.LinuxConfig(cgroup_driver=CGROUPFS))

    async def _nothing(self, _request: Message, _context: Message) -> Message:
        return _P.Empty()

    UpdateRuntimeConfig = UpdatePodSandboxResources = ReopenContainerLog = RemoveImage = _nothing
    ListContainerStats = ListPodSandboxStats = _nothing

    # -- sandboxes --

    async def RunPodSandbox(self, request: Message, _context: Message) -> Message:
        self.on_sandbox(request.config.metadata)
        await asyncio.sleep(self._random.uniform(*self.lags.start))
        sandbox = Sandbox(f"sandbox-{next(self._ids)}", request.config, request.runtime_handler)
        self._sandboxes[sandbox.id] = sandbox
        return _P.SandboxId(pod_sandbox_id=sandbox.id)

    async def StopPodSandbox(self, request: Message, _context: Message) -> Message:
        sandbox = self._sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None and sandbox.state == READY:
            await asyncio.sleep(_seconds(sandbox, SANDBOX_STOP, 0.0))
            for container in self._of(sandbox):
                _end(container, 137)
            sandbox.state = NOT_READY
        return _P.Empty()

    async def RemovePodSandbox(self, request: Message, context: Message) -> Message:
        await self.StopPodSandbox(request, context)
        sandbox = self._sandboxes.pop(request.pod_sandbox_id, None)
        for container in self._of(sandbox) if sandbox else ():
            del self._containers[container.id]
        return _P.Empty()

    async def PodSandboxStatus(self, request: Message, context: Message) -> Message:
        sandbox = await _known(self._sandboxes, request.pod_sandbox_id, context)
        status = _P.SandboxStatus(network=_P.Network(ip=self._pod_ip), **_sandbox_fields(sandbox))
        return _P.SandboxStatusAnswer(status=status)

    async def ListPodSandbox(self, request: Message, _context: Message) -> Message:
        wanted = request.filter
        items = [
            _P.Sandbox(**_sandbox_fields(each))
            for each in self._sandboxes.values()
            if (not wanted.id or wanted.id == each.id) and _matches(wanted, each.state, each.config.labels)
        ]
        return _P.Sandboxes(items=items)

    # -- containers --

    async def CreateContainer(self, request: Message, context: Message) -> Message:
        sandbox = await _known(self._sandboxes, request.pod_sandbox_id, context)
        resources, metadata = request.config.linux.resources, sandbox.config.metadata
        container = Container(f"container-{next(self._ids)}", sandbox, request.config, resources)
        self._containers[container.id] = container
        name = request.config.metadata.name
        self.given.append(
            Given(metadata.namespace, metadata.name, metadata.uid, name, resources.cpuset_cpus, resources.cpuset_mems)
        )
        return _P.ContainerId(container_id=container.id)

    async def StartContainer(self, request: Message, context: Message) -> Message:
        container = await _known(self._containers, request.container_id, context)
        container.state, container.started_at = RUNNING, time.time_ns()
        if container.config.metadata.name.startswith(INIT):
            self._end_after(container, 0.1)
        elif (seconds := self._life(container.sandbox)) is not None:
            self._end_after(container, seconds)
        return _P.Empty()

    async def StopContainer(self, request: Message, _context: Message) -> Message:
        container = self._containers.get(request.container_id)
        if container is not None and container.state == RUNNING:
            seconds = _seconds(container.sandbox, STOP, self._random.uniform(*self.lags.stop))
            await asyncio.sleep(min(seconds, request.timeout))
            _end(container, 0 if seconds <= request.timeout else 137)
        return _P.Empty()

    async def RemoveContainer(self, request: Message, _context: Message) -> Message:
        self._containers.pop(request.container_id, None)
        return _P.Empty()

    async def ListContainers(self, request: Message, _context: Message) -> Message:
        wanted = request.filter
        found = [
            _P.Container(pod_sandbox_id=each.sandbox.id, **_container_fields(each))
            for each in self._containers.values()
            if (not wanted.id or wanted.id == each.id)
            and (not wanted.pod_sandbox_id or wanted.pod_sandbox_id == each.sandbox.id)
            and _matches(wanted, each.state, each.config.labels)
        ]
        return _P.Containers(containers=found)

    async def ContainerStatus(self, request: Message, context: Message) -> Message:
        container = await _known(self._containers, request.container_id, context)
        has_ended = container.state == EXITED
        status = _P.ContainerStatus(
            started_at=container.started_at, finished_at=container.finished_at, exit_code=container.exit_code,
            reason=("Error" if container.exit_code else "Completed") if has_ended else "",
            log_path=container.config.log_path, resources=_P.LinuxContainer(resources=container.resources),
            **_container_fields(container),
        )  # fmt: skip
        return _P.ContainerStatusAnswer(status=status)

    async def UpdateContainerResources(self, request: Message, context: Message) -> Message:
        container = await _known(self._containers, request.container_id, context)
        container.resources.MergeFrom(request.linux)
        return _P.Empty()

    def _of(self, sandbox: Sandbox) -> list[Container]:
        return [each for each in self._containers.values() if each.sandbox is sandbox]

    def _life(self, sandbox: Sandbox) -> float | None:
        """Seconds until the containers of the pod end, the same moment for all of them; None: no end."""
        if sandbox.ends_at is None:
            seconds = _seconds(sandbox, LIFE, self.mean_life * self._random.uniform(0.1, 1.9))
            if not seconds:
                return None
            sandbox.ends_at = time.monotonic() + seconds
        return max(0.0, sandbox.ends_at - time.monotonic())

    def _end_after(self, container: Container, seconds: float) -> None:
        async def end() -> None:
            await asyncio.sleep(seconds)
            _end(container, 0)

        task = asyncio.create_task(end())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    # -- images: every one is there --

    async def ListImages(self, _request: Message, _context: Message) -> Message:
        return _P.Images()

    async def ImageStatus(self, request: Message, _context: Message) -> Message:
        name = request.image.image
        return _P.ImageAnswer(image=_P.Image(id=name, repo_tags=[name], size=1))

    async def PullImage(self, request: Message, _context: Message) -> Message:
        return _P.PullAnswer(image_ref=request.image.image)

    async def ImageFsInfo(self, _request: Message, _context: Message) -> Message:
        usage = _P.FilesystemUsage(
            timestamp=time.time_ns(), fs_id=_P.Mountpoint(mountpoint="/var/lib"),
            used_bytes=_P.Amount(value=1), inodes_used=_P.Amount(value=1),
        )  # fmt: skip
        return _P.Filesystems(image_filesystems=[usage], container_filesystems=[usage])


async def _known(kept: Mapping[str, Any], id_: str, context: Message) -> Message:
    if id_ not in kept:
        await context.abort(grpc.StatusCode.NOT_FOUND, f"{id_} is not known")
    return kept[id_]


def _end(container: Container, exit_code: int) -> None:
    if container.state == RUNNING:
        container.state, container.exit_code, container.finished_at = EXITED, exit_code, time.time_ns()


def _seconds(sandbox: Sandbox, annotation: str, otherwise: float) -> float:
    return float(sandbox.config.annotations.get(annotation, otherwise))


def _matches(wanted: Message, state: int, labels: Mapping[str, str]) -> bool:
    is_state = not wanted.HasField("state") or wanted.state.state == state
    return is_state and all(labels.get(key) == value for key, value in wanted.label_selector.items())


def _sandbox_fields(sandbox: Sandbox) -> dict[str, Any]:
    config = sandbox.config
    return {
        "id": sandbox.id, "metadata": config.metadata, "state": sandbox.state, "created_at": sandbox.created_at,
        "labels": config.labels, "annotations": config.annotations, "runtime_handler": sandbox.handler,
    }  # fmt: skip


def _container_fields(container: Container) -> dict[str, Any]:
    config, image = container.config, container.config.image.image
    return {
        "id": container.id, "metadata": config.metadata, "state": container.state,
        "created_at": container.created_at, "labels": config.labels, "annotations": config.annotations,
        "image": config.image, "image_ref": image, "image_id": image,
    }  # fmt: skip
