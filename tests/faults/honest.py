"""The honest half of a cluster under attack, in a process of its own: nodes that report, and a scheduler.

A scheduler's probe asks filter at fixed moments, whether or not the last call has been answered, so that a service that
stands still for a second is seen by all calls of that second. Beside it pods of several namespaces are created,
filtered, bound, admitted by the kubelets of their nodes, reported and deleted. The process measures; whoever attacks
runs elsewhere, and takes no time from it.
"""

import contextlib
import http.client
import itertools
import multiprocessing
import random
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final, Self

import orjson

from tests.reports import pod_of, sample
from tests.world.exporters import Exporters
from tests.world.kubelet import Kubelet
from tests.world.scheduler import Scheduler

JSON = dict[str, Any]
PROBE_SECONDS: Final = 0.04
ALIVE_SECONDS: Final = 0.1
PLACE_SECONDS: Final = 0.25
REPORT_SECONDS: Final = 0.5
CALL_SECONDS: Final = 20.0
SKIP_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 0.5
PROBE_PODS: Final = 504
"""The probe asks about as many pods in turn, as a scheduler does with pods that wait."""
KEPT_PODS: Final = 24
"""Pods that run at a time: half of what the nodes have room for."""
SHAPES: Final = ((1, "1Gi"), (2, "1Gi"), (3, "2Gi"), (4, "1Gi"))
NAMESPACES: Final = ("red", "green", "blue")
NODES: Final = tuple(f"node-{i}" for i in range(6))
CANARY: Final = "canary"
"""A node on which no honest pod is placed: what the extender knows of it shows whether it still hears of pods."""


def honest_pod(number: int, name: str = "") -> JSON:
    """The pods of one number are of one shape and namespace."""
    pod = pod_of(*SHAPES[number % len(SHAPES)], name=name or f"honest-{number}")
    pod["metadata"]["namespace"] = NAMESPACES[number % len(NAMESPACES)]
    return pod


@dataclass
class Window:
    """What honest callers saw for a while. `unanswered`: calls without a reply within `CALL_SECONDS`, or with an error.

    `refused`: probes for which no honest node was offered. `waiting`: pods that are not placed at its end.
    `stolen`: the part of the time for which the extender's main thread waited for a CPU.
    """

    seconds: float = 0.0
    milliseconds: list[float] = field(default_factory=list)
    alive_seconds: list[float] = field(default_factory=list)
    unanswered: int = 0
    refused: int = 0
    placed: int = 0
    waiting: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stolen: float = 0.0

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.milliseconds) if self.milliseconds else 0.0

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[int(len(ordered) * 0.99)] if ordered else float("inf")

    @property
    def alive_worst_seconds(self) -> float:
        return max(self.alive_seconds, default=float("inf"))


