"""Whatever lies in the place of a node's file costs little memory, is named in the report, and passes with its repair.

One real exporter goes through all of it, as a node's own exporter would.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.node_exporter.fake_extender import FakeExtender
from tests.node_exporter.nodes import SCENARIO, cpu_state, device_state, memory_state
from tests.node_exporter.trees import KUBELET_DIR, write_scenario, write_text
from tests.waiting import PATIENCE_SECONDS

MEBIBYTE = 1 << 20
MOST_BYTES = 20 * MEBIBYTE
"""Of memory, over that of an exporter on a sound node."""
STATE = {
    "cpu_manager_state": cpu_state({"u1": {"c0": "1,5"}}, "0,2-4,6-7"),
    "memory_manager_state": memory_state(),
    "kubelet_internal_checkpoint": device_state({"gpu": ["g0"]}),
}
CPU, MEMORY = KUBELET_DIR + "/cpu_manager_state", KUBELET_DIR + "/memory_manager_state"
DEVICES, CONFIG = KUBELET_DIR + "/device-plugins/kubelet_internal_checkpoint", KUBELET_DIR + "/config.yaml"
MANY_CPUS = ",".join(["0-1048575"] * 50)
CPUS_IN_BOUNDS = ",".join(["0-16383"] * 3)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    path.write_bytes(b'{"policyName": "' + b"x" * (60 * MEBIBYTE) + b'"}')


def nested(path: Path) -> None:
    path.write_bytes(b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}")


def many_values(path: Path) -> None:
    path.write_bytes(b'{"a":[' + b"[]," * 300_000 + b"0]}")


def directory(path: Path) -> None:
    path.mkdir()


def text(content: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(content)

    write.__name__ = f"text of {len(content)} characters"
    return write


def document(content: dict[str, Any]) -> Callable[[Path], None]:
    return text(orjson.dumps(content).decode())


ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
ATTACKS: list[tuple[str, Callable[[Path], None], str]] = [
    *((CPU, attack, "") for attack in (fifo, endless, large, nested, many_values)),
    *((MEMORY, attack, "") for attack in (fifo, nested)),
    *((DEVICES, attack, "") for attack in (endless, large, many_values)),
    (CPU, directory, "a directory"),
    (CPU, document({"policyName": "static", "defaultCpuSet": MANY_CPUS, "checksum": 0}), "range of CPU ids"),
    (
        CPU,
        document(
            {
                "policyName": "static",
                "defaultCpuSet": "0",
                "checksum": 0,
                "entries": {f"u{n}": {"c": CPUS_IN_BOUNDS} for n in range(3000)},
            }
        ),
        "name more than",
    ),
    (CONFIG, fifo, "a FIFO"),
    (CONFIG, endless, "a device"),
    (CONFIG, large, "larger than"),
    (CONFIG, text(ALIASES), "alias"),
    (CONFIG, text("a: " + "[" * 1000 + "]" * 1000), "nested deeper"),
    (CONFIG, text("a: [" + "x," * 100_000 + "x]"), "more than"),
    (CONFIG, text(f"cpuManagerPolicy: static\nreservedSystemCPUs: {MANY_CPUS}"), "range of CPU ids"),
    ("sys/devices/system/cpu/online", fifo, "a FIFO"),
    ("sys/devices/system/cpu/online", text(MANY_CPUS), "range of CPU ids"),
    ("sys/devices/system/node/node0/meminfo", endless, "a device"),
    ("sys/devices/system/node/node0/distance", fifo, "a FIFO"),
    ("sys/devices/system/cpu/cpu1/topology/core_id", fifo, "a FIFO"),
    ("proc/cpuinfo", endless, "a device"),
    ("proc/cpuinfo", large, "larger than"),
    ("proc/sys/kernel/random/boot_id", fifo, "a FIFO"),
]


class Exporter:
    """A real exporter of one node, and what it reports."""

    def __init__(self, root: Path) -> None:
        self.extender = FakeExtender()
        self.root = root
        write_text(root / "token", "good")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "node_exporter", "run", "--root", str(root), "--node-name", "n1"),
                *("--push", self.extender.url, "--interval", "0.1", "--listen", "", "--log-level", "warning"),
                *("--token-file", str(root / "token"), "--kubelet-version", "v1.36.2"),
            ]
        )

    def wait_for(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first report for which the condition holds."""
        found: list[dict[str, Any]] = []

        def look(told: FakeExtender) -> bool:
            found[:] = told.reports[-1:]
            return bool(found) and bool(condition(found[0]))

        self.extender.wait_for(look)
        self.extender.forget()
        return found[0]

    def wait_for_heartbeats(self, count: int) -> None:
        before = len(self.extender.heartbeats)
        self.extender.wait_for(lambda told: len(told.heartbeats) >= before + count)

    def memory(self, kind: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith(kind)).split()[1]) << 10

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def close(self) -> None:
        try:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(PATIENCE_SECONDS) == 0
        finally:
            self.process.kill()
            self.process.wait()
            self.extender.close()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with tempfile.TemporaryDirectory(prefix="n") as directory:
        root = write_scenario(Path(directory), SCENARIO, STATE)
        running = Exporter(root)
        running.wait_for(lambda _report: True)
        running.wait_for_heartbeats(3)
        yield running
        running.close()


