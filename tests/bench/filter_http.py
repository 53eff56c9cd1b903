"""Filter and prioritize over HTTP, for clusters whose nodes share 300 states, or have a state of their own each.

    python -m tests.bench.filter_http [--nodes 1000 --nodes 5000 …] [--states shared --states own] [--profile FILE]

Client and server are two processes on one machine, one connection kept alive, as kube-scheduler does. `echo` is a route
of the same server that parses the same body and sends all names back. `first` is the first request of a pod shape:
every class is replayed. `repeated` is another pod of a shape that was asked for before. Names come in another order
each time, as kube-scheduler's do. `changed`: nodes have reported another state since the last call. `under reports`: a
process of its own meanwhile sends 6,500 reports a minute, each with another state.
"""

import http.client
import itertools
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.progress import track
from rich.table import Table

from extender.samples.nodes import SampleNode
from tests.bench.states import own_states, shared_states
from tests.reports import args_of, pod_of, report_of

CLUSTERS = (1000, 5000)
KINDS = ("shared", "own")
FIRST_CALLS = 20
REPEATED_CALLS = 200
WARM_UP_CALLS = 100
"""Of each kind: so many fill what is remembered of the last calls, and until then each one needs new pages."""
MANY_NODES = 20_000
"""From here on a tenth of the calls."""
SMALL, LARGE = 8, 48
"""CPUs of the pods asked for repeatedly: the small one fits everywhere."""
CHANGED_NODES = 8
REPORTS_A_SECOND = 6500 / 60
SERVER_START_SECONDS = 30


def run(console: Console) -> None:
    """Measure and print."""
    for nodes, kind in itertools.product(CLUSTERS, KINDS):
        measure(nodes, kind, console)


def measure(count: int, kind: str, console: Console, profile: Path | None = None) -> None:
    """Measure a cluster of *count* nodes and print; *kind*: one of `KINDS`."""
    arguments = [] if profile is None else [str(profile)]
    states: Iterator[SampleNode] = itertools.cycle(shared_states()) if kind == "shared" else own_states()
    with served("tests.bench.server", *arguments) as (port, pid):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        nodes = ((name, report_of(state)) for name, state in zip(node_names(count), states, strict=False))
        names = load(connection, nodes, console)
        if profile is not None:
            os.kill(pid, signal.SIGUSR1)
        later = list(itertools.islice(states, 1000))
        console.print(_measure(port, connection, names, later, kind))
        console.print(f"peak memory of the server: {_peak_mib(pid)} MiB")


def _peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


@contextmanager
def server() -> Iterator[int]:
    """A server in a process of its own; gives its port."""
    with served("tests.bench.server") as (port, _):
        yield port


@contextmanager
def served(module: str, *arguments: str) -> Iterator[tuple[int, int]]:
    """`python -m MODULE PORT ARGUMENTS…`; gives port and process id once it listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    process = subprocess.Popen([sys.executable, "-m", module, str(port), *arguments])
    try:
        deadline = time.monotonic() + SERVER_START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def node_names(count: int) -> list[str]:
    """As long as they are in clouds."""
    return [f"ip-10-{i // 250}-{i % 250}-17.eu-central-1.compute.internal" for i in range(count)]


def load(
    connection: http.client.HTTPConnection, reports: Iterable[tuple[str, dict[str, object]]], console: Console
) -> list[str]:
    """Send each node's report; the names in random order."""
    names: list[str] = []
    seconds = 0.0
    for name, document in track(reports, "nodes report", console=console, transient=True):
        body = orjson.dumps({**document, "node_name": name})
        started = time.perf_counter()
        call(connection, "PUT", f"/v1/nodes/{name}/report", body)
        seconds += time.perf_counter() - started
        names.append(name)
    console.print(
        f"{len(names)} reports of {len(body)} bytes taken in: {seconds / len(names) * 1000:.2f} ms each, "
        f"{seconds:.0f} s in all"
    )
    random.Random(1).shuffle(names)
    return names


def call(connection: http.client.HTTPConnection, method: str, path: str, body: bytes) -> bytes:
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    reply = response.read()
    if response.status != 200:
        raise RuntimeError(reply.decode())
    return reply


Pods = Iterator[dict[str, Any]]


