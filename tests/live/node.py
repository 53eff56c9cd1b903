"""One node of a live cluster, whatever its kubelet is: its exporter, and what the scenes ask of it."""

import asyncio
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from tests.live.api import Json
from tests.live.control_plane import ControlPlane
from tests.live.installing import AUDIENCE, EXPORTER, exporter_pod, token
from tests.live.processes import Program
from tests.live.tally import Lags, Tally

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


class Kubelet(Protocol):
    """What scenes do with a kubelet.

    `mean_life`: seconds that a pod runs on average before it ends by itself; 0: pods run until deleted.
    `lags`: how late it is from now on, as far as that can be chosen.
    """

    mean_life: float
    lags: Lags

    @property
    def placements(self) -> Mapping[str, Json]:
        """Of admitted pods, by UID: `containers` by name, with `cpus` as a Linux list where they are exclusive."""

    async def restart(self, seconds: float) -> None:
        """End, stay away for *seconds*, and come back; containers run on."""

    async def finish(self, uid: str) -> None:
        """The containers of a pod end by themselves."""


class Given(NamedTuple):
    """What a container was created with; lists of CPUs and of NUMA nodes as the kernel writes them, empty: any."""

    namespace: str
    pod: str
    uid: str
    container: str
    cpus: str
    mems: str


class Placing(NamedTuple):
    """Which node is wanted. *group*: what it is, and what its label says; None: a node of its own, without the label.

    *life*: how many machines had its name before. *name*: of a Node object that an autoscaler has made; "": none has.
    """

    number: int
    group: int | None = None
    life: int = 0
    name: str = ""

    @property
    def kind(self) -> int:
        """The number of the machine that it is."""
        return self.number if self.group is None else self.group


class Site(NamedTuple):
    """Where nodes are made. `directory`: of their files. `seed`: of the scene."""

    plane: ControlPlane
    directory: Path
    logs: Path
    tally: Tally
    seed: int


class LiveNode(ABC):
    """One node. `exporter`: the program; None until it is started. `kubelet_url`: of its https port."""

    kubelet: Kubelet
    kubelet_url: str

    def __init__(self, site: Site, placing: Placing, scenario: Json) -> None:
        self.name = placing.name or f"node-{placing.number:02}"
        directory = f"node-{placing.number:02}-{placing.life}"  # a path of a socket has at most 107 characters
        self.plane, self.directory, self._logs = site.plane, site.directory / directory, site.logs
        self.number, self.group, self.life, self.is_scaled = *placing[:3], bool(placing.name)
        self.scenario = scenario
        self.exporter: Program | None = None
        self._exporter_pod: Json | None = None

    @property
    @abstractmethod
    def allocatable(self) -> dict[str, int]:
        """What the node offers: thousandths of CPUs, bytes and pieces."""

    @property
    def given(self) -> Sequence[Given]:
        """What each container was created with, in order; empty: there is no container runtime."""
        return ()

    @abstractmethod
    def start(self, loop: Loop) -> None:
        """The kubelet starts and registers its Node object; it may need a while to be ready."""

    @abstractmethod
    def register(self) -> None:
        """The Node object was deleted; the kubelet creates it again."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the kubelet takes pods."""

    @abstractmethod
    def close(self, loop: Loop) -> None:
        """End everything of the node but its objects."""

    @abstractmethod
    def exporter_program(self, arguments: Sequence[str | Path], log: Path) -> Program:
        """The program of the exporter; *arguments* without those that say where the node's files are."""

    def place_exporter(self, objects: tuple[Json, ...]) -> None:
        """Create the exporter's pod, as the DaemonSet's controller does for a new node."""
        self._exporter_pod = exporter_pod(self.plane.api, objects, self.name)

    def start_exporter(self, objects: tuple[Json, ...], arguments: Sequence[str]) -> None:
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
        run: list[str | Path] = [
            "run", "--node-name", self.name,
            "--kubelet-url", self.kubelet_url, "--kubelet-token-file", for_kubelet,
            "--kubelet-ca-file", ca, "--token-file", for_extender, "--ca-file", ca,
            "--api-url", self.plane.url, "--api-token-file", for_kubelet, "--api-ca-file", ca, *arguments,
        ]  # fmt: skip
        self.exporter = self.exporter_program(run, self._logs / f"exporter-{self.name}.log")
        self.exporter.start()


class MakeNode(Protocol):
    """Makes a node; nothing of it is started."""

    def __call__(self, site: Site, placing: Placing) -> LiveNode:
        """The node of that number."""


EXPORTER_COMMAND = (sys.executable, "-m", "node_exporter")
