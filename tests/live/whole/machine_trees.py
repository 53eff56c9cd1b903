"""Recorded machines: /sys and /proc of each, and what its kubelet is configured to do."""

import json
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.drill.machines import GPU, NIC
from tests.live.api import Json

SETTING = "LIVE_MACHINES"
DIRECTORY = Path(__file__).parents[4] / "shared/machines"
VERSION = "v1.36.2"
"""Whose rules the restated kubelets follow on these machines."""
NEEDED = re.compile(r"proc/(cpuinfo|meminfo)|sys/devices/system/(cpu|node)(/.*)?|sys/kernel/mm/hugepages(/.*)?")
HUGE_PAGES = "sys/kernel/mm/hugepages"


class Shape(NamedTuple):
    """A machine, and the topology policy, scope and CPU manager options of its kubelet."""

    machine: str
    policy: str
    scope: str
    options: Mapping[str, str]


SHAPES = (
    Shape("32intel64-2p8co2t+8ve", "single-numa-node", "container", {}),
    Shape("16amd64-4n4c-cgroup-distance-merge", "restricted", "container", {}),
    Shape("32em64t-2n8c+dax+nvme+mic+dimms", "single-numa-node", "pod", {"full-pcpus-only": "true"}),
    Shape("40intel64-4n10c+pci-conflicts", "restricted", "pod", {}),
    Shape("32intel64-2p8co2t+8ve", "restricted", "container", {"full-pcpus-only": "true"}),
    Shape("32amd64-4s2n4c-cgroup2", "single-numa-node", "container", {}),
    Shape("40intel64-2g2n4c+pcilocality", "best-effort", "container", {}),
    Shape("64amd64-4s2n4ca2co", "restricted", "container", {}),
)


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the archives are: the setting, or beside the project."""
    return Path(environ.get(SETTING) or DIRECTORY)


def missing(environ: Mapping[str, str] = os.environ) -> str:
    """Which archive of `SHAPES` is not there, and where it was looked for; empty: all are."""
    where = directory(environ)
    absent = sorted({s.machine for s in SHAPES if not (where / f"{s.machine}.tar.xz").is_file()})
    return f"recorded machines {', '.join(absent)} are not in {where} ({SETTING} names another directory)" * bool(
        absent
    )


def unpack(number: int, target: Path) -> None:
    """Write the machine of node *number* below *target*."""
    with tarfile.open(directory() / f"{_shape(number).machine}.tar.xz") as archive:
        members = [member for member in archive if NEEDED.fullmatch(member.name)]
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # since 3.11.4
        archive.extractall(target, members)
    (target / HUGE_PAGES).mkdir(parents=True, exist_ok=True)


def scenario(number: int) -> Json:
    """What node *number* is, as the scenarios of the restated kubelets: machine, kubelet, devices, version.

    CPU 0 and its siblings are reserved, and 1 GiB on each NUMA node. Every second node has two GPUs on each NUMA node,
    and a NIC on each of two.
    """
    shape = _shape(number)
    machine = json.loads((directory() / f"{shape.machine}.expected.json").read_text())["machine"]
    core = next(row[1:3] for row in machine["cpus"] if row[0] == 0)
    numas = sorted(node["id"] for node in machine["numa"])
    devices = {
        GPU: [{"id": f"gpu{i}", "numa": [numas[i // 2]], "healthy": True} for i in range(2 * len(numas))],
        NIC: [{"id": f"vf{i}", "numa": [numas[i]], "healthy": True} for i in range(2)],
    }
    return {
        "version": VERSION,
        "machine": machine,
        "kubelet": {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": dict(shape.options),
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": numa, "limits": {"memory": "1Gi"}} for numa in numas],
            "topologyManagerPolicy": shape.policy,
            "topologyManagerScope": shape.scope,
            "topologyManagerPolicyOptions": {},
            "reservedSystemCPUs": ",".join(str(row[0]) for row in machine["cpus"] if row[1:3] == core),
            "featureGates": {},
            "reservation": {"memory": f"{len(numas)}Gi"},
        },
        "devices": devices if number % 2 == 0 else {},
    }


def _shape(number: int) -> Shape:
    return SHAPES[number % len(SHAPES)]
