"""Slow, half-closed and hostile clients by the thousand, on loopback, while a scheduler goes on asking.

What must hold: every call of the scheduler is answered, and the memory that the storm took is bounded and the storm's
alone. A storm here is not limited in rate by who it is (loopback is not); what holds it are the bounds on time, bodies,
heads and connections.
"""

import contextlib
import gzip
import multiprocessing
import os
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.synchronize import Event
from pathlib import Path

import orjson

from tests.faults.parts import Extender, Reporter
from tests.faults.takeover import knows
from tests.ports import reserve_port
from tests.reports import args_of, pod_of, sample
from tests.security.running import make_files
from tests.waiting import until

HEAD = b"POST /scheduler/filter HTTP/1.1\r\nHost: 127.0.0.1\r\n"
MIB = 1 << 20
MAX_RSS = 512 * MIB
_FORK = multiprocessing.get_context("fork")
MIN_P99_MS, MAX_P99_RATIO = 150.0, 3.0
"""Of the scheduler's calls during a storm, beside those without one; up to the first no ratio is too high."""


@cache
def bomb() -> bytes:
    """Few bytes that become 64 MiB; half a second of work."""
    return gzip.compress(b'{"schema_version":1,"node_name":"' + b"a" * 64 * MIB, compresslevel=4)


@dataclass
class Storm:
    """What one kind of client did. Milliseconds are of the scheduler's calls meanwhile; bytes of resident memory."""

    name: str
    clients: int = 0
    calls: int = 0
    unanswered: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    before: int = 0
    peak: int = 0
    after: int = 0


