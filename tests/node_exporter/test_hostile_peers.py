"""Whatever the other side answers, an exchange ends in time; SIGTERM always ends the program."""

import gzip
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from node_exporter.bounded_http import Connection, CredentialFiles, NoAnswerError
from node_exporter.podresources import PodResourcesClient
from node_exporter.sinks import Delivery
from node_exporter.sinks.http import HttpSink
from tests.node_exporter.nodes import SCENARIO, cpu_state, memory_state
from tests.node_exporter.trees import KUBELET_DIR, write_scenario
from tests.waiting import PATIENCE_SECONDS

STATE = {"cpu_manager_state": cpu_state(), "memory_manager_state": memory_state()}
Behave = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"


class Peer:
    """Accepts connections, and behaves to each as it is told; counts them."""

    def __init__(self, behave: Behave, listening: socket.socket) -> None:
        self._behave = behave
        self._listening = listening
        self.accepted = threading.Semaphore(0)
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections.append(connection)
                self.accepted.release()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(OSError):
            self._behave(connection)

    def close(self) -> None:
        self._listening.close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


@contextmanager
def peer(behave: Behave) -> Iterator[tuple[str, Peer]]:
    listening = socket.create_server(("127.0.0.1", 0))
    serving = Peer(behave, listening)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", serving
    serving.close()


def silent(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def drip(first: bytes, rest: bytes, *, pause_seconds: float = 0.05) -> Behave:
    """Sends `first`, then `rest` again and again."""

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(first)
        for _ in range(1200):
            connection.sendall(rest)
            time.sleep(pause_seconds)

    return behave


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(silent, id="silent"),
        pytest.param(drip(HEAD, b"x"), id="dripped header"),
        pytest.param(drip(HEAD, b"x: y\r\n"), id="dripped headers"),
        pytest.param(drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), id="interim answers"),
        pytest.param(
            drip(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 500, pause_seconds=0), id="interim answers at once"
        ),
        pytest.param(drip(HEAD + b"x: ", b"y" * 10_000, pause_seconds=0), id="huge header"),
        pytest.param(drip(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), id="dripped body"),
    ],
)
def test_an_exchange_ends_by_its_deadline(behave: Behave) -> None:
    with peer(behave) as (url, _):
        sink = HttpSink(url, "n1", timeout_seconds=0.5, credentials=CredentialFiles())
        began = time.monotonic()
        reply = sink.post_heartbeat(b"{}")
        took = time.monotonic() - began
        sink.close()

    assert reply.outcome is Delivery.UNAVAILABLE
    assert took < 30, "60 s of dripping, unless something ends it"


def test_packed_answers_are_not_unpacked_and_long_ones_not_read_to_the_end() -> None:
    # Two gzip members. The second does not pack, so that the whole is longer than any piece that one read returns.
    bomb = gzip.compress(b"\0" * (64 << 20)) + gzip.compress(random.Random(1).randbytes(1 << 19))

    def behave(connection: socket.socket) -> None:
        while connection.recv(65536):
            connection.sendall(b"HTTP/1.1 503 No\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb))
            connection.sendall(bomb)

    with peer(behave) as (url, _):
        client = Connection(url, timeout_seconds=60, credentials=CredentialFiles())
        answer = client.send("GET", "/", max_answer_bytes=1 << 20)
        short = client.send("GET", "/", max_answer_bytes=1000)
        client.close()

    assert answer.content == bomb
    assert 1000 < len(short.content) < len(bomb), "cut off at the first piece beyond the limit"


def test_redirects_are_not_followed() -> None:
    with peer(silent) as (elsewhere, other):

        def behave(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 307 Go\r\nlocation: %s/\r\ncontent-length: 0\r\n\r\n" % elsewhere.encode())

        with peer(behave) as (url, _):
            sink = HttpSink(url, "n1", timeout_seconds=60, credentials=CredentialFiles())
            reply = sink.post_heartbeat(b"{}")
            sink.close()

        assert (reply.outcome, reply.detail) == (Delivery.REFUSED, "307")
        assert other.connections == []


def test_an_upload_that_nobody_reads_ends_by_its_deadline() -> None:
    with peer(lambda _connection: time.sleep(30)) as (url, _):
        client = Connection(url, timeout_seconds=0.5, credentials=CredentialFiles())
        with pytest.raises(NoAnswerError, match="Timeout"):
            client.send("PUT", "/", content=b"x" * (32 << 20), max_answer_bytes=1000)
        client.close()


@pytest.mark.parametrize(
    "behave", [pytest.param(silent, id="silent"), pytest.param(drip(b"", b"\0"), id="nonsense, dripped")]
)
def test_a_podresources_service_that_hangs_ends_by_its_deadline(behave: Behave) -> None:
    with tempfile.TemporaryDirectory(prefix="k") as directory:
        path = Path(directory) / "k.sock"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen()
        serving = Peer(behave, listening)
        client = PodResourcesClient(path, deadline_seconds=0.5)
        began = time.monotonic()
        answer, problems = client.ask()
        client.close()
        serving.close()

    assert answer is None
    assert problems[0].path == "k.sock"
    assert time.monotonic() - began < 30


HUNG_READ = (
    "import threading, node_exporter.node as observe; from node_exporter.__main__ import main;"
    "observe.read_pod_logs = lambda _directory: (print('hangs', flush=True), threading.Event().wait());"
    "main()"  # as on a file system that does not answer
)


@pytest.mark.parametrize("hang", ["read", "send", "podresources", "kubelet api at the start"])
def test_sigterm_ends_the_program_while_something_hangs(hang: str, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="n") as directory, peer(silent) as (url, serving):
        root = write_scenario(Path(directory), SCENARIO, STATE)
        program = ["-c", HUNG_READ] if hang == "read" else ["-m", "node_exporter"]
        command = [sys.executable, *program, "run", "--root", str(root), "--node-name", "n1", "--listen", ""]
        command += ["--push", url, "--timeout", "600"]
        waits_for = serving
        if hang == "kubelet api at the start":
            (tmp_path / "token").write_text("t")
            command += [
                "--kubelet-url",
                url.replace("http:", "https:"),
                "--kubelet-token-file",
                str(tmp_path / "token"),
            ]
            command += ["--kubelet-ca-file", _ca_file(tmp_path)]
        if hang == "podresources":
            path = root / KUBELET_DIR / "pod-resources/kubelet.sock"
            path.parent.mkdir(parents=True)
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(str(path))
            listening.listen()
            waits_for = Peer(silent, listening)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if hang == "read":
                assert process.stdout.readline() == "hangs\n"
            else:
                assert waits_for.accepted.acquire(timeout=PATIENCE_SECONDS)
            process.send_signal(signal.SIGTERM)
            try:
                _, said = process.communicate(timeout=PATIENCE_SECONDS)
            finally:
                process.kill()
        waits_for.close()

    assert process.returncode == 0, said
    assert "stopped node=n1" in said


def _ca_file(directory: Path) -> str:
    import trustme

    path = directory / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return str(path)
