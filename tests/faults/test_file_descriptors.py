"""The limit on open files is used up: the real program says so once, goes on by itself, and does not spin."""

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.parts import Extender
from tests.reports import args_of, pod_of
from tests.waiting import PATIENCE_SECONDS, until

SPARE_FILES = 20
LOOK_SECONDS = 2.0


def process_of(extender: Extender) -> int:
    assert extender._running is not None
    return extender._running.pid


@contextlib.contextmanager
def few_files(extender: Extender) -> Iterator[None]:
    """The process may open `SPARE_FILES` more than it has open now."""
    pid = process_of(extender)
    _, hard = before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (count + SPARE_FILES, hard))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def is_answered(extender: Extender) -> bool:
    return extender.post("/scheduler/filter", args_of(pod_of(), "node-0")) is not None


def test_without_file_descriptors_it_says_so_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Extender(log) as extender, contextlib.ExitStack() as stack:
        until(extender.is_ready, "the extender")
        until(lambda: is_answered(extender))
        with few_files(extender):
            for _ in range(2 * SPARE_FILES):
                stack.enter_context(socket.create_connection(("127.0.0.1", extender.port), timeout=PATIENCE_SECONDS))
            until(lambda: is_answered(extender), what="an answer while the files are used up")
            used = cpu_seconds(process_of(extender))
            time.sleep(LOOK_SECONDS)
            assert cpu_seconds(process_of(extender)) - used < LOOK_SECONDS / 2, "it does not spin"
        until(lambda: is_answered(extender))

        assert extender.metric('numa_extender_accept_failures_total{reason="files"}') >= 1
        assert log.read_text().count("cannot accept connections") == 1