@dataclass
class Drill:
    """One extender under storms, and the ports it listens on."""

    extender: Extender
    tls_port: int
    storms: list[Storm] = field(default_factory=list)
    at_least: int = 20
    """Calls of the scheduler during each storm."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def run(self, name: str, client: Callable[[], None], *, clients: int, threads: int = 20) -> Storm:
        """*clients* of one kind, so many at a time, and more of them until there were enough calls of the scheduler.

        The clients are in a process of their own with the lowest priority: a client elsewhere takes no CPU time from
        the extender, or from the scheduler.
        """
        storm = Storm(name, clients, before=self.extender.note_memory())
        enough = _FORK.Event()
        attacker = _FORK.Process(target=_attack, args=(client, clients, threads, enough), daemon=True)
        attacker.start()
        times: list[float] = []
        while attacker.is_alive() or not times:
            times.append(self._ask(storm))
            if len(times) >= self.at_least:
                enough.set()
        storm.p50_ms = statistics.median(times) * 1000
        storm.p99_ms = sorted(times)[int(len(times) * 0.99)] * 1000
        storm.after = self.extender.note_memory()
        self.storms.append(storm)
        return storm

    def _ask(self, storm: Storm) -> float:
        """One call of filter; how many seconds it took."""
        began = time.perf_counter()
        answer = self.extender.post("/scheduler/filter", args_of(pod_of(2), "node-0", "node-1"))
        seconds = time.perf_counter() - began
        storm.unanswered += answer is None or answer["NodeNames"] != ["node-0", "node-1"]
        storm.calls += 1
        storm.peak = max(storm.peak, self.extender.note_memory())
        time.sleep(0.01)
        return seconds

    # The kinds of clients.

    def stops_in_the_head(self) -> None:
        self._send(HEAD + b"X-A: " + b"a" * self.chance.randrange(2000))

    def stops_in_the_body(self) -> None:
        head = b"POST /v1/what-if HTTP/1.1\r\nHost: x\r\n"
        self._send(head + b"Content-Length: 8000000\r\n\r\n" + b" " * MIB)

    def drips_its_body(self) -> None:
        """A byte at a time, until it is closed."""
        with socket.create_connection(("127.0.0.1", self.extender.port), timeout=10) as connection:
            connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
            for _ in range(100):
                connection.sendall(b" ")
                time.sleep(0.05)

    def half_closes(self) -> None:
        self._send(HEAD + b"Content-Length: 2\r\n\r\n{", half_close=True)

    def never_ends_its_head(self) -> None:
        self._send(HEAD + b"X-A: a\r\n" * 40_000)

    def starts_a_handshake(self) -> None:
        self._send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 20, port=self.tls_port)

    def talks_nonsense(self) -> None:
        self._send(
            self.chance.randbytes(self.chance.choice((1, 100, 5000))), port=self.chance.choice((0, self.tls_port))
        )

    def sends_a_bomb(self) -> None:
        head = b"PUT /v1/nodes/node-0/report HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
        self._send(head + b"Content-Length: %d\r\n\r\n" % len(bomb()) + bomb(), wait_seconds=5)

    def shows_a_bad_token(self) -> None:
        token = b"%d" % self.chance.randrange(10**9)
        self._send(
            b"GET /v1/nodes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\nConnection: close\r\n\r\n",
            wait_seconds=5,
        )

    def asks_for_a_large_answer_and_reads_none_of_it(self) -> None:
        body = orjson.dumps(args_of(pod_of(2), *(f"n{i:0100d}" for i in range(20_000))))
        self._send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body, wait_seconds=1, read=False)

    def _send(
        self, data: bytes, *, port: int = 0, half_close: bool = False, wait_seconds: float = 0.5, read: bool = True
    ) -> None:
        """Connect, send, hang on for a while."""
        with socket.create_connection(("127.0.0.1", port or self.extender.port), timeout=10) as connection:
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            connection.settimeout(wait_seconds)
            if not read:
                time.sleep(wait_seconds)
            while read and connection.recv(65_536):
                pass


def _attack(client: Callable[[], None], clients: int, threads: int, enough: Event) -> None:
    """Be at least *clients* clients, in *threads* threads, until *enough* is set."""
    os.nice(19)
    left = iter(range(clients))
    lock = threading.Lock()

    def is_over() -> bool:
        with lock:
            return next(left, None) is None and enough.is_set()

    def work() -> None:
        while not is_over():
            with contextlib.suppress(OSError):
                client()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def broken(storms: Sequence[Storm]) -> list[str]:
    """The bounds that do not hold, in sentences; empty: the drill passed. The first storm has no rude clients."""
    idle, found = storms[0], []
    slowest = max(MIN_P99_MS, MAX_P99_RATIO * idle.p99_ms)
    for storm in storms:
        faults = (
            (not storm.calls, "no call was made"),
            (storm.unanswered, f"{storm.unanswered} of {storm.calls} calls were not answered"),
            (storm.p99_ms > slowest, f"p99 was {storm.p99_ms:.0f} ms, more than {slowest:.0f} ms"),
            (storm.peak > MAX_RSS, f"resident memory reached {storm.peak // MIB} MiB, more than {MAX_RSS // MIB} MiB"),
        )
        found += [f"{storm.name}: {text}" for is_so, text in faults if is_so]
    return found


def play(directory: Path, *, scale: float = 1.0) -> list[Storm]:
    """Every kind of storm; *scale* 1: about three thousand clients."""
    files = make_files(directory)
    tls = {**files.settings, "tls_port": reserve_port()}
    extender = Extender(
        directory / "extender.log", unknown_nodes="refuse", head_seconds=1, body_seconds=1, answer_seconds=2,
        max_connections=512, max_buffered_bytes=32 * MIB, **tls,
    )  # fmt: skip
    cluster = [sample("node-0"), sample("node-1")]
    with extender, Reporter(cluster, [extender.url], interval=1.0):
        until(lambda: knows(extender) == 2, "warmth")
        drill = Drill(extender, tls["tls_port"], at_least=int(200 * scale))
        bomb()  # once, before clients are forked
        drill.run("nobody but the scheduler", lambda: time.sleep(0.1), clients=1)
        for kind, clients in (
            (drill.stops_in_the_head, 600), (drill.stops_in_the_body, 200), (drill.half_closes, 600),
            (drill.never_ends_its_head, 200), (drill.starts_a_handshake, 400), (drill.talks_nonsense, 600),
            (drill.sends_a_bomb, 30), (drill.shows_a_bad_token, 600),
            (drill.drips_its_body, 200), (drill.asks_for_a_large_answer_and_reads_none_of_it, 60),
            (drill.asks_for_a_large_answer_and_reads_none_of_it, 60),
        ):  # fmt: skip
            drill.run(kind.__name__.replace("_", " "), kind, clients=max(20, int(clients * scale)), threads=40)
        time.sleep(4)
        drill.run("nobody but the scheduler, afterwards", lambda: time.sleep(0.1), clients=1)
    return drill.storms
