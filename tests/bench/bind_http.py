"""The bind verb over HTTP, next to an echo: three processes, the API server a fake one on loopback.

There are 5,000 nodes with some pods, then 40 nodes of 50 pods. `bind` is our call, the API server's binding in it;
`binding alone` is the same write without us. `filter after a bind`: the next pod of the same shape, when one node is of
a new class. No node reports meanwhile, so bound pods stay in flight: up to ten on each of the 40 nodes.
"""

import http.client
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from rich.console import Console
from rich.progress import track
from rich.table import Table

from extender.samples.nodes import Workload
from tests.bench.filter_http import SERVER_START_SECONDS, call, load, node_names, server
from tests.bench.states import HARDWARE, SHARED_STATES, shared_states
from tests.contract.live import kubeconfig
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.scheduler import binding_of

NODES = 5000
FULL_NODES, FULL_PODS = 40, 50
CALLS = 200
WARM_UP_CALLS = 20
CPUS = 2


def run(console: Console) -> None:
    """Measure and print."""
    states = shared_states()
    shared = (states[i % SHARED_STATES].description.workloads for i in range(NODES))
    _run(console, NODES, shared)
    dice = random.Random(1)
    _run(console, FULL_NODES, (_many_pods(dice) for _ in range(FULL_NODES)))


def _many_pods(dice: random.Random) -> list[Workload]:
    return [
        Workload(name=f"w{i}", resources={"cpu": dice.randint(1, 2), "memory": f"{dice.randint(1, 4)}Gi"})
        for i in range(FULL_PODS)
    ]


def _run(console: Console, count: int, workloads: Iterable[Sequence[Workload]]) -> None:
    """Measure a cluster of *count* nodes; *workloads*: of each node."""
    with tempfile.TemporaryDirectory() as directory, _api_server() as api:
        kubernetes = http.client.HTTPConnection(urlsplit(api).netloc)
        nodes = [
            sample(name, hardware=HARDWARE, workloads=list(each))
            for name, each in zip(node_names(count), workloads, strict=True)
        ]
        for node in track(nodes, "nodes and pods into the API server", console=console, transient=True):
            _send(kubernetes, "POST", "/api/v1/nodes", {"metadata": {"name": node.name}})
            for number, pod in enumerate(node.pods):
                _send(kubernetes, "POST", "/api/v1/namespaces/demo/pods", _running(node.name, number, pod))
        os.environ["NUMA_EXTENDER_KUBECONFIG"] = str(kubeconfig(Path(directory), api))
        try:
            with server() as port:
                connection = http.client.HTTPConnection("127.0.0.1", port)
                _wait_ready(connection)
                names = load(connection, ((node.name, report_of(node)) for node in nodes), console)
                console.print(_measure(connection, kubernetes, names))
        finally:
            del os.environ["NUMA_EXTENDER_KUBECONFIG"]


@contextmanager
def _api_server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.fakes.apiserver"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _wait_ready(connection: http.client.HTTPConnection) -> None:
    deadline = time.monotonic() + SERVER_START_SECONDS
    while True:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        response.read()
        if response.status == 200:
            return
        if time.monotonic() > deadline:
            raise RuntimeError("the extender is not ready")
        time.sleep(0.05)


def _send(connection: http.client.HTTPConnection, method: str, path: str, document: object) -> None:
    connection.request(method, path, orjson.dumps(document), {"Content-Type": "application/json"})
    response = connection.getresponse()
    said = response.read()
    if response.status >= 300:
        raise RuntimeError(said.decode())


def _measure(connection: http.client.HTTPConnection, kubernetes: http.client.HTTPConnection, names: list[str]) -> Table:
    dice = random.Random(1)
    rows: dict[str, list[float]] = {"echo": [], "binding alone": [], "bind": [], "filter after a bind": []}

    def timed(row: str, work: Callable[[], bytes | None]) -> bytes | None:
        started = time.perf_counter()
        reply = work()
        rows[row].append((time.perf_counter() - started) * 1000)
        return reply

    for i in range(CALLS + WARM_UP_CALLS):
        if i == WARM_UP_CALLS:
            rows = {row: [] for row in rows}
        ours, alone = _pod(f"ours-{i}"), _pod(f"alone-{i}")
        for pod in (ours, alone):
            _send(kubernetes, "POST", "/api/v1/namespaces/default/pods", pod)
        body = orjson.dumps(args_of(ours, *names))
        timed("echo", lambda body=body: call(connection, "POST", "/echo", body))  # type: ignore[misc]
        reply = timed("filter after a bind", lambda body=body: call(connection, "POST", "/scheduler/filter", body))  # type: ignore[misc]
        assert reply is not None
        node = dice.choice(orjson.loads(reply)["NodeNames"])
        bind = _bind_body(ours, node)
        reply = timed("bind", lambda bind=bind: call(connection, "POST", "/scheduler/bind", bind))  # type: ignore[misc]
        assert reply == b'{"Error":""}', reply
        binding = {"metadata": {"name": f"alone-{i}"}, "target": {"name": node}}
        path = f"/api/v1/namespaces/default/pods/alone-{i}/binding"
        timed("binding alone", lambda binding=binding, path=path: _send(kubernetes, "POST", path, binding))  # type: ignore[misc]
    return _table(rows, len(names))


def _pod(name: str) -> dict[str, Any]:
    return pod_of(CPUS, "1Gi", name=name)


def _running(node_name: str, number: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    """The sample node's pod, as the API server holds it."""
    metadata = {**pod["metadata"], "name": f"{node_name}-{number}"}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node_name}}


def _bind_body(pod: dict[str, Any], node: str) -> bytes:
    return orjson.dumps(binding_of(pod, node))


def _table(rows: dict[str, list[float]], nodes: int) -> Table:
    table = Table(title=f"bind, {nodes} nodes")
    for heading in ("request", "median ms", "p99 ms"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    for what, millis in rows.items():
        millis.sort()
        table.add_row(what, f"{statistics.median(millis):.2f}", f"{millis[int(len(millis) * 0.99)]:.2f}")
    return table


if __name__ == "__main__":
    run(Console(width=110))
