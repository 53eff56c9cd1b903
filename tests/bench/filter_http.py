"""Filter and prioritize over HTTP, for clusters whose nodes share 300 states, or have a state of their own each.

    python -m tests.bench.filter_http [--nodes 1000 --nodes 5000 …] [--states shared --states own] [--profile FILE]

Client and server are two processes on one machine, one connection kept alive, as kube-scheduler does. `echo` is a route
of the same server that parses the same body and sends all names back. `first` is the first request of a pod shape:
every class is replayed. `repeated` is another pod of a shape that was asked for before. Names come in another order
each time, as kube-scheduler's do. `changed`: nodes have reported another state since the last call. `under reports`: a
process of its own meanwhile sends 6,500 reports a minute, each with another state. `sampled`: other names in each
call, as many as kube-scheduler asks about where all nodes pass its own filters. `CPU ms` is the processor time of
the server for one call, which other work on the machine changes less than the time on the clock. Several sizes are
compared at the end.
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
from functools import partial
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
from tests.bench.states import full_report_of, own_states, shared_states
from tests.reports import args_of, pod_of

CLUSTERS = (1000, 5000)
KINDS = {"shared": "300 shared states", "own": "each in its own state"}
FIRST_CALLS = 20
REPEATED_CALLS = 200
WARM_UP_CALLS = 100
"""Of each kind: so many fill what is remembered of the last calls, and until then each one needs new pages."""
MANY_NODES = 20_000
"""From here on a quarter of the calls."""
SAMPLED_ECHO = "echo, sampled names"
PAGE = 1000
"""Nodes on a page of the map, as the web page asks for them."""
SMALL, LARGE = 8, 48
"""CPUs of the pods asked for repeatedly: the small one fits everywhere."""
CHANGED_NODES = 8
GROUP_SIZE = 8
HOLD_SECONDS = 0.1
"""For how long the server holds places."""
REPORTS_A_SECOND = 6500 / 60
SERVER_START_SECONDS = 30


def run(console: Console) -> None:
    """Measure and print."""
    for nodes, kind in itertools.product(CLUSTERS, KINDS):
        measure(nodes, kind, console)


Row = list[tuple[float, float]]
"""Milliseconds of each call: on the clock, and of the server's CPU time; sorted."""


def measure(count: int, kind: str, console: Console, profile: Path | None = None) -> dict[str, Row]:
    """Measure a cluster of *count* nodes and print; *kind*: one of `KINDS`."""
    arguments = [] if profile is None else [str(profile)]
    states: Iterator[SampleNode] = itertools.cycle(shared_states()) if kind == "shared" else own_states()
    os.environ.setdefault("NUMA_EXTENDER_MAX_NODES", "100000")
    os.environ.setdefault("NUMA_EXTENDER_MAX_REMEMBERED_JUDGEMENTS", "4000000")
    with served("tests.bench.server", *arguments) as (port, pid):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        before = _memory_mib(pid, "VmRSS"), cpu_ms(pid)
        nodes = ((name, full_report_of(state)) for name, state in zip(node_names(count), states, strict=False))
        names = load(connection, nodes, console)
        mib, cpu = (now - was for now, was in zip((_memory_mib(pid, "VmRSS"), cpu_ms(pid)), before, strict=True))
        console.print(f"start-up: {cpu / 1000:.1f} s of CPU time; {mib} MiB, {mib * 1024 / count:.1f} KiB a node")
        if profile is not None:
            os.kill(pid, signal.SIGUSR1)
        later = list(itertools.islice(states, 1000))
        rows = _Measure(port, pid, connection, names, later).rows()
        console.print(_table(f"{count} nodes, {KINDS[kind]}", rows))
        console.print(f"peak memory of the server: {_memory_mib(pid, 'VmHWM')} MiB")
        return {"a report at start-up": [(cpu / count, cpu / count)], **rows}


