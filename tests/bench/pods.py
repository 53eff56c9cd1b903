"""A stream of pods through a running extender, beside an echo extender in the same run: CPU time a pod.

    python -m tests.bench.pods [--pods 400] [--nodes 1000] [--profile FILE]

Four processes: the fake API server, our extender, `echo_extender`, and this one, which plays kube-scheduler, kubelets
and exporters. Each pod of ours is filtered over all nodes, prioritized and bound; its kubelet admits it and says so in
the pod's status, its exporter reports before and after, and when the cluster is as full as it began, another pod is
deleted and its node reports again. The echo extender gets the same three calls about a pod of its own: it has no watch
and no reports, so its cost is what the protocol, JSON and the write of the binding cost.

Figures: CPU of the extender's process a pod, and how long the scheduler waited for each call. `--profile`: which
functions on our event loop take longest (the figures are then those of a profiled process).
"""

import contextlib
import http.client
import os
import pstats
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import orjson
from rich.console import Console
from rich.progress import track
from rich.table import Table

from extender.kubelet.verdict import Rejected
from extender.samples.nodes import SampleNode, Workload
from tests.bench.bind_http import _api_server, _running, _send, _wait_ready
from tests.bench.filter_http import call, node_names, served
from tests.bench.states import HARDWARE, admitted, ended
from tests.contract.live import kubeconfig
from tests.reports import pod_of, report_of, sample, with_init
from tests.world.scheduler import Scheduler

Json = dict[str, Any]
GPU = "vendor.example/gpu"
PODS_A_NODE = 20
WARM_UP_PODS = 60
STATUS_AFTER, REPORT_AFTER, RUNNING_AFTER, TORN_DOWN_AFTER = 2, 8, 10, 20
"""When things happen to a pod, in pods scheduled meanwhile."""
TOP = 10


