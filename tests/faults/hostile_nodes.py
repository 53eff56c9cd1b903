"""Reports that are correct by their form and describe nodes whose replay would take for ever.

Each is what one node with a valid token may send.
"""

from typing import Any

from tests.reports import report_of, sample

JSON = dict[str, Any]
NIC = "vendor.example/nic"


def honest(name: str) -> JSON:
    """A node with two NUMA nodes of 16 CPUs."""
    return report_of(sample(name))


def many_numa_nodes(name: str, numa_nodes: int = 64, *, sequence: int = 1) -> JSON:
    """One CPU on each NUMA node, policy none and distribute-cpus-across-numa: C(64, 8) sets for eight CPUs."""
    report = bare(name, numa_nodes, sequence=sequence)
    report["kubelet"] |= {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"},
        "reservation": {"cpu": "1"},
    }
    shared = f"0-{numa_nodes - 1}"
    report["state"]["cpu_manager_state"] = {"policyName": "static", "defaultCpuSet": shared}
    return report


def uneven_numa_nodes(name: str, numa_nodes: int = 24) -> JSON:
    """NUMA nodes with different numbers of CPUs: nothing makes the search for the best set of nodes short."""
    report = many_numa_nodes(name, numa_nodes)
    cpus = [numa for numa in range(numa_nodes) for _ in range(1 + numa * 7 % 11)]
    report["machine"]["cpus"] = [[cpu, cpu, 0, numa, None] for cpu, numa in enumerate(cpus)]
    report["state"]["cpu_manager_state"]["defaultCpuSet"] = f"0-{len(cpus) - 1}"
    return report


def many_kinds_of_devices(name: str, kinds: int = 1500) -> JSON:
    """Devices of which no two have the same set of NUMA nodes."""
    report = bare(name, 16)
    report["kubelet"] |= {
        "topologyManagerPolicy": "best-effort",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"},
    }
    report["devices"] = {
        NIC: [
            {"id": f"nic-{kind}", "numa": [i for i in range(16) if kind >> i & 1], "healthy": True}
            for kind in range(1, kinds + 1)
        ]
    }
    report["state"]["kubelet_internal_checkpoint"] = {"Data": {"PodDeviceEntries": None}}
    return report


def bare(name: str, numa_nodes: int, *, sequence: int = 1) -> JSON:
    """One CPU and a gibibyte on each NUMA node; no manager does anything."""
    distances = [[10 if i == j else 20 for j in range(numa_nodes)] for i in range(numa_nodes)]
    return {
        "schema_version": 1,
        "node_name": name,
        "boot_id": "boot-1",
        "sequence": sequence,
        "observed_at": 1_790_000_000.0,
        "kubelet_version": "v1.36.2",
        "machine": {
            "cpus": [[i, i, 0, i, None] for i in range(numa_nodes)],
            "numa": [
                {"id": i, "memory": 1 << 30, "hugepages": {}, "distances": distances[i]} for i in range(numa_nodes)
            ],
            "num_sockets": 1,
        },
        "kubelet": {},
        "devices": {},
        "state": {},
        "pods": [],
        "zones": [],
        "problems": [],
    }