@contextmanager
def instead_of(path: Path) -> Iterator[None]:
    """Takes a file away for a while."""
    kept = path.read_bytes()
    path.unlink()
    yield
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (temporary := path.with_name("new")).write_bytes(kept)
    temporary.rename(path)


def new_problems(report: dict[str, Any], path: str, reason: str, known: list[Any]) -> list[str]:
    """The reasons of problems with that file that a sound node does not have."""
    return [
        problem["reason"]
        for problem in report["problems"]
        if problem not in known
        and (Path(problem["path"]).name == Path(path).name or problem["path"] == "reservedSystemCPUs")
        and reason in problem["reason"]
    ]


def sound(report: dict[str, Any]) -> dict[str, Any]:
    return {key: report[key] for key in ("boot_id", "machine", "kubelet", "state", "problems")}


def test_every_attack_is_named_costs_little_and_passes(exporter: Exporter) -> None:
    normal, baseline = sound(exporter.extender.reports[-1]), exporter.memory("VmRSS")
    costs: dict[str, int] = {}
    for path, attack, reason in ATTACKS:
        exporter.forget_peak()
        with instead_of(exporter.root / path):
            attack(exporter.root / path)
            found = partial(new_problems, path=path, reason=reason, known=normal["problems"])
            assert found(exporter.wait_for(found)), (path, attack.__name__)
            exporter.wait_for_heartbeats(1)
        healed = exporter.wait_for(lambda report: sound(report) == normal)
        assert sound(healed) == normal
        costs[f"{path} {attack.__name__}"] = exporter.memory("VmHWM") - baseline

    worst = max(costs, key=lambda name: costs[name])
    print(f"baseline {baseline / MEBIBYTE:.1f} MiB, most {costs[worst] / MEBIBYTE:.1f} MiB more: {worst}")
    assert costs[worst] <= MOST_BYTES, {name: cost / MEBIBYTE for name, cost in costs.items()}


def test_the_largest_files_that_are_taken_cost_little(exporter: Exporter) -> None:
    baseline = exporter.memory("VmRSS")
    entries = [(f"pod-{n:040}", "gpu", {"0": [f"device-{n:030}"]}) for n in range(10_000)]
    with instead_of(exporter.root / DEVICES):
        document(device_state({"gpu": [f"device-{n:030}" for n in range(10_000)]}, entries))(exporter.root / DEVICES)
        exporter.wait_for(lambda report: len(report["devices"].get("gpu", ())) == 10_000)
        exporter.wait_for_heartbeats(2)
    cost = exporter.memory("VmHWM") - baseline
    print(f"baseline {baseline / MEBIBYTE:.1f} MiB, {cost / MEBIBYTE:.1f} MiB more")
    assert cost <= 4 * MOST_BYTES, "the container's limit is far above"


def test_a_file_that_never_holds_still_costs_little_and_passes(exporter: Exporter) -> None:
    normal, baseline = sound(exporter.extender.reports[-1]), exporter.memory("VmRSS")
    path, stop = exporter.root / CPU, threading.Event()

    def write() -> None:
        while not stop.is_set():
            with path.open("wb") as file:
                for _ in range(40):
                    file.write(b'{"policyName":"static","entries":{' * 4000)

    exporter.forget_peak()
    with instead_of(path):
        writer = threading.Thread(target=write)
        writer.start()
        exporter.wait_for(lambda report: new_problems(report, CPU, "", normal["problems"]))
        exporter.wait_for_heartbeats(1) if exporter.extender.heartbeats else None
        stop.set()
        writer.join()
    exporter.wait_for(lambda report: sound(report) == normal)
    assert exporter.memory("VmHWM") - baseline <= MOST_BYTES


@pytest.mark.parametrize("attack", [fifo, endless, large, directory])
def test_a_token_that_is_no_file_holds_nothing_up(exporter: Exporter, attack: Callable[[Path], None]) -> None:
    baseline = exporter.memory("VmRSS")
    exporter.forget_peak()
    with instead_of(exporter.root / "token"):
        attack(exporter.root / "token")
        received = len(exporter.extender.messages)
        write_text(exporter.root / CPU, "{}")
        threading.Event().wait(1.0)
        assert len(exporter.extender.messages) <= received + 1, "nothing is sent without the token"
    exporter.wait_for(lambda report: report["state"]["cpu_manager_state"] == {})
    assert exporter.memory("VmHWM") - baseline <= MOST_BYTES
