"""Many people ask expensive questions and leave, while the scheduler goes on asking.

Twenty clients ask for the capacity of the whole cluster, again and again, and thirteen ask about a hypothetical node
whose replay would take for ever, and leave after two seconds. What must hold is in `Bounds`: the scheduler's calls are
answered as before, the service stays alive, the work ends when the clients have left, and the process ends when it
should.
"""

import http.client
import itertools
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from tests.faults.parts import Extender
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import until

TICKS: Final = os.sysconf("SC_CLK_TCK")
MIB: Final = 1 << 20
FILTER_SECONDS: Final = 1.5
CLIENTS: Final = 20
LEAVERS: Final = 13
HOSTILE: Final = Hardware(sockets=1, numa_per_socket=64, cores_per_numa=1, threads=1, memory_gib=1, distances=(10, 20))


def hostile_report() -> dict[str, Any]:
    """A node of 64 NUMA nodes with one CPU each, which the CPU manager spreads a pod over in all ways there are."""
    node = sample(
        "hostile",
        hardware=HOSTILE,
        cpuManagerPolicyOptions={"distribute-cpus-across-numa": "true"},
        topologyManagerPolicy="none",
        memoryManagerPolicy="None",
    )
    return report_of(node)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What fails the drill. The median and the tail may be so many times the idle ones, and so much in any case."""

    known_ratio: float = 3.0
    known_floor_ms: float = 20.0
    new_seconds: float = FILTER_SECONDS + 0.2
    alive_seconds: float = 1.0
    idle_again_seconds: float = 5.0
    end_seconds: float = 15.0
    rss_mib: int = 1536


@dataclass
class Story:
    """What was seen. Milliseconds of filter calls; seconds of the rest. `cores`: CPU used by all processes."""

    idle_p50_ms: float = 0.0
    idle_p99_ms: float = 0.0
    load_p50_ms: float = 0.0
    load_p99_ms: float = 0.0
    calls: int = 0
    wrong: int = 0
    new_calls: int = 0
    new_worst_seconds: float = 0.0
    alive_worst_seconds: float = 0.0
    idle_again_seconds: float = 0.0
    end_seconds: float = 0.0
    peak_rss_mib: int = 0
    left_over: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold; empty: the drill passed."""
        bounds = self.bounds
        known = max(bounds.known_floor_ms, bounds.known_ratio * self.idle_p99_ms)
        return [
            text
            for is_broken, text in (
                (not self.calls or not self.new_calls, "no call was made under load"),
                (self.wrong, f"{self.wrong} calls were answered wrongly or not at all"),
                (self.load_p99_ms > known, f"known shapes took {self.load_p99_ms:.0f} ms (p99), more than {known:.0f}"),
                (self.new_worst_seconds > bounds.new_seconds, f"a new shape took {self.new_worst_seconds:.2f} s"),
                (self.alive_worst_seconds > bounds.alive_seconds, f"/livez took {self.alive_worst_seconds:.2f} s"),
                (self.idle_again_seconds > bounds.idle_again_seconds, "the work went on after the clients had left"),
                (self.end_seconds > bounds.end_seconds, f"SIGTERM took {self.end_seconds:.1f} s"),
                (self.left_over, f"{self.left_over} processes were left over"),
                (self.peak_rss_mib > bounds.rss_mib, f"{self.peak_rss_mib} MiB of memory were used"),
            )
            if is_broken
        ]


def children_of(pid: int) -> list[int]:
    """The processes that *pid* started and that have not been collected."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def family_of(pid: int) -> list[int]:
    """The process, and all processes below it."""
    return [pid, *(each for child in children_of(pid) for each in family_of(child))]


def cpu_seconds(pids: list[int]) -> float:
    """CPU time that the processes have used, those of their children that ended included."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            fields_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields_[11:15]))
    return total / TICKS


