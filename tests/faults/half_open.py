"""Storms of half-open TLS handshakes: connections that send nothing, or a part of a ClientHello, and stay.

The extender is the real program in a process of its own. While each storm lasts, calls come as from a scheduler: over
the plain port, over a TLS connection that is kept open, and over new TLS connections with the scheduler's certificate.
The attacker has addresses of its own (127.0.1.x), so that the ports of one address do not run out.
"""

import contextlib
import http.client
import random
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.faults.parts import Extender, Reporter
from tests.faults.takeover import knows
from tests.ports import reserve_port
from tests.reports import args_of, pod_of, sample
from tests.security.running import make_files
from tests.waiting import PATIENCE_SECONDS, until

MIB = 1 << 20
HOLD_SECONDS = 1.0
"""How long a storm stays after its last connection was made."""
MAX_GROWTH = 100 * MIB
MAX_P99_RATIO = 3.0
FLOOR_MS, BUSY_FLOOR_MS = 150.0, 3000.0
"""Of all calls during the storms, beside those without one; up to the floor no ratio is too high. The second floor is
for a machine that has other work: a lost first packet costs a second by itself."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Calls:
    """Calls of one kind: how long each took in milliseconds, and how many had no answer or a wrong one."""

    milliseconds: list[float] = field(default_factory=list)
    unanswered: int = 0

    @property
    def median_ms(self) -> float:
        """0 without a call."""
        return statistics.median(self.milliseconds) if self.milliseconds else 0.0

    @property
    def p99_ms(self) -> float:
        """0 without a call."""
        ordered = sorted(self.milliseconds)
        return ordered[int(len(ordered) * 0.99)] if ordered else 0.0


@dataclass
class Storm:
    """One storm. `opened`: connections that the attacker made; bytes are resident memory of the extender."""

    opened: int = 0
    seconds: float = 0.0
    peak: int = 0
    after: int = 0
    calls: dict[str, Calls] = field(default_factory=dict)


@dataclass
class Story:
    """What happened. `idle`: calls without a storm; `before`: resident memory then."""

    idle: dict[str, Calls] = field(default_factory=dict)
    before: int = 0
    storms: list[Storm] = field(default_factory=list)
    floor_ms: float = BUSY_FLOOR_MS

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, in sentences; empty: the drill passed."""
        found = [] if self.storms else ["there was no storm"]
        for number, one in enumerate(self.storms, 1):
            for kind, calls in one.calls.items():
                count = len(calls.milliseconds)
                if calls.unanswered or not count:
                    found.append(f"storm {number}: {calls.unanswered} of {count} {kind} calls were not answered")
        for kind, idle in self.idle.items():
            p99_ms, slowest = self.p99_ms(kind), max(self.floor_ms, MAX_P99_RATIO * idle.p99_ms)
            if p99_ms > slowest:
                found.append(f"p99 of {kind} calls during the storms was {p99_ms:.0f} ms, not {slowest:.0f}")
        grown, count, limit = self.grown // MIB, len(self.storms), MAX_GROWTH // MIB
        if grown > limit:
            found.append(f"resident memory grew by {grown} MiB over {count} storms, more than {limit} MiB")
        return found

    def p99_ms(self, kind: str) -> float:
        """Over the calls of this kind during all storms; 0 without a call."""
        return Calls([each for one in self.storms for each in one.calls[kind].milliseconds]).p99_ms

    @property
    def grown(self) -> int:
        """Bytes of resident memory that are not given back."""
        return max((one.after for one in self.storms), default=0) - self.before


