"""The kinds of nodes of the drill, as scenario documents."""

from typing import Any

Json = dict[str, Any]
GIB = 1 << 30
GPU, NIC = "gpu.example/gpu", "nic.example/vf"
Kind = tuple[str, str, str, dict[str, str], int]
GROUPS = 14
"""Nodes whose numbers differ by a multiple of this are alike."""
GROUP_LABEL = "node.example/group"
KINDS: tuple[Kind, ...] = (
    ("1.36", "single-numa-node", "container", {}, 2),
    ("1.35", "single-numa-node", "pod", {"full-pcpus-only": "true"}, 2),
    ("1.33", "restricted", "container", {}, 4),
    ("1.31", "restricted", "pod", {}, 2),
    ("1.29", "best-effort", "container", {"full-pcpus-only": "true"}, 4),
    ("1.27", "single-numa-node", "container", {}, 4),
    ("1.34", "none", "container", {}, 2),
)
"""Kubelet version, topology policy and scope, CPU manager options, NUMA nodes."""
SPREADING: tuple[Kind, ...] = (("1.36", "restricted", "container", {"distribute-cpus-across-cores": "true"}, 2),)
"""Nodes where the fix `spread_by_topology` shows."""


LENIENT: tuple[Kind, ...] = (
    ("1.36", "best-effort", "container", {}, 2),
    ("1.35", "none", "container", {}, 4),
    ("1.33", "best-effort", "pod", {}, 4),
    ("1.31", "best-effort", "container", {"full-pcpus-only": "true"}, 4),
    ("1.34", "none", "container", {}, 2),
)
"""Nodes whose kubelets refuse no pod for its alignment."""


def scenario(number: int, kinds: tuple[Kind, ...] = KINDS) -> Json:
    """Node *number*: 16 or 32 CPUs, 16 GiB and two GPUs a NUMA node, two NICs."""
    version, policy, scope, options, numas = kinds[number % len(kinds)]
    cores = numas * 4
    cpus = [[t * cores + c, c, c * 2 // cores, c // 4, None] for t in range(2) for c in range(cores)]
    distances = [
        [10 if a == b else 12 if a * 2 // numas == b * 2 // numas else 32 for b in range(numas)] for a in range(numas)
    ]
    numa = [{"id": i, "memory": 16 * GIB, "hugepages": {}, "distances": distances[i]} for i in range(numas)]
    devices = {
        GPU: [{"id": f"gpu{i}", "numa": [i // 2], "healthy": True} for i in range(2 * numas)],
        NIC: [{"id": f"vf{i}", "numa": [i], "healthy": True} for i in range(2)],
    }
    return {
        "version": f"v{version}.0",
        "machine": {"cpus": sorted(cpus), "numa": numa, "num_sockets": 2},
        "kubelet": {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": options,
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": i, "limits": {"memory": "1Gi"}} for i in range(numas)],
            "topologyManagerPolicy": policy,
            "topologyManagerScope": scope,
            "topologyManagerPolicyOptions": {},
            "reservedSystemCPUs": f"0,{cores}",
            "featureGates": {"CPUManagerPolicyAlphaOptions": True} if kinds is SPREADING else {},
            "reservation": {"cpu": "2", "memory": f"{numas}Gi"},
        },
        "devices": devices if number % 2 == 0 else {},
    }


def allocatable(scenario_: Json) -> dict[str, int]:
    """What kube-scheduler counts against: thousandths of CPUs, bytes, devices."""
    numas = len(scenario_["machine"]["numa"])
    totals = {"cpu": 1000 * (len(scenario_["machine"]["cpus"]) - 2), "memory": 15 * GIB * numas}
    return totals | {resource: len(devices) for resource, devices in scenario_["devices"].items()}


def quantities(amounts: dict[str, int]) -> dict[str, str]:
    """Amounts as the API writes them."""
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}
