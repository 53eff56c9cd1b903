"""What the exporter costs and how fast it is: the real program against a real kubelet socket and a real extender.

    python -m tests.bench.exporter [--minutes 10] [--pods 60] [--devices 16] [--cpus 128]

Three phases, each with a process of its own: idle, one change a second, and a storm of 1,000 changes. Printed are CPU
seconds, peak memory, bytes sent, and the time from a change of the files to the extender holding it.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tests.node_exporter.fake_extender import FakeExtender
from tests.node_exporter.fake_kubelet import FakeKubelet, pod
from tests.node_exporter.nodes import with_checksum
from tests.node_exporter.trees import write_scenario, write_state

SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"


def scenario(cpus: int) -> dict[str, Any]:
    """A machine of two sockets with two threads a core, one NUMA node each."""
    half = cpus // 2
    rows = [[cpu, cpu % half, cpu % half // (half // 2), cpu % half // (half // 2), None] for cpu in range(cpus)]
    numa = [
        {
            "id": node,
            "memory": 256 << 30,
            "hugepages": {"2Mi": 0, "1Gi": 0},
            "distances": [10 + 11 * node, 21 - 11 * node],
        }
        for node in (0, 1)
    ]
    kubelet = {
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": f"0,{half}",
        "topologyManagerPolicy": "single-numa-node",
        "reservation": {"memory": "1Gi"},
    }
    return {"machine": {"cpus": rows, "numa": numa, "num_sockets": 2}, "kubelet": kubelet}


def state(cpus: int, turn: int) -> dict[str, Any]:
    """A CPU manager state whose content tells which change it is: pod change-`turn` holds one CPU."""
    held = 1 + turn % (cpus // 2 - 1)
    shared = ",".join(str(cpu) for cpu in range(cpus) if cpu != held)
    entries = {f"change-{turn}": {"c0": str(held)}}
    document = {"policyName": "static", "defaultCpuSet": shared, "entries": entries, "checksum": 1}
    return {"cpu_manager_state": with_checksum(document), "memory_manager_state": None}


@contextmanager
def exporter(root: Path, url: str, interval: float) -> Iterator[subprocess.Popen[bytes]]:
    """The program as an operator runs it."""
    command = [
        sys.executable, "-m", "node_exporter", "run", "--root", str(root), "--node-name", "bench", "--push", url,
        "--interval", str(interval), "--kubelet-version", "v1.36.2", "--listen", "127.0.0.1:0",
        "--log-level", "warning",
    ]  # fmt: skip
    process = subprocess.Popen(command, env=os.environ)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mebibytes(pid: int) -> float:
    """The largest resident size of a process so far."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return int(match[1]) / 1024


def measure(name: str, root: Path, cpus: int, seconds: float, changes_per_second: float) -> None:
    """Run one phase, and print its line."""
    extender = FakeExtender()
    write_state(root, state(cpus, 0))
    latencies: list[float] = []
    with exporter(root, extender.url, interval=30.0) as process:
        extender.wait_for(lambda told: told.reports)
        start_cpu = cpu_seconds(process.pid)
        started = time.monotonic()
        turn = 0
        while time.monotonic() - started < seconds:
            if not changes_per_second:
                time.sleep(min(1.0, seconds))
                continue
            turn += 1
            write_state(root, state(cpus, turn))
            at = time.monotonic()
            wanted = f'"change-{turn}"'.encode()
            extender.wait_for(lambda told, wanted=wanted: wanted in told.messages[-1].body)  # type: ignore[misc]
            latencies.append(extender.messages[-1].at - at)
            time.sleep(max(0.0, started + turn / changes_per_second - time.monotonic()))
        elapsed = time.monotonic() - started
        used = cpu_seconds(process.pid) - start_cpu
        memory = peak_mebibytes(process.pid)
    sent = sum(message.sent_bytes for message in extender.messages) / elapsed * 3600
    line = {
        "phase": name,
        "seconds": round(elapsed, 1),
        "cpu_percent_of_a_core": round(100 * used / elapsed, 3),
        "start_cpu_seconds": round(start_cpu, 2),
        "peak_mib": round(memory, 1),
        "messages": len(extender.messages),
        "report_bytes": len(extender.messages[0].body),
        "report_bytes_sent": extender.messages[0].sent_bytes,
        "bytes_per_hour": round(sent),
    }
    if latencies:
        line["latency_ms_median"] = round(1000 * statistics.median(latencies), 1)
        line["latency_ms_p99"] = round(1000 * statistics.quantiles(latencies, n=100)[98], 1) if latencies[1:] else 0
        line["latency_ms_max"] = round(1000 * max(latencies), 1)
    click.echo(json.dumps(line))
    extender.close()


def storm(root: Path, cpus: int, changes: int) -> None:
    """Write as fast as possible, and see how soon the extender holds the last state."""
    extender = FakeExtender()
    with exporter(root, extender.url, interval=30.0) as process:
        extender.wait_for(lambda told: told.reports)
        started = time.monotonic()
        for turn in range(changes):
            write_state(root, state(cpus, turn))
        last = time.monotonic()
        wanted = f'"change-{changes - 1}"'.encode()
        extender.wait_for(lambda told: wanted in told.messages[-1].body)
        click.echo(json.dumps({
            "phase": "storm", "changes": changes, "written_in_seconds": round(last - started, 2),
            "newest_held_after_ms": round(1000 * (extender.messages[-1].at - last), 1),
            "reports_sent": len(extender.reports), "peak_mib": round(peak_mebibytes(process.pid), 1),
        }))  # fmt: skip
    extender.close()


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="For the idle and the busy phase together.")
@click.option("--cpus", default=128, show_default=True)
@click.option("--pods", default=60, show_default=True)
@click.option("--devices", default=16, show_default=True)
def main(minutes: float, cpus: int, pods: int, devices: int) -> None:
    """Measure the exporter."""
    with tempfile.TemporaryDirectory() as directory:
        root = write_scenario(Path(directory), scenario(cpus), state(cpus, 0))
        kubelet = FakeKubelet(root / SOCKET)
        kubelet.pods = [pod(f"pod-{index}") for index in range(pods)]
        kubelet.devices = {"example.com/gpu": {f"gpu-{index}": [index % 2] for index in range(devices)}}
        kubelet.cpus = range(1, cpus)
        kubelet.start()
        measure("idle", root, cpus, minutes * 30, 0)
        measure("busy", root, cpus, minutes * 30, 1)
        storm(root, cpus, 1000)
        kubelet.stop()


if __name__ == "__main__":
    main()