class Line:
    """One kept connection. A call without an answer ends it; the next one opens another."""

    def __init__(self, port: int, seconds: float = CALL_SECONDS) -> None:
        self._port, self._seconds = port, seconds
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def call(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Status and parsed reply; (0, None) without one."""
        for is_second in (False, True):
            is_new = self._connection is None
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._seconds)
            try:
                self._connection.request(method, path, body, {"Content-Type": "application/json"})
                reply = self._connection.getresponse()
                text = reply.read()
                return reply.status, orjson.loads(text) if text else None
            except (OSError, http.client.HTTPException, orjson.JSONDecodeError):
                self._connection.close()
                self._connection = None
                if is_new or is_second:  # a kept connection may have been closed while it was idle
                    break
        return 0, None

    def ask(self, verb: str, body: JSON) -> Any:  # noqa: ANN401
        """One of kube-scheduler's calls; None without an answer."""
        status, reply = self.call("POST", f"/scheduler/{verb}", orjson.dumps(body))
        return reply if status == 200 else None

    def filter(self, pod: JSON, names: Sequence[str]) -> tuple[str, list[str]] | None:
        """Error and nodes that are offered; None without an answer."""
        return Scheduler(self.ask).filter(pod, names)


class _Cluster:
    """The nodes' kubelets and exporters."""

    def __init__(self, port: int) -> None:
        self._line = Line(port)
        self._lock = threading.Lock()
        self._kubelets = {name: Kubelet.of(sample(name)) for name in (*NODES, CANARY)}
        self._exporters = Exporters()
        self._changed = dict.fromkeys(self._kubelets)
        self.wrong: list[str] = []

    def admit(self, name: str, pod: JSON) -> None:
        """The kubelet sees the pod."""
        with self._lock:
            verdict = self._kubelets[name].admit(pod)
            if not verdict["admit"]:
                self.wrong.append(f"{pod['metadata']['name']} was refused on {name}: {verdict['message']}")
            self._changed[name] = None

    def end(self, name: str, uid: str) -> None:
        """The pod is gone."""
        with self._lock:
            self._kubelets[name].end(uid)
            self._changed[name] = None

    def report(self) -> None:
        """Each node tells what is new, or that nothing is."""
        with self._lock:
            changed, self._changed = self._changed, {}
            for name in changed:
                self._exporters.change(self._kubelets[name].report())
        self._exporters.tell(lambda *call: self._line.call(*call)[0])


class _Honest:
    """All that runs in the process. *names*: the candidates of every call, honest or not."""

    def __init__(self, extender_port: int, api_port: int, names: Sequence[str]) -> None:
        self._port, self.names = extender_port, list(names)
        self._api = Line(api_port)
        self._cluster = _Cluster(extender_port)
        self._window = Window()
        self._began = time.monotonic()
        self._queue: deque[tuple[float, JSON]] = deque()
        self._running: deque[tuple[JSON, str]] = deque()
        self._numbers = itertools.count()
        self._chance = random.Random(1)
        self._due = 0.0
        self._stop = threading.Event()
        self._is_placing = True

    def serve(self, orders: Connection) -> None:
        """Work until the other side says so; each order is answered with a window, or with nothing."""
        scheduler = Line(self._port)
        loops: list[tuple[Callable[[], None], float]] = [
            (self._cluster.report, REPORT_SECONDS),
            (self._alive, ALIVE_SECONDS),
            (lambda: self._place(scheduler), PLACE_SECONDS),
        ]
        threads = [threading.Thread(target=self._repeat, args=loop, daemon=True) for loop in loops]
        threads.append(threading.Thread(target=self._probe, daemon=True))
        for thread in threads:
            thread.start()
        while (order := orders.recv()) != "stop":
            match order:
                case "begin":
                    self._window, self._began = Window(), time.monotonic()
                case "end":
                    orders.send(self._end())
                case "settle":
                    orders.send(self._settle())
                case ("names", names):
                    self.names = names
        self._stop.set()

    def _end(self) -> Window:
        """After every call that was due in the window has come back."""
        ended = time.monotonic()
        while self._due < ended and time.monotonic() < ended + CALL_SECONDS:
            time.sleep(0.01)
        window, self._window = self._window, Window()
        window.seconds = time.monotonic() - self._began
        window.waiting = [pod["metadata"]["name"] for _, pod in list(self._queue)]
        window.wrong = list(self._cluster.wrong)
        return window

    def _settle(self) -> list[str]:
        """No new pods come; the names of those that are still not placed after a while."""
        self._is_placing = False
        ends = time.monotonic() + 15
        while self._queue and time.monotonic() < ends:
            time.sleep(0.1)
        waiting = [pod["metadata"]["name"] for _, pod in list(self._queue)]
        self._is_placing = True
        return waiting

    def _repeat(self, work: Callable[[], None], seconds: float) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            work()
            due = max(due + seconds, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _alive(self) -> None:
        began, window = time.monotonic(), self._window
        with Line(self._port) as line:
            status, _ = line.call("GET", "/livez")
        window.alive_seconds.append(time.monotonic() - began if status == 200 else CALL_SECONDS)

    def _probe(self) -> None:
        """The time of a call counts from when it was due. One that is more than `SKIP_SECONDS` late is not made."""
        line = Line(self._port)
        self._due = time.monotonic()
        for number in itertools.cycle(range(PROBE_PODS)):
            if self._stop.is_set():
                return
            if time.monotonic() - self._due < SKIP_SECONDS:
                answer = line.filter(honest_pod(number, f"probe-{number}"), self.names)
                if self._due >= self._began:
                    self._window.unanswered += answer is None or bool(answer[0])
                    self._window.refused += answer is not None and not set(answer[1]) & set(NODES)
            if self._due >= self._began:
                self._window.milliseconds.append((time.monotonic() - self._due) * 1000)
            self._due += PROBE_SECONDS
            if (late := time.monotonic() - self._due) < 0:
                time.sleep(-late)

    def _place(self, line: Line) -> None:
        """A new pod comes, and the pods that have waited for long enough are tried, a few at most."""
        if self._is_placing and len(self._queue) < KEPT_PODS:
            pod = honest_pod(next(self._numbers))
            del pod["metadata"]["uid"]
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
            status, created = self._api.call("POST", path, orjson.dumps(pod))
            if status == 201:
                self._queue.append((0.0, created))
        for _ in range(4):
            if not self._queue or self._queue[0][0] > time.monotonic():
                break
            _, pod = self._queue.popleft()
            node = self._schedule(line, pod)
            if node:
                self._window.placed += 1
                self._cluster.admit(node, pod)
                self._running.append((pod, node))
            else:
                self._queue.append((time.monotonic() + RETRY_SECONDS, pod))
        while len(self._running) > KEPT_PODS:
            pod, node = self._running.popleft()
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}?gracePeriodSeconds=0"
            self._api.call("DELETE", path)
            self._cluster.end(node, meta["uid"])

    def _schedule(self, line: Line, pod: JSON) -> str:
        """The node that the pod is bound to; "" for none."""
        answer = line.filter(pod, self.names)
        offered = [name for name in answer[1] if name in NODES] if answer else []
        if not offered:
            return ""
        node = self._chance.choice(offered)
        error = Scheduler(line.ask).bind(pod, node)
        if error == "":
            return node
        meta = pod["metadata"]
        _, found = self._api.call("GET", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")
        return str((found or {}).get("spec", {}).get("nodeName", ""))  # the reply may have been lost


def _be_honest(extender_port: int, api_port: int, names: list[str], orders: Connection) -> None:
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        _Honest(extender_port, api_port, names).serve(orders)


class Honest:
    """The handle of the process."""

    def __init__(self, orders: Connection) -> None:
        self._orders = orders

    def begin(self) -> None:
        """A window begins."""
        self._orders.send("begin")

    def end(self) -> Window:
        """What was seen since then."""
        self._orders.send("end")
        window: Window = self._orders.recv()
        return window

    def settle(self) -> list[str]:
        """The pods that are not placed although nothing new comes for some seconds."""
        self._orders.send("settle")
        waiting: list[str] = self._orders.recv()
        return waiting

    def candidates(self, names: Sequence[str]) -> None:
        """The nodes that the scheduler shows from now on."""
        self._orders.send(("names", list(names)))


@contextmanager
def honest_half(extender_port: int, api_port: int, names: Sequence[str]) -> Iterator[Honest]:
    """The process, while the context lasts."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_be_honest, args=(extender_port, api_port, list(names), theirs), daemon=True)
    process.start()
    try:
        yield Honest(ours)
    finally:
        with contextlib.suppress(OSError):
            ours.send("stop")
        process.join(CALL_SECONDS + 5)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()
        ours.close()
        theirs.close()