def memory_mib(pids: list[int]) -> int:
    """Memory of the processes together; what they share counts once (PSS)."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total >> 10


class Scheduler:
    """Asks filter over one connection, as kube-scheduler does."""

    def __init__(self, connection: http.client.HTTPConnection, names: list[str]) -> None:
        self._connection, self._names = connection, names
        self._new = itertools.count()

    def known(self) -> tuple[float, bool]:
        """Seconds, and whether the answer was right, for a shape that was asked for before."""
        return self._ask(pod_of(2, "1Gi"))

    def new(self) -> tuple[float, bool]:
        """As `known`, for a shape that was never asked for."""
        return self._ask(pod_of(2, f"{1024 + next(self._new)}Mi"))

    def _ask(self, pod: dict[str, Any]) -> tuple[float, bool]:
        body = orjson.dumps(args_of(pod, *self._names))
        began = time.perf_counter()
        self._connection.request("POST", "/scheduler/filter", body, {"Content-Type": "application/json"})
        reply = orjson.loads(self._connection.getresponse().read())
        return time.perf_counter() - began, not reply["Error"] and len(reply["NodeNames"]) == len(self._names)


def _connected(port: int, seconds: float = 30) -> closing[http.client.HTTPConnection]:
    return closing(http.client.HTTPConnection("127.0.0.1", port, timeout=seconds))


def ask(port: int, path: str, question: object, patience_seconds: float) -> None:
    """Ask one question, and leave after so many seconds whatever has come."""
    with suppress(OSError), _connected(port, patience_seconds) as connection:
        connection.request("POST", path, orjson.dumps(question), {"Content-Type": "application/json"})
        connection.getresponse().read()


def be_crowd(port: int) -> None:
    """The program of the crowd: everybody asks again and again, until the process is ended."""

    def live(path: str, question: object, patience_seconds: float) -> None:
        while True:
            ask(port, path, question, patience_seconds)
            time.sleep(0.25)

    hostile = {"pod": pod_of(8, "1Mi"), "hypothetical": [{"report": hostile_report()}]}
    questions: list[tuple[str, object, float]] = [("/v1/what-if", hostile, 2.0)] * LEAVERS
    questions += [
        ("/v1/capacity", {"pods": [pod_of(1, f"{i + 1}Mi")], "max_copies": 10_000}, 60.0) for i in range(CLIENTS)
    ]
    threads = [threading.Thread(target=live, args=question, daemon=True) for question in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def crowd(port: int) -> Iterator[None]:
    """All of them in a process of their own, which is killed in the end: then all of them have left."""
    command = ["nice", sys.executable, "-m", "tests.faults.people", str(port)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        yield
    finally:
        process.kill()
        process.wait(30)


def play(
    directory: Path, *, nodes: int, states: int, seconds: float, bounds: Bounds | None = None, **settings: object
) -> Story:
    """The whole story on one extender; *seconds* for each of its two halves."""
    story = Story(bounds=bounds or Bounds())
    names = [f"node-{number:04}" for number in range(nodes)]
    kinds = [report_of(_busy(number)) for number in range(states)]
    with ExitStack() as stack:
        extender = stack.enter_context(Extender(directory / "extender.log", **settings))
        until(extender.is_ready, "the extender")
        connection = stack.enter_context(_connected(extender.port))
        for number, name in enumerate(names):
            body = orjson.dumps({**kinds[number % states], "node_name": name})
            connection.request("PUT", f"/v1/nodes/{name}/report", body)
            reply = connection.getresponse()
            reply.read()
            assert reply.status in (200, 204), reply.status
        scheduler = Scheduler(connection, names)
        scheduler.known()
        idle = _watch(story, extender, scheduler, seconds, is_load=False)
        story.idle_p50_ms, story.idle_p99_ms = _quantiles(idle)
        with crowd(extender.port):
            until(lambda: extender.metric('numa_extender_questions_now{state="working"}') > 0, "the first question")
            under_load = _watch(story, extender, scheduler, seconds, is_load=True)
        story.load_p50_ms, story.load_p99_ms = _quantiles(under_load)
        story.idle_again_seconds = _idle_again(extender)
        story.outcomes = _outcomes(extender)
        with crowd(extender.port):  # somebody is there when the process has to end
            until(lambda: extender.metric('numa_extender_questions_now{state="working"}') > 0, "a question")
            family = family_of(extender.pid)
            began = time.monotonic()
            extender.kill(signal.SIGTERM)
            story.end_seconds = time.monotonic() - began
            time.sleep(0.2)
            story.left_over = sum(Path(f"/proc/{pid}").exists() for pid in family)
    return story


def _busy(number: int) -> SampleNode:
    """A node with one pod, unlike the others."""
    chance = random.Random(number)
    return sample(
        "n", workloads=[Workload(name="w", resources={"cpu": chance.randint(1, 6), "memory": f"{number + 1}Mi"})]
    )


def _watch(story: Story, extender: Extender, scheduler: Scheduler, seconds: float, *, is_load: bool) -> list[float]:
    times: list[float] = []
    ends = time.monotonic() + seconds
    for turn in itertools.count():
        if time.monotonic() > ends and turn > 40:
            return times
        took, right = scheduler.known()
        times.append(took)
        story.wrong += not right
        if turn % 10 == 0:
            took, right = scheduler.new()
            story.wrong += not right
            began = time.monotonic()
            alive = extender.get("/livez")
            story.wrong += alive is None or alive.status_code != 200
            if is_load:
                story.new_calls += 1
                story.new_worst_seconds = max(story.new_worst_seconds, took)
                story.alive_worst_seconds = max(story.alive_worst_seconds, time.monotonic() - began)
                story.peak_rss_mib = max(story.peak_rss_mib, memory_mib(family_of(extender.pid)))
        story.calls += is_load
        time.sleep(0.01)
    raise AssertionError


def _idle_again(extender: Extender) -> float:
    """Seconds until all processes of the extender together use less than a tenth of a core."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        before = cpu_seconds(family_of(extender.pid))
        time.sleep(0.5)
        family = family_of(extender.pid)
        if len(family) <= 2 and cpu_seconds(family) - before < 0.05:
            break
    return time.monotonic() - began - 0.5


def _quantiles(times: list[float]) -> tuple[float, float]:
    ordered = sorted(times)
    return statistics.median(ordered) * 1000, ordered[int(len(ordered) * 0.99)] * 1000


def _outcomes(extender: Extender) -> dict[str, int]:
    """How the questions ended, by the service's own count."""
    reply = extender.get("/metrics")
    found: dict[str, int] = {}
    for line in reply.text.splitlines() if reply is not None else ():
        if line.startswith("numa_extender_questions_total{"):
            outcome, count = line.split('outcome="')[1].split('"} ')
            found[outcome] = found.get(outcome, 0) + int(float(count))
    return found


if __name__ == "__main__":
    be_crowd(int(sys.argv[1]))
