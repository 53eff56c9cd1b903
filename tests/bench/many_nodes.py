"""How the work of one process grows with the number of nodes: each call's CPU time, and memory, up to 65,536 nodes.

    python -m tests.bench.many_nodes [--nodes 1000 --nodes 5000 …] [--states own|shared] [--profile]

The service runs in this process without a socket, so that a cluster of 65,536 nodes takes a few minutes, and other work
on the machine changes CPU times little. `tests.bench.filter_http` has the same calls over HTTP. Every size is measured
when so many nodes have reported. `echo` parses the body of a filter call and writes all names back. `first`: a pod
shape that was never seen, of CPUs alone, with memory, with a second container, and larger than most nodes have room
for. `in doubt`: on every tenth node two pods are being deleted. `all stale`: the pod watch has become silent.
`under reports`: 6,500 reports a minute arrive, each with another state; 10 come before each of 10 calls a second, and
the call waits for the longest step of one more. An `echo` under reports does the same. `worst`: of 40 calls.
"""

import asyncio
import cProfile
import itertools
import pstats
import random
import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import click
import orjson
from fastapi import Request
from rich.console import Console
from rich.table import Table

from extender.api.reports import ReportEndpoints
from extender.api.scheduler import SchedulerEndpoints
from extender.app import make_app, make_service, set_up_collector
from extender.cluster.events import PodTerminating, Watching
from extender.cluster.store import CATCH_UP
from extender.config.settings import Settings
from extender.identity import EVERYTHING
from tests.bench.filter_http import node_names
from tests.bench.states import full_report_of, own_states, shared_states
from tests.reports import args_of, pod_of

SIZES = (1000, 5000, 20_000, 65_536)
KINDS = ("shared", "own")
CALLS = 8
WORST_OF = 40
REPORTS_BETWEEN = 10
Rows = dict[str, float]
"""CPU milliseconds of a call, or KiB."""


