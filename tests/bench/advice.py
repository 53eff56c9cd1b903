"""Tune and defragment over a large cluster: wall and processor time, and what filter's p99 is beside them.

Every node is in a state of its own: 128 CPUs, 2 NUMA nodes, 256 GiB, about 10 pods. Everything is measured over HTTP
with the default settings, from the question to the last line of its reply. Processor time is that of all processes of
the extender. Filter gets equal pods with the names of all nodes; the ratio is to its p99 without a question.
"""

import http.client
import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from rich.console import Console
from rich.table import Table

from tests.bench.filter_http import call, load, node_names, served
from tests.bench.states import own_states
from tests.reports import args_of, pod_of, report_of

CLUSTERS = (200, 5000)
QUESTIONS: dict[str, dict[str, Any]] = {
    "tune": {"configurations": 32},
    "defragment": {"pod": pod_of(24, "32Gi"), "max_moves": 10},
}
IDLE_CALLS = 200
TIMEOUT_SECONDS = 120
_TICKS = os.sysconf("SC_CLK_TCK")


class _Answer(NamedTuple):
    """The last line of a reply; what came before it, and when it was done."""

    last: dict[str, Any]
    progress: int
    wall: float
    cpu: float


def run(console: Console) -> None:
    """Measure and print."""
    table = Table(title="advice over nodes in states of their own")
    for column in ("question", "nodes", "wall", "CPU", "progress lines", "filter p99", "beside it", "ratio", "answer"):
        table.add_column(column, justify="left" if column in ("question", "answer") else "right")
    for count in CLUSTERS:
        with served("tests.bench.server") as (port, pid):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
            states = zip(node_names(count), own_states(), strict=False)
            names = load(connection, ((name, report_of(node)) for name, node in states), console)
            idle = _filter(port, names, _calls(IDLE_CALLS))
            for name, question in QUESTIONS.items():
                answers: list[_Answer] = []
                asked = threading.Thread(target=lambda: answers.append(_ask(port, pid, name, question)))  # noqa: B023
                asked.start()
                beside = _filter(port, names, asked.is_alive)
                asked.join()
                (found,) = answers
                shown = (f"{each:.1f} s" for each in (found.wall, found.cpu))
                millis = (f"{each:.1f} ms" for each in (idle, beside))
                ratio = f"{beside / idle:.1f}"
                table.add_row(name, f"{count:,}", *shown, str(found.progress), *millis, ratio, _summary(found.last))
    console.print(table)


def _calls(count: int) -> Callable[[], bool]:
    left = itertools.count(count, -1)
    return lambda: next(left) > 0


def _filter(port: int, names: Sequence[str], goes_on: Callable[[], bool]) -> float:
    """The p99 of filter in milliseconds, while *goes_on*; at least one call."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    millis: list[float] = []
    while not millis or goes_on():
        body = orjson.dumps(args_of(pod_of(8, "16Gi", name=f"equal-{len(millis)}"), *names))
        started = time.perf_counter()
        call(connection, "POST", "/scheduler/filter", body)
        millis.append((time.perf_counter() - started) * 1000)
        time.sleep(0.01)
    connection.close()
    return sorted(millis)[int(len(millis) * 0.99)]


def _ask(port: int, pid: int, name: str, question: dict[str, Any]) -> _Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
    wall, cpu = time.perf_counter(), _cpu_seconds(pid)
    connection.request("POST", f"/v1/advice/{name}", orjson.dumps(question), headers)
    lines = [orjson.loads(line) for line in connection.getresponse()]
    return _Answer(lines[-1], len(lines) - 1, time.perf_counter() - wall, _cpu_seconds(pid) - cpu)


def _cpu_seconds(pid: int) -> float:
    """Processor time of a process and of all below it."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        ticks[int(path.parent.name)] = sum(map(int, fields[11:15]))
    family = {pid}
    while below := {child for child, parent in parents.items() if parent in family} - family:
        family |= below
    return sum(ticks.get(each, 0) for each in family) / _TICKS


def _summary(last: dict[str, Any]) -> str:
    if "configurations" in last:
        return f"{last['pods']} pods on {last['nodes']} nodes, {last['tried']} configurations"
    if "curve" in last:
        end = last["curve"][-1]
        return f"{end['moves']} moves, {end['copies'] - last['curve'][0]['copies']} more copies"
    return str(last)[:60]


if __name__ == "__main__":
    run(Console(width=140))
