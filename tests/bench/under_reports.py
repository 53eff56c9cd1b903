"""How much longer filter calls take over HTTP while nodes report: `python -m tests.bench.under_reports [--nodes 1000]`.

Server, caller and reporter are three processes. Each node has a state of its own, and 6,500 reports a minute each say
another one. Quiet and busy rounds take turns, so that other work on the machine meets both. `sampled`: as many names as
kube-scheduler finds feasible by default, others in each call. The echo parses the body and sends all names back: it
shows what a report costs any call.
"""

import gc
import http.client
import itertools
import os
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext

import click
import orjson
from rich.console import Console
from rich.table import Table

from tests.bench.filter_http import call, cpu_ms, load, node_names, reporting, sampled, served
from tests.bench.states import full_report_of, own_states
from tests.reports import args_of, pod_of

ROUNDS = 4
CPU_SECONDS = 4
"""How long the server is only sent reports."""


def measure(nodes: int, calls: int, console: Console) -> None:
    """Measure a cluster of *nodes* and print."""
    os.environ.setdefault("NUMA_EXTENDER_MAX_NODES", "100000")
    os.environ.setdefault("NUMA_EXTENDER_MAX_REMEMBERED_JUDGEMENTS", "4000000")
    states, sample = own_states(), sampled(nodes)
    with served("tests.bench.server") as (port, pid):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        reports = ((name, full_report_of(state)) for name, state in zip(node_names(nodes), states, strict=False))
        names, later = load(connection, reports, console), list(itertools.islice(states, 1000))
        table = Table(title=f"{nodes:,} nodes, each in its own state: milliseconds of a call")
        for heading in ("request", "p50", "p99", "longest", "busy p50", "busy p99", "busy longest", "p99 times"):
            table.add_column(heading, justify="left" if heading == "request" else "right")
        for what, path, count, share in (
            ("echo, sampled names", "/echo", sample, 1),
            ("filter, sampled names", "/scheduler/filter", sample, 1),
            ("filter, all names", "/scheduler/filter", nodes, 1 + nodes // 5000),
        ):
            found: dict[bool, list[float]] = {False: [], True: []}
            timed(connection, path, names, count, calls // share // 2)
            for _, busy in itertools.product(range(ROUNDS), (False, True)):
                with reporting(port, names, later) if busy else nullcontext():
                    found[busy] += timed(connection, path, names, count, calls // share // ROUNDS)
            quiet, busy_ms = summary(found[False]), summary(found[True])
            table.add_row(what, *(f"{ms:.2f}" for ms in (*quiet, *busy_ms)), f"{busy_ms[1] / quiet[1]:.2f}")
        console.print(table)
        accepted = reports_accepted(connection)
        with reporting(port, names, later):
            before, started = cpu_ms(pid), time.monotonic()
            time.sleep(CPU_SECONDS)
            spent, seconds = cpu_ms(pid) - before, time.monotonic() - started
        taken = reports_accepted(connection) - accepted
        console.print(f"{taken / seconds:.0f} reports a second, {spent / taken:.2f} ms of the server's CPU time each")


def timed(connection: http.client.HTTPConnection, path: str, names: list[str], count: int, calls: int) -> list[float]:
    """Milliseconds of each call."""
    found = []
    for number in range(calls):
        body = orjson.dumps(args_of(pod_of(8, "16Gi", name=f"equal-{number}"), *random.sample(names, count)))
        started = time.perf_counter()
        call(connection, "POST", path, body)
        found.append((time.perf_counter() - started) * 1000)
    return found


def summary(milliseconds: Sequence[float]) -> tuple[float, float, float]:
    """The median, the 99th percentile and the longest."""
    return statistics.median(milliseconds), statistics.quantiles(milliseconds, n=100)[98], max(milliseconds)


def reports_accepted(connection: http.client.HTTPConnection) -> float:
    """How many reports the server has accepted."""
    lines = call(connection, "GET", "/metrics", b"").decode().splitlines()
    return sum(float(each.split()[-1]) for each in lines if "reports_total" in each and 'accepted"' in each)


@click.command()
@click.option("--nodes", multiple=True, type=click.IntRange(100), default=(1000, 20_000), show_default=True)
@click.option("--calls", default=2000, show_default=True, help="Quiet ones of a row, and as many busy ones.")
def main(nodes: Sequence[int], calls: int) -> None:
    """Measure and print."""
    console = Console(width=120)
    gc.disable()  # pauses of the caller are none of the server
    for count in nodes:
        measure(count, calls, console)


if __name__ == "__main__":
    main()
