"""Mount and PID namespaces in which a recorded machine is bound over the host's, and cgroups of a node's own.

Nothing outlives the test: the namespaces are held by a shell that reads a pipe of this process, and end with it.
"""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.live.processes import REAP_SECONDS, Program, SceneError

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = "numa-live"
"""Our cgroups are named so, with the process id of the test and the node."""
UNSHARE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")


@cache
def cannot() -> str:
    """Why this process cannot make such namespaces and cgroups; empty: it can."""
    try:
        done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no mount namespace: {error}"
    if done.returncode:
        return f"no mount namespace: {done.stderr.strip()}"
    writable = [each for each in _hierarchies() if os.access(each, os.W_OK)]
    return "" if writable else f"no cgroup v1 hierarchy below {CGROUPS} in which a directory can be made"


class Namespace:
    """The namespaces of one node, while the context lasts. *binds*: what is bound over which path."""

    def __init__(self, binds: Mapping[Path, Path]) -> None:
        self._binds = binds
        self._inside = 0

    def __enter__(self) -> Self:
        lines = ["set -e", *(shlex.join(("mount", "--bind", str(a), str(b))) for b, a in self._binds.items())]
        script = "\n".join([*lines, "echo ready", "exec cat"])
        pipe = subprocess.PIPE
        self._holder = subprocess.Popen(
            [*UNSHARE, "sh", "-c", script], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
        )
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        if said != b"ready\n":
            self._close()
            raise SceneError(f"the namespace of a node could not be made: {said.decode(errors='replace').strip()}")
        (self._inside,) = _children(self._holder.pid)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._inside, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        """The holder's shell ends when its pipe does, and all that runs inside with it."""
        self._holder.communicate(timeout=REAP_SECONDS)

    def command(self, words: Sequence[str | Path]) -> list[str | Path]:
        """A command that runs *words* inside."""
        return ["nsenter", "--target", str(self._inside), "--mount", "--pid", *words]


class Inside(Program):
    """A program in a node's namespace. A signal is for the program and not for the `nsenter` that waits for it."""

    def __init__(self, namespace: Namespace, name: str, words: Sequence[str | Path], log: Path) -> None:
        super().__init__(name, words, log)
        self._namespace, self._words = namespace, words

    def start(self) -> None:
        self.command = [str(word) for word in self._namespace.command(self._words)]
        super().start()

    def _signal(self, number: signal.Signals) -> None:
        assert self._running is not None
        children = _children(self._running.pid)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
        if not children:
            super()._signal(number)


@contextlib.contextmanager
def cgroup(name: str) -> Iterator[None]:
    """A cgroup in every hierarchy; removed at the end with all that is below it. *name*: see `own_cgroup`."""
    _sweep()
    try:
        for hierarchy in _hierarchies():
            directory = hierarchy / name
            directory.mkdir()
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (directory / file).exists():
                    (directory / file).write_text((hierarchy / file).read_text())
        yield
    finally:
        _remove(name)


def own_cgroup(node: str) -> str:
    """The name of a node's cgroup."""
    return f"{OWN_CGROUP}-{os.getpid()}-{node}"


def _hierarchies() -> list[Path]:
    """Every mounted hierarchy once where version 1 is in use, also the unified one: kubelets write to all."""
    if (CGROUPS / "cgroup.controllers").exists() or not CGROUPS.is_dir():
        return []
    found = (each.resolve() for each in sorted(CGROUPS.iterdir()) if (each / "cgroup.procs").exists())
    return list(dict.fromkeys(found))


def _sweep() -> None:
    """Remove what a test left behind that was killed."""
    for hierarchy in _hierarchies():
        for left in hierarchy.glob(f"{OWN_CGROUP}-*"):
            owner = left.name.removeprefix(f"{OWN_CGROUP}-").partition("-")[0]
            if not Path("/proc", owner).exists():
                _remove(left.name)


def _remove(name: str) -> None:
    for hierarchy in _hierarchies():
        for directory, _, _ in os.walk(hierarchy / name, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()


def _children(pid: int) -> list[int]:
    """Process ids of the children of a process; empty if it is gone."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