class Cluster:
    """A service with nodes."""

    def __init__(self, nodes: Iterator[Any], strategy: str = "least-numa") -> None:
        self.service = make_service(
            Settings(
                strategy=strategy,
                max_nodes=100_000,
                max_remembered_judgements=4_000_000,
                loopback_scopes=EVERYTHING,
                filter_seconds=600,
                stale_after_seconds=1e6,  # nodes report one after another, for minutes
            ),
            offload=_at_once,
        )
        self.reports = ReportEndpoints(self.service)
        self.calls = SchedulerEndpoints(
            self.service.scheduling,
            self.service.metrics,
            self.service.clock,
            self.service.lifecycle,
            (1 << 30, 1 << 20),
        )
        self.app = make_app(self.service)
        self.names: list[str] = []
        self.seconds = 0.0
        self.shuffled = random.Random(1).shuffle
        self.numbers = itertools.count()
        self.nodes = nodes
        self.sequences = itertools.count(1)

    async def grow(self, names: list[str]) -> Rows:
        """More nodes report: CPU milliseconds of a report, and KiB of memory a node."""
        began, milliseconds = _rss_kib(), 0.0
        for name in names:
            milliseconds += sum(self.report(name))
            self.names.append(name)
        return {
            "a report": milliseconds / len(names),
            "KiB a node": (_rss_kib() - began) / len(names),
        }

    def report(self, name: str) -> list[float]:
        """The node reports another state. CPU milliseconds of each step: between two of them other calls go on."""
        report = full_report_of(next(self.nodes), sequence=next(self.sequences))
        request = _request("PUT", f"/v1/nodes/{name}/report", orjson.dumps({**report, "node_name": name}))
        steps, work = [], self.reports.put_report(name, request)
        is_done = False
        while not is_done:
            started = time.process_time()
            try:
                work.send(None)
            except StopIteration:
                is_done = True
            steps.append((time.process_time() - started) * 1000)
        return steps

    async def measure(self) -> Rows:
        """CPU milliseconds of each call."""

        async def first(cpus: int, gib: int, second: int = 0) -> float:
            return await self.filtered(lambda: _new(next(self.numbers), cpus, gib, second))

        same = pod_of(8, "16Gi", name="same")
        rows = {
            "echo": await self.timed(self.echo, lambda: same),
            "filter, first, small": await first(2, 1),
            "filter, first, half a node": await first(24, 48),
            "filter, first, nearly a NUMA node": await first(48, 96),
            "filter, first, two containers": await first(4, 8, second=2),
            "filter, first, larger than a NUMA node": await first(80, 160),
            "filter, repeated": await self.filtered(lambda: same),
            "filter, repeated, most refused": await self.filtered(lambda: pod_of(48, "16Gi")),
            "filter, repeated, worst": max(await self.times(self.calls.filter_, lambda: same, WORST_OF)),
            "filter, repeated, worst under reports": await self.worst_under_reports(self.calls.filter_, same),
            "echo, worst": max(await self.times(self.echo, lambda: same, WORST_OF)),
            "echo, worst under reports": await self.worst_under_reports(self.echo, same),
            "prioritize, first": await self.timed(self.calls.prioritize, lambda: _new(next(self.numbers), 4, 8)),
            "prioritize, repeated": await self.timed(self.calls.prioritize, lambda: same),
            "page of 500 nodes": await self.read("/v1/nodes", f"limit=500&after={self.names[0]}"),
            "page of 5,000 nodes of the map": await self.read("/v1/map", "limit=5000"),
            "metrics": await self.read("/metrics", ""),
        }
        self.doubt()
        rows["filter, first, a tenth in doubt"] = await first(6, 8)
        rows["all nodes become stale"] = self.watch(Watching.SILENT)
        rows["filter, first, all stale"] = await first(6, 8)
        self.watch(Watching.NOT)
        return rows

    def watch(self, watching: Watching) -> float:
        """The pod watch becomes silent, or not, and all nodes show it. Returns the longest step in CPU milliseconds."""
        cluster, longest = self.service.known.nodes, 0.0
        cluster.set_watching(watching, self.service.clock())
        for _ in range(0, len(cluster) + CATCH_UP, CATCH_UP):
            started = time.process_time()
            cluster.expire(self.service.clock())
            cluster.classes_of(())
            longest = max(longest, time.process_time() - started)
        return longest * 1000

    async def worst_under_reports(self, endpoint: Callable[[Request], Awaitable[Any]], pod: Any) -> float:  # noqa: ANN401
        found = []
        for _ in range(WORST_OF):
            for name in random.sample(self.names, REPORTS_BETWEEN):
                self.report(name)
            waited = max(self.report(random.choice(self.names)))
            found.append(waited + (await self.times(endpoint, lambda: pod, 0))[0])
        return max(found)

    def doubt(self) -> None:
        """On every tenth node two pods are being deleted."""
        cluster, now = self.service.known.nodes, self.service.clock()
        for name in self.names[::10]:
            record = cluster.get(name)
            if record is None or record.state is None:
                continue
            for uid in sorted(record.state.pod_uids)[:2]:
                cluster.apply(PodTerminating(name, uid), now=now)
        cluster.classes_of(())

    async def filtered(self, pod: Callable[[], Any]) -> float:
        return await self.timed(self.calls.filter_, pod)

    async def timed(self, endpoint: Callable[[Request], Awaitable[Any]], pod: Callable[[], Any]) -> float:
        """The median of some calls; the first one is left out."""
        return statistics.median((await self.times(endpoint, pod, CALLS))[1:])

    async def times(
        self, endpoint: Callable[[Request], Awaitable[Any]], pod: Callable[[], Any], more: int
    ) -> list[float]:
        """CPU milliseconds of one call and *more*, with the names in another order each time."""
        found = []
        for _ in range(more + 1):
            self.shuffled(self.names)
            request = _request("POST", "/", orjson.dumps(args_of(pod(), *self.names)))
            started = time.process_time()
            response = await endpoint(request)
            found.append((time.process_time() - started) * 1000)
            assert b'"Error":"numa' not in response.body
        return found

    async def echo(self, request: Request) -> Any:  # noqa: ANN401
        document = orjson.loads(await request.body())
        reply = {"Nodes": None, "NodeNames": document["NodeNames"], "FailedNodes": {}, "Error": ""}
        return _Reply(orjson.dumps(reply))

    async def read(self, path: str, query: str) -> float:
        """A page, through the whole application."""
        found = []
        for _ in range(3):
            request = _request("GET", path, b"", query)
            started = time.process_time()
            await self.app(request.scope, request.receive, _sent)
            found.append((time.process_time() - started) * 1000)
        return statistics.median(found)


