"""The machines and kubelet configurations of the nodes: those of the drill, and recorded ones in between."""

import json
import lzma
from collections import Counter
from functools import cache
from pathlib import Path

from tests.drill import machines
from tests.live.api import Json
from tests.oracle.amounts import milli, parse_cpus, whole

VECTORS = Path(__file__).parents[1] / "vectors"
RECORDED = (("1.36", 40, 2), ("1.34", 24, 3), ("1.36", 26, 2), ("1.33", 48, 4), ("1.36", 64, 4), ("1.34", 32, 4))
"""Version, CPUs, NUMA nodes: the first recorded scenario with such a machine, managers static and a strict policy."""
STRICT = ("single-numa-node", "restricted")


def scenario(number: int) -> Json:
    """What node *number* is: machine, kubelet, devices, version. Every second one was recorded, with its options."""
    if number % 2 == 0:
        return machines.scenario(number // 2)
    return _recorded(*RECORDED[number // 2 % len(RECORDED)])


def allocatable(scenario_: Json) -> dict[str, int]:
    """What the kubelet offers: thousandths of CPUs, bytes of memory and of huge pages, healthy devices."""
    machine, kubelet = scenario_["machine"], scenario_["kubelet"]
    reservation = kubelet.get("reservation") or {}
    reserved = 1000 * len(parse_cpus(kubelet.get("reservedSystemCPUs") or "")) or milli(reservation.get("cpu", 0))
    pages: Counter[str] = Counter()
    for node in machine["numa"]:
        pages.update({f"hugepages-{size}": whole(size) * count for size, count in node["hugepages"].items()})
    memory = sum(node["memory"] for node in machine["numa"]) - pages.total() - whole(reservation.get("memory", 0))
    devices = {resource: len(listed) for resource, listed in scenario_["devices"].items()}
    return {"cpu": 1000 * len(machine["cpus"]) - reserved, "memory": memory, **pages, **devices}


@cache
def _recorded(version: str, cpus: int, numas: int) -> Json:
    """Its devices get the names that the pods ask for, and are all healthy."""
    with lzma.open(VECTORS / f"kubelet-{version}.jsonl.xz", "rt") as lines:
        for line in lines:
            found = json.loads(line)
            kubelet = found["kubelet"]
            if (
                (len(found["machine"]["cpus"]), len(found["machine"]["numa"])) == (cpus, numas)
                and kubelet.get("topologyManagerPolicy") in STRICT
                and kubelet.get("cpuManagerPolicy") == "static"
                and kubelet.get("memoryManagerPolicy") == "Static"
                and not found.get("kubelet_error")
                and not found.get("rules")
            ):
                break
        else:
            raise LookupError(f"no recorded scenario with {cpus} CPUs on {numas} NUMA nodes in {version}")
    names = zip((machines.GPU, machines.NIC), found["devices"].values(), strict=False)
    devices = {name: [{**device, "healthy": True} for device in listed] for name, listed in names}
    return {
        "version": f"v{version}.0",
        "machine": found["machine"],
        "kubelet": kubelet,
        "devices": devices,
    }