def _table(title: str, rows: dict[str, Row]) -> Table:
    table = Table(title=title)
    for heading in ("request", "median ms", "p99 ms", "x echo", "CPU ms", "x echo"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    for what, calls in rows.items():
        echo, echo_cpu = _medians(rows[_echo_of(what)])
        (median, cpu), p99 = _medians(calls), calls[int(len(calls) * 0.99)][0]
        table.add_row(
            what, f"{median:.2f}", f"{p99:.2f}", f"{median / echo:.2f}", f"{cpu:.2f}", f"{cpu / echo_cpu:.2f}"
        )
    return table


def _growth(found: dict[tuple[int, str], dict[str, Row]]) -> Table:
    """How each row grows with the number of nodes: CPU milliseconds of a call, and how often an echo's."""
    table = Table(title="CPU ms of a call (times an echo's)")
    table.add_column("request")
    for count, kind in found:
        table.add_column(f"{count:,} {kind}", justify="right")
    for what in next(iter(found.values())):
        cells = []
        for rows in found.values():
            cpu, echo = _medians(rows[what])[1], _medians(rows[_echo_of(what)])[1]
            cells.append(f"{cpu:.2f} ({cpu / echo:.1f})")
        table.add_row(what, *cells)
    return table


def _echo_of(what: str) -> str:
    """The row of the echo of as many names."""
    return SAMPLED_ECHO if "sampled" in what else "echo"


def _medians(calls: Row) -> tuple[float, float]:
    """On the clock, and of CPU time."""
    return statistics.median([wall for wall, _ in calls]), statistics.median([cpu for _, cpu in calls])


def _memory_mib(pid: int, what: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) >> 10


def cpu_ms(pid: int) -> float:
    """CPU time of all threads of the process, in milliseconds."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e6


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


class _Measure:
    """Calls to a server whose nodes *names* have reported. *states*: for later reports."""

    def __init__(
        self, port: int, pid: int, connection: http.client.HTTPConnection, names: list[str], states: list[SampleNode]
    ) -> None:
        self.port, self.pid, self.connection, self.names, self.states = port, pid, connection, names, states
        self.share = 4 if len(names) >= MANY_NODES else 1
        self.shuffled = random.Random(1).shuffle

    def rows(self) -> dict[str, Row]:
        """All measurements, by what is measured."""
        small, new = partial(_equal_pods, SMALL), _new_shapes()
        reports = _reports(sorted(self.names)[:CHANGED_NODES], self.states)

        def change(nodes: int) -> None:
            for name, body in itertools.islice(reports, nodes):
                call(self.connection, "PUT", f"/v1/nodes/{name}/report", body)

        for cpus in (SMALL, LARGE):
            self.until_answered(cpus)
        filter_, prioritize = partial(self.timed, "/scheduler/filter"), partial(self.timed, "/scheduler/prioritize")
        sample = sampled(len(self.names))
        rows = {
            "echo": self.timed("/echo", small(), REPEATED_CALLS),
            "filter, first": filter_(new, FIRST_CALLS),
            "filter, first, demands alignment": filter_(_demanding(new), FIRST_CALLS),
            "filter, repeated, demands alignment": filter_(_demanding(small()), REPEATED_CALLS),
            f"filter, repeated, {SMALL} CPUs": filter_(small(), REPEATED_CALLS),
            f"filter, repeated, {LARGE} CPUs": filter_(_equal_pods(LARGE), REPEATED_CALLS),
            "filter, repeated, a node changed": filter_(small(), REPEATED_CALLS, lambda: change(1)),
            f"filter, repeated, {CHANGED_NODES} changed": filter_(
                small(), REPEATED_CALLS, lambda: change(CHANGED_NODES)
            ),
            f"filter, repeated, in groups of {GROUP_SIZE}": filter_(
                _grouped(), REPEATED_CALLS, partial(_let_expire, itertools.count())
            ),
            "filter, nothing to align": filter_(_unaligned(), REPEATED_CALLS),
            "prioritize, first": prioritize(new, FIRST_CALLS),
            "prioritize, repeated": prioritize(small(), REPEATED_CALLS),
            "prioritize after filter": self.as_scheduler(small(), REPEATED_CALLS),
            SAMPLED_ECHO: self.timed("/echo", small(), REPEATED_CALLS, count=sample),
            "filter, sampled names": filter_(small(), REPEATED_CALLS, count=sample),
            "prioritize after filter, sampled names": self.as_scheduler(small(), REPEATED_CALLS, sample),
            "page of 100 nodes": self.read("/v1/nodes?limit=100"),
            f"page of {PAGE} nodes of the map": self.read(f"/v1/map?limit={PAGE}"),
        }
        with reporting(self.port, self.names[: len(self.names) // 2], self.states):
            rows["filter, repeated, under reports"] = filter_(small(), REPEATED_CALLS)
            rows["echo, under reports"] = self.timed("/echo", small(), REPEATED_CALLS)
        return rows

    def measured(self, work: Callable[[], object]) -> tuple[float, float]:
        """Milliseconds on the clock, and of the server's CPU time."""
        cpu, started = cpu_ms(self.pid), time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1000, cpu_ms(self.pid) - cpu

    def timed(
        self,
        path: str,
        pods: Pods,
        calls: int,
        before: Callable[[], None] = lambda: None,
        count: int | None = None,
    ) -> Row:
        """Calls of one verb, with the names in another order each time, or with *count* of them, others each time."""
        found: Row = []
        warm_up = min(WARM_UP_CALLS, calls) // self.share
        for i, pod in enumerate(itertools.islice(pods, warm_up + calls // self.share)):
            if i == warm_up:
                found.clear()
            before()
            self.shuffled(self.names)
            body = orjson.dumps(args_of(pod, *self.names[:count]))
            found.append(self.measured(partial(call, self.connection, "POST", path, body)))
        return sorted(found)

    def as_scheduler(self, pods: Pods, calls: int, count: int | None = None) -> Row:
        """Prioritize with the names of the filter reply before it."""
        found: Row = []
        for pod in itertools.islice(pods, calls // self.share):
            self.shuffled(self.names)
            reply = call(self.connection, "POST", "/scheduler/filter", orjson.dumps(args_of(pod, *self.names[:count])))
            body = orjson.dumps(args_of(pod, *orjson.loads(reply)["NodeNames"]))
            found.append(self.measured(partial(call, self.connection, "POST", "/scheduler/prioritize", body)))
        return sorted(found)

    def read(self, path: str) -> Row:
        """A page, some pages into the list."""
        after = sorted(self.names)[len(self.names) // 2]
        return sorted(
            self.measured(partial(call, self.connection, "GET", f"{path}&after={after}", b""))
            for _ in range(FIRST_CALLS)
        )

    def until_answered(self, cpus: int) -> None:
        """Ask until all nodes are judged."""
        while orjson.loads(self.filtered(cpus))["Error"]:
            pass

    def filtered(self, cpus: int) -> bytes:
        """The reply to a call about a pod of that size."""
        body = orjson.dumps(args_of(pod_of(cpus, "16Gi"), *self.names))
        return call(self.connection, "POST", "/scheduler/filter", body)


def sampled(nodes: int) -> int:
    """How many feasible nodes kube-scheduler looks for by default (`schedule_one.go`: numFeasibleNodesToFind)."""
    return min(nodes, max(100, nodes * max(5, 50 - nodes // 125) // 100))


@contextmanager
def reporting(port: int, names: Sequence[str], states: Sequence[SampleNode]) -> Iterator[None]:
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


def _grouped() -> Pods:
    """Pods of groups, one group after the other."""
    for i in itertools.count():
        pod = pod_of(SMALL, "16Gi", name=f"member-{i}")
        group = {"numa-extender.io/group": f"g-{i // GROUP_SIZE}", "numa-extender.io/group-size": str(GROUP_SIZE)}
        pod["metadata"]["annotations"] = group
        yield pod


def _let_expire(calls: Iterator[int]) -> None:
    """One group at a time: before the next one, the places of the last one are given back."""
    if next(calls) % GROUP_SIZE == 0:
        time.sleep(2 * HOLD_SECONDS)


def _reports(names: Sequence[str], states: Sequence[SampleNode], first: int = 2) -> Iterator[tuple[str, bytes]]:
    """Reports of the nodes in turn, each of another state."""
    for sequence, name in enumerate(itertools.cycle(names), first):
        document = full_report_of(states[sequence % len(states)], sequence=sequence)
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
@click.option("--states", multiple=True, type=click.Choice(list(KINDS)), default=list(KINDS), show_default=True)
@click.option("--profile", type=click.Path(path_type=Path), help="Profile the event loop; pstats go to this file.")
def main(nodes: Sequence[int], states: Sequence[str], profile: Path | None) -> None:
    """Measure and print. Settings of the server come from the environment (`NUMA_EXTENDER_MAX_NODES`, …)."""
    console = Console(width=110 if not sys.stdout.isatty() else None)
    found = {(count, kind): measure(count, kind, console, profile) for count in nodes for kind in states}
    if len(found) > 1:
        console.print(_growth(found))


if __name__ == "__main__":
    main()