class _Reply:
    def __init__(self, body: bytes) -> None:
        self.body = body


async def _at_once(work: Callable[..., Any], /, *args: Any) -> Any:  # noqa: ANN401
    return work(*args)


async def _sent(_message: Any) -> None:  # noqa: ANN401
    pass


def _request(method: str, path: str, body: bytes, query: str = "") -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {
        "type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "headers": headers, "state": {},
        "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 80), "root_path": "",
    }  # fmt: skip
    return Request(scope, receive, _sent)


def _new(number: int, cpus: int, gib: int, second: int = 0) -> dict[str, Any]:
    """A pod of about that size that was never asked for."""
    pod = pod_of(cpus, f"{gib * 1024 + number}Mi", name=f"new-{number}")
    if second:
        other = pod_of(second, f"{1024 + number}Mi")["spec"]["containers"][0]
        pod["spec"]["containers"].append({**other, "name": "other"})
    return pod


def _rss_kib() -> int:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0])


def run(console: Console) -> None:
    """Measure two sizes of both kinds."""
    asyncio.run(measure((1000, 5000), KINDS, console))


async def measure(sizes: tuple[int, ...], kinds: tuple[str, ...], console: Console) -> None:
    """Measure clusters that grow, and print how each row grows, with kinds of states side by side."""
    found: dict[tuple[int, str], Rows] = {}
    for kind in kinds:
        cluster = Cluster(own_states() if kind == "own" else itertools.cycle(shared_states()))
        names = iter(random.Random(2).sample(node_names(max(sizes)), max(sizes)))
        for size in sorted(sizes):
            rows = await cluster.grow(list(itertools.islice(names, size - len(cluster.names))))
            found[size, kind] = rows | await cluster.measure()
            console.print(f"{size:,} nodes, {kind} states: {found[size, kind]}")
        console.print(f"peak memory until now: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
    table = Table(title="CPU ms of a call, and times an echo's")
    table.add_column("request")
    columns = sorted(found)
    for size, kind in columns:
        table.add_column(f"{size:,} {kind}", justify="right")
    for what in found[columns[0]]:
        table.add_row(
            what, *(f"{found[each][what]:.2f} ({found[each][what] / found[each]['echo']:.1f})" for each in columns)
        )
    console.print(table)


@click.command()
@click.option("--nodes", multiple=True, type=click.IntRange(10), default=SIZES, show_default=True)
@click.option("--states", type=click.Choice([*KINDS, "both"]), default="own", show_default=True)
@click.option("--profile", is_flag=True, help="Print the top ten of a profile of everything.")
def main(nodes: tuple[int, ...], states: str, *, profile: bool) -> None:
    """How each row grows with the number of nodes."""
    set_up_collector()
    console, kinds = Console(width=170), KINDS if states == "both" else (states,)
    if not profile:
        asyncio.run(measure(nodes, kinds, console))
        return
    found = cProfile.Profile(time.process_time)
    found.runcall(asyncio.run, measure(nodes, kinds, console))
    pstats.Stats(found).sort_stats("tottime").print_stats(10)


if __name__ == "__main__":
    main()
