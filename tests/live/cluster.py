"""A whole cluster for one scene."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.live import shapes
from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.control_plane import ControlPlane, control_plane
from tests.live.installing import APPLY, EXTENDER, install, token
from tests.live.node import MakeNode
from tests.live.nodes import Nodes
from tests.live.restated_node import RestatedNode
from tests.live.scheduling import Extender, Scheduler
from tests.live.whole import machine_trees
from tests.live.whole.node import WholeNode

Say = Callable[[str], None]
RESTATED, REAL = "restated", "real"
MEMORY = Path("/dev/shm")
"""Files in memory: etcd need not wait for a disk."""
OWN = "overlays/second-scheduler"
"""The recipe in which scheduler and extender are one pod, with one ServiceAccount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be played. `nodes`, `pods`, `rounds`, `seconds`: sizes, None: the scene's own.

    `mutant`: the change that the extender has, by its name in `mutants`; empty: none. `kubelets`: `RESTATED` or `REAL`.
    `recorded`: restated kubelets have the machines and the configuration that real ones have. `installer`: one of
    `INSTALLERS`.
    """

    seed: int = 1
    nodes: int | None = None
    pods: int | None = None
    rounds: int | None = None
    seconds: float | None = None
    keep_logs: Path | None = None
    mutant: str = ""
    kubelets: str = RESTATED
    recorded: bool = False
    installer: str = APPLY


@dataclass
class Cluster:
    """The running parts."""

    plane: ControlPlane
    nodes: Nodes
    objects: tuple[Json, ...]
    extenders: list[Extender]
    scheduler: Scheduler
    say: Say

    @property
    def extender(self) -> Extender:
        """The first, and in most scenes the only one."""
        return self.extenders[0]


@contextmanager
def cluster(
    binaries: Binaries,
    plan: Plan,
    say: Say,
    *,
    nodes: int,
    recipe: str = OWN,
    components: Sequence[str] = (),
    extenders: int = 1,
    exporter_arguments: Sequence[str] | None = None,
    groups: int | None = None,
    **settings: object,
) -> Iterator[Cluster]:
    """Start everything but kube-scheduler, and wait until the extender knows every node exactly.

    *settings* of the extender, beside those of the recipe. With real kubelets it writes what it predicts into each pod.
    *exporter_arguments* None: push to the first extender. *groups*: of nodes that are alike; None: all nodes differ.
    """
    directory = Path(tempfile.mkdtemp(prefix="nl", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    logs = directory / "logs"
    logs.mkdir()
    with ExitStack() as stack:
        stack.callback(_remove, directory, logs, plan.keep_logs)
        say("etcd and kube-apiserver start")
        plane = stack.enter_context(control_plane(binaries, directory, logs))
        say(f"kube-apiserver {plane.version} is ready; our manifests are installed ({recipe}, {plan.installer})")
        objects = install(plane.api, recipe, components, plan.installer, plane.admin_kubeconfig)
        secret = plane.identities.secret("extender.token", token(plane.api, EXTENDER))
        kubeconfig = plane.identities.kubeconfig("extender", plane.url, {"tokenFile": str(secret)})
        shutil.copy(kubeconfig, directory / "extender.kubeconfig")
        count = nodes if plan.nodes is None else plan.nodes
        make = _make_node(binaries, plan)
        kubelets = stack.enter_context(Nodes(make, plane, directory, logs, count, seed=plan.seed, groups=groups))
        say(f"{count} kubelets are registered and watch their pods")
        if plan.kubelets == REAL:
            settings = {"placement_annotations": "on", **settings}
        running = [
            stack.enter_context(Extender(plane, objects, directory, logs, f"extender-{i}", plan.mutant, **settings))
            for i in range(extenders)
        ]
        arguments = ("--push", running[0].tls_url) if exporter_arguments is None else exporter_arguments
        kubelets.start_exporters(objects, *arguments)
        for extender in running:
            seconds = extender.wait_for_nodes(count)
            say(f"{extender.name} knows {count} nodes exactly, after {seconds:.0f} s")
        scheduler = Scheduler(binaries, directory, logs, kubeconfig if recipe == OWN else _schedulers_own(plane))
        stack.callback(scheduler.stop)
        yield Cluster(plane, kubelets, objects, running, scheduler, say)


def _schedulers_own(plane: ControlPlane) -> Path:
    """What the control plane's own scheduler connects with."""
    certificate, key = plane.identities.client("kube-scheduler", user="system:kube-scheduler")
    files = {"client-certificate": str(certificate), "client-key": str(key)}
    return plane.identities.kubeconfig("scheduler", plane.url, files)


def _make_node(binaries: Binaries, plan: Plan) -> MakeNode:
    if plan.kubelets == REAL:
        assert binaries.kubelets
        return partial(WholeNode, programs=binaries.kubelets)
    return partial(RestatedNode, scenarios=machine_trees.scenario if plan.recorded else shapes.scenario)


def _remove(directory: Path, logs: Path, keep: Path | None) -> None:
    if keep is not None:
        shutil.copytree(logs, keep, dirs_exist_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
