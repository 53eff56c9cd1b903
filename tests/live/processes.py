"""Programs that run for the time of a scene, and can be killed."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

REAP_SECONDS = 30.0
"""From SIGKILL to the end of the process, at most."""


class SceneError(Exception):
    """A scene cannot go on: a part did not start, or what must happen did not happen in time."""


class Program:
    """One program with its log file. It is started again with the same command.

    It runs in a session of its own, so that a Ctrl-C in the terminal reaches only the test, which then ends everything
    in order. `grace_seconds`: for ending on SIGTERM; 0: it is killed, as nothing of it is kept.
    """

    grace_seconds = 0.0

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.log = name, log
        self.command = [str(word) for word in command]
        self.environment = dict(environment or {})
        self.kills = 0
        self._running: subprocess.Popen[bytes] | None = None
        self._told_to_end: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its output goes to the end of the log."""
        base = {
            name: value for name, value in os.environ.items() if not name.startswith(("NUMA_", "KUBELET_", "OTEL_"))
        }
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self.command, env={**base, **self.environment}, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._running is not None and self._running.poll() is None

    def check(self) -> None:
        """Raises SceneError if it has ended by itself."""
        running = self._running
        if running is not None and running is not self._told_to_end and running.poll() is not None:
            raise SceneError(f"{self.name} ended by itself:\n{self.last_lines()}")

    def kill(self) -> None:
        """SIGKILL, as a crash or the OOM killer."""
        self._told_to_end = self._running
        self._signal(signal.SIGKILL)
        assert self._running is not None
        self._running.wait(REAP_SECONDS)
        self.kills += 1

    def freeze(self) -> None:
        """SIGSTOP: it does nothing, and its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM where it has a grace, and SIGKILL if it has not ended by then."""
        self._told_to_end = self._running
        if self._running is None or not self.is_running:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.grace_seconds:
                self._signal(signal.SIGTERM)
                self._running.wait(self.grace_seconds)
        self._signal(signal.SIGKILL)
        self._running.wait(REAP_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        assert self._running is not None
        self._running.send_signal(number)

    def cpu_seconds(self) -> float:
        """Processor time so far, user and system; 0 if it does not run."""
        try:
            assert self._running is not None
            fields = Path(f"/proc/{self._running.pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, AssertionError):
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def last_lines(self, count: int = 5) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        except OSError:
            return ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


def until(
    condition: Callable[[], object], seconds: float, what: str, *, program: Program | None = None, every: float = 0.1
) -> float:
    """Wait for the condition; how many seconds it took.

    Raises:
        SceneError: it did not happen in time, or *program*, on which it depends, has ended.
    """
    started, pause = time.monotonic(), threading.Event()
    while not condition():
        if program is not None and not program.is_running:
            raise SceneError(f"{program.name} ended while the test waited for {what}:\n{program.last_lines()}")
        if time.monotonic() - started > seconds:
            log = f"\n{program.last_lines()}" if program else ""
            raise SceneError(f"{what}: not within {seconds:.0f} s{log}")
        pause.wait(every)
    return time.monotonic() - started