class Caller:
    """Calls filter in three ways, in a thread of its own for each."""

    def __init__(self, extender: Extender, tls_port: int, context: ssl.SSLContext) -> None:
        self._extender, self._tls_port, self._context = extender, tls_port, context
        self._body = orjson.dumps(args_of(pod_of(2), "node-0", "node-1"))
        self._kept: http.client.HTTPConnection | None = None

    def plain(self) -> bool:
        """Over loopback."""
        return self._call(http.client.HTTPConnection("127.0.0.1", self._extender.port, timeout=PATIENCE_SECONDS))

    def new_tls(self) -> bool:
        """Over a new connection with the scheduler's certificate."""
        return self._call(self._secure())

    def kept_tls(self) -> bool:
        """Over the same connection as the call before."""
        self._kept = self._kept or self._secure()
        answered = self._call(self._kept, close=False)
        if not answered:
            self._kept.close()
            self._kept = None
        return answered

    def during(self, going_on: Callable[[], bool], *, at_least: int = 20) -> dict[str, Calls]:
        """Calls of every kind as long as *going_on* says, and at least so many."""
        kinds: dict[str, Callable[[], bool]] = {"plain": self.plain, "kept": self.kept_tls, "new": self.new_tls}
        calls = {name: Calls() for name in kinds}

        def work(name: str) -> None:
            while going_on() or len(calls[name].milliseconds) < at_least:
                began = time.perf_counter()
                calls[name].unanswered += not kinds[name]()
                calls[name].milliseconds.append((time.perf_counter() - began) * 1000)
                time.sleep(0.02)

        threads = [threading.Thread(target=work, args=(name,)) for name in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._kept is not None:
            self._kept.close()
        return calls

    def _secure(self) -> http.client.HTTPConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._tls_port, timeout=PATIENCE_SECONDS, context=self._context)

    def _call(self, connection: http.client.HTTPConnection, *, close: bool = True) -> bool:
        try:
            connection.request("POST", "/scheduler/filter", self._body, {"Content-Type": "application/json"})
            reply = orjson.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException):
            return False
        finally:
            if close:
                connection.close()
        return bool(reply["NodeNames"] == ["node-0", "node-1"])


def storm(caller: Caller, port: int, extender: Extender, *, size: int, address: str, seed: int) -> Storm:
    """*size* connections from *address*, as fast as they can be made, while *caller* calls.

    The attacker has the lowest priority: one elsewhere takes no CPU time from the extender, or from the caller.
    """
    story = Storm()
    command = (
        "nice",
        "-n",
        "19",
        sys.executable,
        "-m",
        "tests.faults.half_open",
        str(port),
        str(size),
        address,
        str(seed),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:

        def going_on() -> bool:
            story.peak = max(story.peak, extender.rss_bytes)
            return attacker.poll() is None

        story.calls = caller.during(going_on)
        opened, story.seconds = orjson.loads(attacker.communicate()[0])
        story.opened = int(opened)
    return story


def attack(port: int, size: int, address: str, seed: int) -> tuple[int, float]:
    """Open *size* connections, hold them for a while, and reset them; how many there were, and after how long."""
    opened: list[socket.socket] = []
    hello, chance, began = client_hello(), random.Random(seed), time.monotonic()
    for _ in range(size):
        with contextlib.suppress(OSError):
            connection = socket.create_connection(
                ("127.0.0.1", port), timeout=PATIENCE_SECONDS, source_address=(address, 0)
            )
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            opened.append(connection)
            connection.sendall(hello[: chance.choice((0, 1, 5, len(hello) // 2, len(hello) - 1, len(hello)))])
    seconds = time.monotonic() - began
    time.sleep(HOLD_SECONDS)
    for connection in opened:
        connection.close()
    return len(opened), seconds


def client_hello() -> bytes:
    """The first bytes of a real client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    connection = context.wrap_bio(incoming, outgoing, server_hostname="extender.example")
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def _open_connections(extender: Extender) -> float:
    return sum(extender.metric(f'numa_extender_connections{{listener="{name}"}}') for name in ("tls", "handshake"))


def play(
    directory: Path,
    *,
    storms: int = 10,
    size: int = 10_000,
    seed: int = 1,
    floor_ms: float = BUSY_FLOOR_MS,
    said: Callable[[str], None] = lambda _line: None,
    **settings: object,
) -> Story:
    """So many storms of *size* connections each; *settings* of the extender; *said* is given a line after each."""
    files, story = make_files(directory), Story(floor_ms=floor_ms)
    tls_port = reserve_port()
    tls = {**files.settings, "tls_port": tls_port}
    extender = Extender(directory / "extender.log", unknown_nodes="refuse", **tls, **settings)
    with extender, Reporter([sample("node-0"), sample("node-1")], [extender.url], interval=1.0):
        until(lambda: knows(extender) == 2, "the first reports")
        caller = Caller(extender, tls_port, files.client("system:kube-scheduler"))
        story.idle = caller.during(lambda: False, at_least=100)
        story.before = extender.rss_bytes
        for number in range(storms):
            address = f"127.0.1.{number % 200 + 1}"
            one = storm(caller, tls_port, extender, size=size, address=address, seed=seed + number)
            until(lambda: _open_connections(extender) <= 3, "the end of the storm")
            time.sleep(1)
            one.after = extender.rss_bytes
            story.storms.append(one)
            said(f"storm {number + 1} of {storms}: {one.opened} opened, {one.after // MIB} MiB")
    return story


if __name__ == "__main__":
    print(orjson.dumps(attack(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))).decode())