def _measure(
    port: int, connection: http.client.HTTPConnection, names: list[str], states: list[SampleNode], kind: str
) -> Table:
    shuffled = random.Random(1).shuffle
    few = sorted(names)[:CHANGED_NODES]
    reports = _reports(few, states)
    share = 10 if len(names) >= MANY_NODES else 1

    def change(nodes: int) -> None:
        for name, body in itertools.islice(reports, nodes):
            call(connection, "PUT", f"/v1/nodes/{name}/report", body)

    def timed(path: str, pods: Pods, calls: int, before: Callable[[], None] = lambda: None) -> list[float]:
        millis: list[float] = []
        warm_up = min(WARM_UP_CALLS, calls) // share
        for i, pod in enumerate(itertools.islice(pods, warm_up + calls // share)):
            if i == warm_up:
                millis.clear()
            before()
            shuffled(names)
            body = orjson.dumps(args_of(pod, *names))
            started = time.perf_counter()
            call(connection, "POST", path, body)
            millis.append((time.perf_counter() - started) * 1000)
        return sorted(millis)

    def as_scheduler(pods: Pods, calls: int) -> list[float]:
        """Prioritize with the names of the filter reply before it."""
        millis: list[float] = []
        for pod in itertools.islice(pods, calls // share):
            shuffled(names)
            reply = call(connection, "POST", "/scheduler/filter", orjson.dumps(args_of(pod, *names)))
            body = orjson.dumps(args_of(pod, *orjson.loads(reply)["NodeNames"]))
            started = time.perf_counter()
            call(connection, "POST", "/scheduler/prioritize", body)
            millis.append((time.perf_counter() - started) * 1000)
        return sorted(millis)

    def passing(cpus: int) -> int:
        while True:
            body = orjson.dumps(args_of(pod_of(cpus, "16Gi"), *names))
            reply = orjson.loads(call(connection, "POST", "/scheduler/filter", body))
            if not reply["Error"]:
                return len(reply["NodeNames"])

    small, large = passing(SMALL), passing(LARGE)
    new = _new_shapes()
    rows = {
        "echo": timed("/echo", _equal_pods(SMALL), REPEATED_CALLS),
        "filter, first": timed("/scheduler/filter", new, FIRST_CALLS),
        "filter, first, demands alignment": timed("/scheduler/filter", _demanding(new), FIRST_CALLS),
        "filter, repeated, demands alignment": timed(
            "/scheduler/filter", _demanding(_equal_pods(SMALL)), REPEATED_CALLS
        ),
        f"filter, repeated, {small} pass": timed("/scheduler/filter", _equal_pods(SMALL), REPEATED_CALLS),
        f"filter, repeated, {large} pass": timed("/scheduler/filter", _equal_pods(LARGE), REPEATED_CALLS),
        "filter, repeated, a node changed": timed(
            "/scheduler/filter", _equal_pods(SMALL), REPEATED_CALLS, lambda: change(1)
        ),
        f"filter, repeated, {CHANGED_NODES} nodes changed": timed(
            "/scheduler/filter", _equal_pods(SMALL), REPEATED_CALLS, lambda: change(CHANGED_NODES)
        ),
        "filter, nothing to align": timed("/scheduler/filter", _unaligned(), REPEATED_CALLS),
        "prioritize, first": timed("/scheduler/prioritize", new, FIRST_CALLS),
        "prioritize, repeated": timed("/scheduler/prioritize", _equal_pods(SMALL), REPEATED_CALLS),
        "prioritize after filter": as_scheduler(_equal_pods(SMALL), REPEATED_CALLS),
    }
    with _reporting(port, names[: len(names) // 2], states):
        rows["filter, repeated, under reports"] = timed("/scheduler/filter", _equal_pods(SMALL), REPEATED_CALLS)
        rows["echo, under reports"] = timed("/echo", _equal_pods(SMALL), REPEATED_CALLS)
    table = Table(title=f"{len(names)} nodes, {'300 shared states' if kind == 'shared' else 'each in its own state'}")
    for heading in ("request", "median ms", "p99 ms", "x echo"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    echo = statistics.median(rows["echo"])
    for what, millis in rows.items():
        median, p99 = statistics.median(millis), millis[int(len(millis) * 0.99)]
        table.add_row(what, f"{median:.2f}", f"{p99:.2f}", f"{median / echo:.2f}")
    return table


@contextmanager
def _reporting(port: int, names: Sequence[str], states: Sequence[SampleNode]) -> Iterator[None]:
    """Nodes *names* report in turn, at `REPORTS_A_SECOND`, from a process of its own."""
    context = get_context("fork")
    stop = context.Event()
    process = context.Process(target=_send_reports, args=(port, names, states, stop))
    process.start()
    try:
        yield
    finally:
        stop.set()
        process.join()


def _send_reports(port: int, names: Sequence[str], states: Sequence[SampleNode], stop: Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    due = time.monotonic()
    for name, body in _reports(names, states, first=1_000_000):
        due = max(due + 1 / REPORTS_A_SECOND, time.monotonic() - 1)
        if stop.wait(max(0.0, due - time.monotonic())):
            return
        call(connection, "PUT", f"/v1/nodes/{name}/report", body)


def _equal_pods(cpus: int) -> Pods:
    """Pods of one shape that differ in name and UID only."""
    return (pod_of(cpus, "16Gi", name=f"equal-{i}") for i in itertools.count())


def _reports(names: Sequence[str], states: Sequence[SampleNode], first: int = 2) -> Iterator[tuple[str, bytes]]:
    """Reports of the nodes in turn, each of another state."""
    for sequence, name in enumerate(itertools.cycle(names), first):
        document: dict[str, Any] = report_of(states[sequence % len(states)], sequence=sequence)
        yield name, orjson.dumps({**document, "node_name": name})


def _new_shapes() -> Pods:
    """Pods that were never asked for, each of another size."""
    return (pod_of(2 + i % 24, f"{1024 + i}Mi", name=f"new-{i}") for i in itertools.count())


def _demanding(pods: Iterable[dict[str, Any]]) -> Pods:
    """The pods with a demand for alignment."""
    for pod in pods:
        pod["metadata"]["annotations"] = {"numa-extender.io/alignment": "single-numa-node"}
        yield pod


def _unaligned() -> Pods:
    """Burstable pods: no manager has anything to align."""
    for i in itertools.count():
        pod = pod_of("500m", "1Gi", name=f"small-{i}")
        del pod["spec"]["containers"][0]["resources"]["limits"]
        pod["status"]["qosClass"] = "Burstable"
        yield pod


@click.command()
@click.option("--nodes", multiple=True, type=click.IntRange(20), default=CLUSTERS, show_default=True)
@click.option("--states", multiple=True, type=click.Choice(KINDS), default=KINDS, show_default=True)
@click.option("--profile", type=click.Path(path_type=Path), help="Profile the event loop; pstats go to this file.")
def main(nodes: Sequence[int], states: Sequence[str], profile: Path | None) -> None:
    """Measure and print. Settings of the server come from the environment (`NUMA_EXTENDER_MAX_NODES`, …)."""
    console = Console(width=110 if not sys.stdout.isatty() else None)
    for count, kind in itertools.product(nodes, states):
        measure(count, kind, console, profile)


if __name__ == "__main__":
    main()
