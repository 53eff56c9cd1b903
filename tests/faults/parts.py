"""The parts of a cluster as processes that can be killed, and the parties that keep talking to them.

The extender and the exporter are the real programs in processes of their own; kill means SIGKILL. The API server is the
fake one of this process: its "death" is that it hangs up on everybody and its port stays closed. Exporters of nodes
whose files do not matter are played by `Reporter`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import orjson
import yaml

from extender.samples.nodes import SampleNode
from tests.plain_http import HTTP
from tests.ports import reserve_port
from tests.reports import report_of
from tests.waiting import PATIENCE_SECONDS
from tests.world.exporters import Exporters

JSON = Any


def kubeconfig(directory: Path, url: str) -> Path:
    path = directory / "kubeconfig"
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "s", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "s", "user": "u"}}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass
class Process:
    """A program that is started again and again. `kills`: how often it was killed."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    kills: int = 0
    peak_rss_bytes: int = 0
    _running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.log or Path(os.devnull)).open("ab") as log:
            self._running = subprocess.Popen(
                [sys.executable, *self.command], env={**os.environ, **self.environment}, stderr=log, stdout=log
            )

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        """End the process; its exit code."""
        assert self._running is not None
        self.note_memory()
        self._running.send_signal(how)
        self.kills += how is signal.SIGKILL
        return self._running.wait(PATIENCE_SECONDS)

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._running is not None
        return self._running.wait(PATIENCE_SECONDS)

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._running is not None
        return self._running.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._running is not None and self._running.poll() is None

    @property
    def rss_bytes(self) -> int:
        """Resident memory now; 0 when it does not run."""
        if self._running is None:
            return 0
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self._running.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def note_memory(self) -> int:
        rss = self.rss_bytes
        self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
        return rss

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.kill()
            self._running.wait(PATIENCE_SECONDS)


class Extender(Process):
    """`numa-extender serve` on a port of its own; `settings` as in the environment, without prefix."""

    def __init__(self, log: Path, **settings: object) -> None:
        self.port = reserve_port()
        self.url = f"http://127.0.0.1:{self.port}"
        named = {f"NUMA_EXTENDER_{name.upper()}": str(value) for name, value in settings.items()}
        environment = {
            "NUMA_EXTENDER_PORT": str(self.port),
            "NUMA_EXTENDER_DRAIN_SECONDS": "0",
            "NUMA_EXTENDER_LOOPBACK_SCOPES": '["schedule", "read", "metrics", "report"]',  # exporters are played here
            **named,
        }
        super().__init__(("-m", "extender", "serve", "--log-level", "warning"), environment, log)

    def post(self, path: str, document: object, seconds: float = PATIENCE_SECONDS) -> JSON:
        """The parsed reply; None if there was none, or not with status 200."""
        try:
            body = orjson.dumps(document)
            reply = HTTP.post(self.url + path, content=body, timeout=seconds)
        except httpx.TransportError:
            return None
        return reply.json() if reply.status_code == 200 else None

    def get(self, path: str) -> httpx.Response | None:
        try:
            return HTTP.get(self.url + path)
        except httpx.TransportError:
            return None

    def is_ready(self) -> bool:
        reply = self.get("/readyz")
        return reply is not None and reply.status_code == 200

    def metric(self, sample: str) -> float:
        """The value of one sample; 0 if there is none."""
        reply = self.get("/metrics")
        for line in reply.text.splitlines() if reply is not None else ():
            if line.startswith(sample + " "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0


class Reporter:
    """Exporters of *nodes*: a heartbeat to every extender each *interval* seconds, the report where it is asked for."""

    def __init__(self, nodes: Sequence[SampleNode], urls: Sequence[str], interval: float = 0.2) -> None:
        self._exporters = Exporters()
        for node in nodes:
            self.change(report_of(node))
        self._urls, self._interval = urls, interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.unexpected: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)

    def change(self, report: JSON) -> None:
        """From now on the node's exporter reports this."""
        self._exporters.change(report)

    def _run(self) -> None:
        with httpx.Client(trust_env=False, timeout=PATIENCE_SECONDS) as client:
            while not self._stop.wait(self._interval):
                for url in self._urls:
                    with contextlib.suppress(httpx.TransportError):
                        self.unexpected += self._exporters.tell(partial(self._call, client, url))

    @staticmethod
    def _call(client: httpx.Client, url: str, method: str, path: str, body: bytes) -> int:
        return client.request(method, f"{url}{path}", content=body).status_code