@dataclass
class Stage:
    """The cluster: what the kubelets hold, and what is yet to happen, by the number of pods scheduled until then."""

    kubernetes: http.client.HTTPConnection
    extender: http.client.HTTPConnection
    nodes: dict[str, SampleNode]
    dice: random.Random
    sequences: Counter[str] = field(default_factory=Counter)
    due: dict[int, list[tuple[str, str, Json]]] = field(default_factory=dict)
    running: list[tuple[str, Json]] = field(default_factory=list)
    refused: int = 0

    def admit(self, step: int, name: str, pod: Json) -> None:
        """The node's kubelet hears of the pod."""
        node = admitted(self.nodes[name], pod)
        if isinstance(node, Rejected):
            self.refused += 1
            self._patch(pod, {"status": {"phase": "Failed", "reason": node.reason}})
            return
        self.nodes[name] = node
        self.running.append((name, pod))
        for after, what in ((STATUS_AFTER, "status"), (REPORT_AFTER, "report"), (RUNNING_AFTER, "running")):
            self.due.setdefault(step + after, []).append((what, name, pod))

    def end_one(self, step: int) -> None:
        """A pod is deleted; its containers stop a little later."""
        name, pod = self.running.pop(self.dice.randrange(len(self.running)))
        self._write("DELETE", _path(pod), {"gracePeriodSeconds": 30})
        self.due.setdefault(step + TORN_DOWN_AFTER, []).append(("torn down", name, pod))
        self.due.setdefault(step + TORN_DOWN_AFTER + REPORT_AFTER, []).append(("report", name, pod))

    def happen(self, step: int) -> None:
        """All that is due by now."""
        for what, name, pod in self.due.pop(step, ()):
            match what:
                case "status":
                    self._patch(pod, {"status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}})
                case "running":
                    self._patch(pod, {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}})
                case "report":
                    self.report(name)
                case _:
                    self.nodes[name] = ended(self.nodes[name], pod["metadata"]["uid"])
                    self._write("DELETE", _path(pod), {"gracePeriodSeconds": 0})

    def report(self, name: str) -> None:
        """The node's exporter sends what the kubelet holds."""
        self.sequences[name] += 1
        document = report_of(self.nodes[name], sequence=self.sequences[name])
        call(self.extender, "PUT", f"/v1/nodes/{name}/report", orjson.dumps(document))

    def _patch(self, pod: Json, patch: Json) -> None:
        self._write("PATCH", f"{_path(pod)}/status", patch, "application/merge-patch+json")

    def _write(self, method: str, path: str, document: Json, kind: str = "application/json") -> None:
        self.kubernetes.request(method, path, orjson.dumps(document), {"Content-Type": kind})
        response = self.kubernetes.getresponse()
        said = response.read()
        if response.status >= 300:
            raise RuntimeError(said.decode())


def _path(pod: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def make_nodes(count: int) -> dict[str, SampleNode]:
    """Nodes with about 20 pods each, every one in a state of its own."""
    nodes = {}
    for number, name in enumerate(node_names(count)):
        dice = random.Random(number)
        workloads = [
            Workload(name=f"w{i}", resources={"cpu": dice.randint(2, 6), "memory": f"{dice.randint(1, 8)}Gi"})
            for i in range(dice.randint(PODS_A_NODE - 3, PODS_A_NODE + 1))
        ]
        nodes[name] = sample(name, hardware=HARDWARE, devices={GPU: [0] * 4 + [1] * 4}, workloads=workloads)
    return nodes


def make_pod(name: str, dice: random.Random) -> Json:
    """Mostly one of two shapes; now and then with a device or an init container, or with nothing to align."""
    kind = dice.random()
    if kind < 0.1:
        pod = pod_of("500m", "1Gi", name=name)
        del pod["spec"]["containers"][0]["resources"]["limits"]
        pod["status"]["qosClass"] = "Burstable"
        return pod
    if kind < 0.2:
        return pod_of(2, "4Gi", name=name, devices={GPU: 1})
    pod = pod_of(dice.choice((2, 4)), "4Gi", name=name)
    if kind < 0.3:
        with_init(pod, 1, "1Gi")
    return pod


@contextlib.contextmanager
def _stage(nodes: dict[str, SampleNode], console: Console, profile: Path | None) -> Iterator[tuple[Stage, int]]:
    """The stage, and the process id of our extender."""
    with tempfile.TemporaryDirectory() as directory, _api_server() as api:
        kubernetes = http.client.HTTPConnection(urlsplit(api).netloc)
        for node in track(nodes.values(), "nodes and pods into the API server", console=console, transient=True):
            _send(kubernetes, "POST", "/api/v1/nodes", {"metadata": {"name": node.name}})
            for number, pod in enumerate(node.pods):
                _send(kubernetes, "POST", "/api/v1/namespaces/demo/pods", _running(node.name, number, pod))
        os.environ["NUMA_EXTENDER_KUBECONFIG"] = str(kubeconfig(Path(directory), api))
        try:
            with served("tests.bench.server", *([] if profile is None else [str(profile)])) as (port, pid):
                extender = http.client.HTTPConnection("127.0.0.1", port)
                _wait_ready(extender)
                stage = Stage(kubernetes, extender, nodes, random.Random(1))
                for name in track(nodes, "nodes report", console=console, transient=True):
                    stage.report(name)
                yield stage, pid
        finally:
            del os.environ["NUMA_EXTENDER_KUBECONFIG"]


@contextlib.contextmanager
def _echo() -> Iterator[tuple[http.client.HTTPConnection, http.client.HTTPConnection, int]]:
    """The echo extender and an API server of its own, connected; the process id of the former."""
    with tempfile.TemporaryDirectory() as directory, _api_server() as api:
        config = kubeconfig(Path(directory), api)
        with served("tests.bench.echo_extender", str(config)) as (port, pid):
            kubernetes = http.client.HTTPConnection(urlsplit(api).netloc)
            yield http.client.HTTPConnection("127.0.0.1", port), kubernetes, pid


class TimedScheduler:
    """kube-scheduler's three calls about one pod, and how long each took (ms)."""

    def __init__(self, connection: http.client.HTTPConnection, dice: random.Random) -> None:
        self.connection, self.dice = connection, dice
        self.scheduler = Scheduler(self._call, dice)
        self.forget()

    def forget(self) -> None:
        """Measure from here on."""
        self.millis: dict[str, list[float]] = {"filter": [], "prioritize": [], "bind": []}
        self.outcomes: Counter[str] = Counter()

    def schedule(self, pod: Json, names: list[str]) -> str | None:
        """The node that the pod is bound to; None if it is not."""
        self.dice.shuffle(names)
        answer = self.scheduler.filter(pod, names)
        if answer is None or not answer[1]:
            self.outcomes["filter refused"] += 1
            return None
        node = self.scheduler.best(pod, answer[1])
        error = self.scheduler.bind(pod, node)
        self.outcomes["bound" if not error else f"bind: {error[:70]}"] += 1
        return None if error else node

    def _call(self, verb: str, document: Json) -> Any:  # noqa: ANN401
        body = orjson.dumps(document)
        started = time.perf_counter()
        reply = call(self.connection, "POST", f"/scheduler/{verb}", body)
        self.millis[verb].append((time.perf_counter() - started) * 1000)
        return orjson.loads(reply)


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(console: Console, pods: int, nodes: int, profile: Path | None = None) -> None:
    """Play the stream and print."""
    made = make_nodes(nodes)
    names = list(made)
    with _stage(made, console, profile) as (stage, pid), _echo() as (echo_extender, echo_kubernetes, echo_pid):
        ours, echo = TimedScheduler(stage.extender, random.Random(3)), TimedScheduler(echo_extender, random.Random(3))
        dice, seconds = random.Random(2), [0.0, 0.0]
        for step in track(range(WARM_UP_PODS + pods), "pods", console=console, transient=True):
            if step == WARM_UP_PODS:
                if profile is not None:
                    os.kill(pid, signal.SIGUSR1)
                seconds = [-_cpu_seconds(pid), -_cpu_seconds(echo_pid)]
                for scheduler in (ours, echo):
                    scheduler.forget()
            pod, other = make_pod(f"ours-{step}", dice), pod_of(name=f"echo-{step}")
            _send(stage.kubernetes, "POST", "/api/v1/namespaces/default/pods", pod)
            _send(echo_kubernetes, "POST", "/api/v1/namespaces/default/pods", other)
            node = ours.schedule(pod, names)
            if node is not None:
                stage.admit(step, node, pod)
                stage.end_one(step)
            echo.schedule(other, names)
            stage.happen(step)
        seconds = [seconds[0] + _cpu_seconds(pid), seconds[1] + _cpu_seconds(echo_pid)]
        console.print(_table((ours, echo), seconds, pods, nodes))
        console.print(f"refused by kubelets: {stage.refused}; ours: {dict(ours.outcomes)}", highlight=False)
    if profile is not None:
        _print_profile(profile, console)


def _table(schedulers: tuple[TimedScheduler, TimedScheduler], seconds: list[float], pods: int, nodes: int) -> Table:
    table = Table(title=f"{pods} pods on {nodes} nodes")
    for heading in ("", "ours", "echo", "x echo"):
        table.add_column(heading, justify="right" if heading else "left")
    rows = {"CPU ms a pod": [each / pods * 1000 for each in seconds]}
    for verb in ("filter", "prioritize", "bind"):
        rows[f"{verb}, median ms"] = [statistics.median(each.millis[verb]) for each in schedulers]
    waits = [sum(map(sum, (each.millis["filter"], each.millis["prioritize"]))) / pods for each in schedulers]
    rows["filter and prioritize, mean ms a pod"] = waits
    for what, (mine, other) in rows.items():
        table.add_row(what, f"{mine:.2f}", f"{other:.2f}", f"{mine / other:.2f}")
    return table


def _print_profile(path: Path, console: Console) -> None:
    stats = pstats.Stats(str(path))
    known = stats.stats.items()  # type: ignore[attr-defined] # the only way to the figures
    rows = [row for row in known if row[0][2] != "run"]  # the loop itself, which waits
    total = sum(own for _, (_, _, own, _, _) in rows)
    table = Table(title=f"the event loop's {total:.2f} s, by function")
    for heading in ("function", "calls", "own s", "with callees s"):
        table.add_column(heading, justify="left" if heading == "function" else "right")
    for (file, line, name), (_, calls, own, with_callees, _) in sorted(rows, key=lambda row: -row[1][2])[:TOP]:
        table.add_row(f"{Path(file).name}:{line} {name}", str(calls), f"{own:.2f}", f"{with_callees:.2f}")
    console.print(table)


def run(console: Console) -> None:
    """As one of the benchmarks of `make bench`."""
    measure(console, 400, 1000)


@click.command()
@click.option("--pods", default=400, show_default=True)
@click.option("--nodes", default=1000, show_default=True)
@click.option("--profile", type=click.Path(path_type=Path), help="Profile our event loop; pstats go to this file.")
def main(pods: int, nodes: int, profile: Path | None) -> None:
    """Measure and print."""
    measure(Console(width=110 if not sys.stdout.isatty() else None), pods, nodes, profile)


if __name__ == "__main__":
    main()
