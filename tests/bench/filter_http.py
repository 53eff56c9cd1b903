"""Filter and prioritize over HTTP: clusters of 1,000 and 5,000 nodes in 300 distinct states.

Client and server are two processes on one machine, one connection kept alive, as kube-scheduler does. `echo` is a route
of the same server that parses the same body and sends all names back. `first` is the first request of a pod shape:
every class is replayed. `repeated` is another pod of a shape that was asked for before. Names come in another order
each time, as kube-scheduler's do. `changed`: one node has reported another state since the last call.
"""

import http.client
import itertools
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import orjson
from rich.console import Console
from rich.progress import track
from rich.table import Table

from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from tests.reports import args_of, pod_of, report_of, sample

CLUSTERS = (1000, 5000)
STATES = 300
FIRST_CALLS = 30
REPEATED_CALLS = 200
WARM_UP_CALLS = 100
"""Of each kind: so many fill what is remembered of the last calls, and until then each one needs new pages."""
SMALL, LARGE = 8, 48
"""CPUs of the pods asked for repeatedly: the small one fits everywhere."""
SERVER_START_SECONDS = 30
HARDWARE = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=32, threads=2, memory_gib=256, distances=(10, 21))
"""Usual dual-socket servers: 128 CPUs, 2 NUMA nodes."""


def run(console: Console) -> None:
    """Measure and print."""
    states = distinct_states()
    for nodes in CLUSTERS:
        with server() as port:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            documents = [report_of(state) for state in states]
            names = load(
                connection, ((name, documents[i % STATES]) for i, name in enumerate(node_names(nodes))), console
            )
            console.print(_measure(connection, names, states))


def distinct_states() -> list[SampleNode]:
    """Nodes of one shape, each with other pods: 300 states that answer differently."""
    found: dict[object, SampleNode] = {}
    for seed in itertools.count():
        random_ = random.Random(seed)
        workloads = [
            Workload(name=f"w{i}", resources={"cpu": random_.randint(1, 10), "memory": f"{random_.randint(1, 16)}Gi"})
            for i in range(random_.randint(1, 16))
        ]
        node = sample(hardware=HARDWARE, workloads=workloads)
        found.setdefault(node.state.key, node)
        if len(found) == STATES:
            return list(found.values())
    raise AssertionError


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
    console.print(f"{len(names)} reports of {len(body)} bytes taken in: {seconds / len(names) * 1000:.2f} ms each")
    random.Random(1).shuffle(names)
    return names


def call(connection: http.client.HTTPConnection, method: str, path: str, body: bytes) -> bytes:
    connection.request(method, path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    reply = response.read()
    if response.status != 200:
        raise RuntimeError(reply.decode())
    return reply


Pods = Iterator[dict[str, object]]


def _measure(connection: http.client.HTTPConnection, names: list[str], states: list[SampleNode]) -> Table:
    shuffled = random.Random(1).shuffle
    changing = names[0]
    reports = _reports(changing, states)

    def change() -> None:
        call(connection, "PUT", f"/v1/nodes/{changing}/report", next(reports))

    def timed(path: str, pods: Pods, calls: int, before: Callable[[], None] = lambda: None) -> list[float]:
        millis: list[float] = []
        for i, pod in enumerate(itertools.islice(pods, WARM_UP_CALLS + calls)):
            if i == WARM_UP_CALLS:
                millis.clear()
            before()
            shuffled(names)
            body = orjson.dumps(args_of(pod, *names))
            started = time.perf_counter()
            call(connection, "POST", path, body)
            millis.append((time.perf_counter() - started) * 1000)
        return sorted(millis)

    def passing(cpus: int) -> int:
        body = orjson.dumps(args_of(pod_of(cpus, "16Gi"), *names))
        return len(orjson.loads(call(connection, "POST", "/scheduler/filter", body))["NodeNames"])

    small, large = passing(SMALL), passing(LARGE)
    new = _new_shapes()
    rows = {
        "echo": timed("/echo", _equal_pods(SMALL), REPEATED_CALLS),
        "filter, first": timed("/scheduler/filter", new, FIRST_CALLS),
        f"filter, repeated, {small} pass": timed("/scheduler/filter", _equal_pods(SMALL), REPEATED_CALLS),
        f"filter, repeated, {large} pass": timed("/scheduler/filter", _equal_pods(LARGE), REPEATED_CALLS),
        "filter, repeated, a node changed": timed("/scheduler/filter", _equal_pods(SMALL), REPEATED_CALLS, change),
        "filter, nothing to align": timed("/scheduler/filter", _unaligned(), REPEATED_CALLS),
        "prioritize, first": timed("/scheduler/prioritize", new, FIRST_CALLS),
        "prioritize, repeated": timed("/scheduler/prioritize", _equal_pods(SMALL), REPEATED_CALLS),
    }
    table = Table(title=f"{len(names)} nodes in {STATES} states")
    for heading in ("request", "median ms", "p99 ms", "x echo"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    echo = statistics.median(rows["echo"])
    for what, millis in rows.items():
        median, p99 = statistics.median(millis), millis[int(len(millis) * 0.99)]
        table.add_row(what, f"{median:.2f}", f"{p99:.2f}", f"{median / echo:.2f}")
    return table


def _equal_pods(cpus: int) -> Pods:
    """Pods of one shape that differ in name and UID only."""
    return (pod_of(cpus, "16Gi", name=f"equal-{i}") for i in itertools.count())


def _reports(name: str, states: list[SampleNode]) -> Iterator[bytes]:
    """Reports of one node, each of another state."""
    for sequence in itertools.count(2):
        document = report_of(states[sequence % len(states)], sequence=sequence)
        yield orjson.dumps({**document, "node_name": name})


def _new_shapes() -> Pods:
    """Pods that were never asked for, each of another size."""
    return (pod_of(2 + i % 24, f"{1024 + i}Mi", name=f"new-{i}") for i in itertools.count())


def _unaligned() -> Pods:
    """Burstable pods: no manager has anything to align."""
    for i in itertools.count():
        pod = pod_of("500m", "1Gi", name=f"small-{i}")
        del pod["spec"]["containers"][0]["resources"]["limits"]
        pod["status"]["qosClass"] = "Burstable"
        yield pod
