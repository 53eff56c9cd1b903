"""A kubelet that stops or starts is seen at once: real sockets, real processes, real signals."""

import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node_exporter.watch import KubeletWatcher
from tests.node_exporter.fake_extender import FakeExtender
from tests.node_exporter.nodes import SCENARIO, cpu_state, memory_state
from tests.node_exporter.trees import KUBELET_DIR, write_scenario
from tests.waiting import PATIENCE_SECONDS, until

KUBELET = (
    "import sys, threading, pathlib; from tests.node_exporter.fake_kubelet import FakeKubelet;"
    "FakeKubelet(pathlib.Path(sys.argv[1])).start(); print('serves', flush=True); threading.Event().wait()"
)

EXPORTER = (
    "import node_exporter.node as node; from node_exporter.__main__ import main;"
    "node.SETTLING_SECONDS = 0.0; main()"  # else the looks after a start would notice the stop as well
)
IMPATIENT = (
    "from node_exporter.podresources import PodResourcesClient; from node_exporter.__main__ import main;"
    "PodResourcesClient.__init__.__defaults__ = (1.0,); main()"
)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="n") as directory:
        state = {"cpu_manager_state": cpu_state(), "memory_manager_state": memory_state()}
        yield write_scenario(Path(directory), SCENARIO, state)


def kubelet(path: Path) -> "subprocess.Popen[str]":
    """A kubelet's podresources service in a process of its own, listening."""
    process = subprocess.Popen([sys.executable, "-c", KUBELET, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "serves\n"
    return process


def connections(path: Path) -> int:
    """How many are open to a socket; 03 is the kernel's word for a connected one."""
    rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()]
    return sum(row[5] == "03" and row[-1] == str(path) for row in rows)


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)


@contextmanager
def exporting(root: Path, code: str, interval: str) -> Iterator[tuple[Path, FakeExtender]]:
    """An exporter that runs *code*, with the path of its kubelet's socket and the extender that it reports to."""
    path, extender = root / KUBELET_DIR / "pod-resources/kubelet.sock", FakeExtender()
    path.parent.mkdir(parents=True)
    command = [sys.executable, "-c", code, "run", "--root", str(root), "--node-name", "n1", "--listen", ""]
    push = ["--push", extender.url, "--interval", interval]
    with subprocess.Popen([*command, *push], stderr=subprocess.PIPE, text=True) as exporter:
        try:
            yield path, extender
        finally:
            exporter.terminate()
            exporter.communicate(timeout=PATIENCE_SECONDS)
            extender.close()


def available(extender: FakeExtender) -> bool:
    """Whether the last report says that the kubelet answers."""
    served = extender.reports[-1]["podresources"] if extender.reports else None
    return bool(served and served["available"])


def test_a_killed_and_a_started_kubelet_are_reported_at_once(root: Path) -> None:
    with exporting(root, EXPORTER, "300") as (path, extender):
        running = kubelet(path)
        try:
            extender.wait_for(available)
            before = extender.reports[-1]["podresources"]["since"]
            until(lambda: connections(path) == 2, "a call of podresources and the watch")
            kill(running)
            assert path.exists(), "no event of a file says that the kubelet is gone"
            extender.wait_for(lambda told: not available(told))
            running = kubelet(path)
            extender.wait_for(available)
            assert extender.reports[-1]["podresources"]["since"] > before
        finally:
            kill(running)


def test_a_kubelet_that_stops_to_answer_is_reported_although_its_socket_still_takes_connections(root: Path) -> None:
    with exporting(root, IMPATIENT, "0.5") as (path, extender):
        running = kubelet(path)
        try:
            extender.wait_for(available)
            answered = extender.reports[-1]["podresources"]
            running.send_signal(signal.SIGSTOP)
            extender.wait_for(lambda told: not available(told))
            silent = extender.reports[-1]
            assert answered["since"] < silent["podresources"]["since"] <= silent["observed_at"]
            assert any("DEADLINE_EXCEEDED" in problem["reason"] for problem in silent["problems"])
            running.send_signal(signal.SIGCONT)
            extender.wait_for(lambda told: told.reports[-1]["podresources"] == answered)
        finally:
            running.send_signal(signal.SIGCONT)
            kill(running)


class Changes:
    """Counts what a watcher says."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Condition()

    def __call__(self) -> None:
        with self._lock:
            self.count += 1
            self._lock.notify_all()

    def wait_for(self, count: int) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: self.count >= count, PATIENCE_SECONDS)


def test_a_server_that_closes_idle_connections_is_no_change() -> None:
    with tempfile.TemporaryDirectory(prefix="k") as directory, socket.socket(socket.AF_UNIX) as server:
        path, changes = Path(directory) / "k.sock", Changes()
        server.bind(str(path))
        server.listen()
        watcher = KubeletWatcher(path, changes)
        watcher.start()
        for _ in range(3):
            connection, _ = server.accept()
            connection.sendall(b"greeting" * 4096)
            connection.close()
        last, _ = server.accept()
        assert changes.count == 0
        server.close()
        last.close()
        assert changes.wait_for(1), "now nobody listens"
        watcher.stop()


def test_a_watch_ends_at_once_whatever_the_socket_does(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path / ("long" * 40), tmp_path):
        watcher = KubeletWatcher(path, lambda: None)
        watcher.start()
        watcher.stop()
        assert not watcher._thread.is_alive()
