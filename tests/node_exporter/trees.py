"""Write the files of a node: a directory tree from which the exporter must report exactly what it was made from.

A scenario (design §4: machine, kubelet, and a step's `state_before`) becomes /sys, /proc and /var/lib/kubelet below a
directory. The tree is written independently of the exporter's code: it shares no parser with it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BOOT_ID = "5a1f0f5e-6f0f-4c8e-9f0e-0123456789ab"
KUBELET_DIR = "var/lib/kubelet"
PAGE_KILOBYTES = {"Ki": 1, "Mi": 1024, "Gi": 1024**2}

Json = Mapping[str, Any]


def write_scenario(root: Path, scenario: Json, state: Json | None = None) -> Path:
    """Write the node of a scenario, with `state` (a `state_before`) as the kubelet's state files. Returns `root`."""
    write_machine(root, scenario["machine"])
    write_kubelet_config(root, scenario["kubelet"])
    write_state(root, state or {})
    return root


def write_text(path: Path, text: str) -> None:
    """Write a file and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def replace_text(path: Path, text: str) -> None:
    """Replace a file as the kubelet does: write another one and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    temporary.rename(path)


def write_machine(root: Path, machine: Json) -> None:
    """Write /sys and /proc of a machine (design §4), such that cadvisor would discover it."""
    cpus = machine["cpus"]
    system = root / "sys/devices/system"
    write_text(system / "cpu/online", f"{','.join(str(cpu[0]) for cpu in cpus)}\n")
    for cpu, core_id, socket, numa, _ in cpus:
        topology = system / f"cpu/cpu{cpu}/topology"
        write_text(topology / "core_id", f"{core_id}\n")
        write_text(topology / "physical_package_id", f"{socket}\n")
        link = system / f"node/node{numa}/cpu{cpu}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../cpu/cpu{cpu}")
    _write_caches(system, cpus)
    for node in machine["numa"]:
        _write_numa_node(system / f"node/node{node['id']}", node)
    sockets = machine.get("num_sockets") or len({cpu[2] for cpu in cpus})
    lines = (f"processor\t: {index}\nphysical id\t: {index % sockets}\n" for index in range(max(sockets, len(cpus))))
    write_text(root / "proc/cpuinfo", "\n".join(lines))
    kilobytes = sum(node["memory"] for node in machine["numa"]) // 1024
    write_text(root / "proc/meminfo", f"MemTotal:       {kilobytes} kB\n")
    write_text(root / "proc/sys/kernel/random/boot_id", f"{BOOT_ID}\n")


def write_kubelet_config(root: Path, kubelet: Json) -> None:
    """Write /var/lib/kubelet/config.yaml so that the effective configuration is that of a scenario."""
    document = {key: value for key, value in kubelet.items() if key != "reservation"}
    reservation = dict(kubelet.get("reservation", {}))
    document |= {"systemReserved": reservation, "evictionHard": {"memory.available": "0"}}
    write_text(root / KUBELET_DIR / "config.yaml", json.dumps(document))
    write_command_line(root, ["/usr/bin/kubelet", f"--config=/{KUBELET_DIR}/config.yaml"])


def write_command_line(root: Path, words: Iterable[str], pid: int = 812) -> None:
    """Write the command line of a running process."""
    write_text(root / f"proc/{pid}/cmdline", "\0".join(words) + "\0")


def write_state(root: Path, state: Json) -> None:
    """Replace the state files that `state` names, one after another, as the kubelet does."""
    for name, document in state.items():
        directory = "device-plugins/" if name == "kubelet_internal_checkpoint" else ""
        if document is not None:
            replace_text(root / KUBELET_DIR / f"{directory}{name}", json.dumps(document))
    (root / KUBELET_DIR / "device-plugins").mkdir(parents=True, exist_ok=True)


def _write_caches(system: Path, cpus: list[list[Any]]) -> None:
    """A level 1 cache for each CPU, and the uncore cache where there is one.

    A level 3 cache that exactly one NUMA node shares is no uncore cache to cadvisor, hence the extra bit in its mask.
    """
    for cpu, core_id, socket, numa, uncore in cpus:
        threads = [row[0] for row in cpus if row[1:4] == [core_id, socket, numa]]
        _write_cache(system / f"cpu/cpu{cpu}/cache/index0", level=1, identity=cpu, sharing=threads)
        if uncore is not None:
            sharing = [row[0] for row in cpus if row[4] == uncore]
            cores = {tuple(row[1:3]) for row in cpus if row[3] == numa}
            if len(sharing) == len(cores) * len(threads):
                sharing.append(max(row[0] for row in cpus) + 1)
            _write_cache(system / f"cpu/cpu{cpu}/cache/index3", level=3, identity=uncore, sharing=sharing)


def _write_cache(directory: Path, *, level: int, identity: int, sharing: list[int]) -> None:
    mask = f"{sum(1 << cpu for cpu in sharing):x}"
    groups = [mask[max(0, end - 8) : end] for end in range(len(mask), 0, -8)]
    files = {
        "id": identity,
        "size": "512K",
        "level": level,
        "type": "Unified",
        "shared_cpu_map": ",".join(groups[::-1]),
    }
    for name, value in files.items():
        write_text(directory / name, f"{value}\n")


def _write_numa_node(directory: Path, node: Json) -> None:
    write_text(directory / "meminfo", f"Node {node['id']} MemTotal:       {node['memory'] // 1024} kB\n")
    if node["distances"] is not None:
        write_text(directory / "distance", " ".join(str(distance) for distance in node["distances"]) + "\n")
    for size, pages in node["hugepages"].items():
        kilobytes = int(size[:-2]) * PAGE_KILOBYTES[size[-2:]]
        write_text(directory / f"hugepages/hugepages-{kilobytes}kB/nr_hugepages", f"{pages}\n")
