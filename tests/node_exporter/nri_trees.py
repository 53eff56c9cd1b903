"""Write the /sys and /proc of a machine snapshot of the NRI recordings, and the plugin's state file.

The trees are written independently of the exporter's code: they share no parser with it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.node_exporter.trees import replace_text, write_text

TYPES = {"D": "Data", "I": "Instruction", "U": "Unified"}
SYSTEM = "sys/devices/system"


def write_nri_machine(root: Path, snapshot: Mapping[str, Any]) -> None:
    """Write the files that the plugin's discovery reads."""
    system = root / SYSTEM
    rows = [dict(zip(snapshot["cpu_cols"], row, strict=True)) for row in snapshot["cpus"]]
    for name in ("isolated", "online"):
        write_text(system / f"cpu/{name}", f"{snapshot[name]}\n")
    has_numa = snapshot["source"] != "no NUMA directory"
    for row in rows:
        _write_cpu(system, row, snapshot, has_numa=has_numa)
    if snapshot["E"]:
        write_text(root / "sys/devices/cpu_core/cpus", f"{snapshot['P']}\n")
        write_text(root / "sys/devices/cpu_atom/cpus", f"{snapshot['E']}\n")
    if has_numa:
        _write_nodes(system / "node", snapshot["nodes"])
    write_text(root / "proc/meminfo", f"MemTotal:       {snapshot['memTotal'] // 1024} kB\n")


def _write_cpu(system: Path, row: Mapping[str, Any], snapshot: Mapping[str, Any], *, has_numa: bool) -> None:
    directory = system / f"cpu/cpu{row['id']}"
    directory.mkdir(parents=True)
    if has_numa:
        (directory / f"node{row['node']}").symlink_to(f"../../node/node{row['node']}")
    if not row["online"]:
        return
    topology = {"physical_package_id": "package", "die_id": "die", "cluster_id": "cluster", "core_id": "core"}
    for name, column in topology.items():
        write_text(directory / "topology" / name, f"{row[column]}\n")
    write_text(directory / "topology/core_cpus_list", f"{row['threads']}\n")
    if row["base_khz"]:
        write_text(directory / "cpufreq/base_frequency", f"{row['base_khz']}\n")
    if row["epp"]:
        write_text(directory / "cpufreq/energy_performance_preference", f"{row['epp']}\n")
    for index, position in enumerate(row["caches"]):
        cache = dict(zip(snapshot["cache_cols"], snapshot["caches"][position], strict=True))
        files = {
            "id": cache["id"],
            "level": cache["level"],
            "type": TYPES[cache["type"]],
            "shared_cpu_list": cache["cpus"],
            "size": f"{cache['bytes'] // 1024}K",
        }
        for name, value in files.items():
            write_text(directory / f"cache/index{index}" / name, f"{value}\n")


def _write_nodes(directory: Path, nodes: list[dict[str, Any]]) -> None:
    special = [node["id"] for node in nodes if not node["cpus"]]
    lists = {
        "online": [node["id"] for node in nodes],
        "has_memory": [node["id"] for node in nodes if node["mem"] or node["id"] in special],
        "has_normal_memory": [node["id"] for node in nodes if node["normal"]],
    }
    for name, ids in lists.items():
        write_text(directory / name, ",".join(str(id_) for id_ in ids) + "\n")
    for node in nodes:
        below = directory / f"node{node['id']}"
        write_text(below / "cpulist", f"{node['cpus']}\n")
        write_text(below / "distance", " ".join(str(distance) for distance in node["dist"]) + "\n")
        write_text(below / "meminfo", f"Node {node['id']} MemTotal:       {node['mem'] // 1024} kB\n")


GRANT = {
    "PrettyName": "team/solver/app",
    "Exclusive": "4-5",
    "Part": 500,
    "CPUType": 0,
    "Container": "c1",
    "Pool": "NUMA node #1",
    "MemoryPool": 2,
    "MemType": "DRAM",
    "MemSize": 1 << 30,
    "ColdStart": 0,
    "CPUClass": "",
    "Irqs": None,
}
"""As the plugin writes it (`policy/cache.go` cachedGrant); types of memory are text."""


def state_file(grants: Mapping[str, Mapping[str, object]], **changes: object) -> str:
    """The plugin's state file."""
    document = {
        "Version": "1",
        "Pods": {},
        "Containers": {},
        "NextID": 7,
        "Entries": {},
        "PolicyName": "topology-aware",
        "PolicyJSON": {"allocations": json.dumps(grants), "config": "{}"},
    }
    return json.dumps(document | changes)


def write_state_file(root: Path, grants: Mapping[str, Mapping[str, object]], **changes: object) -> None:
    """Put a state file in place, as the plugin does."""
    replace_text(root / "var/lib/nri-resource-policy/cache", state_file(grants, **changes))
