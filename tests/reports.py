"""Node reports as documents, for tests: a sample node of the demo, as its exporter would report it."""

from collections.abc import Mapping
from typing import Any

from extender.samples.files import state_documents
from extender.samples.machines import Hardware
from extender.samples.nodes import Description, Reserved, SampleNode, Workload, make_node

STATIC: Mapping[str, Any] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "container",
}
DUAL = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=8, threads=2, memory_gib=32, distances=(10, 21))
"""2 NUMA nodes of 16 CPUs and 32 GiB."""


def sample(
    name: str = "node-a",
    *,
    hardware: Hardware = DUAL,
    version: str = "v1.36.2",
    workloads: list[Workload] | None = None,
    devices: dict[str, list[int]] | None = None,
    memory_gib_reserved: int = 1,
    **kubelet: object,
) -> SampleNode:
    """A node with 2 reserved CPUs; *kubelet* overrides fields of the configuration."""
    description = Description(
        name=name,
        about="",
        kubelet_version=version,
        hardware=hardware,
        kubelet={**STATIC, **kubelet},
        reserved=Reserved(cpus=2, memory_gib_per_numa=memory_gib_reserved),
        devices=devices or {},
        workloads=workloads or [],
    )
    return make_node(description)


def report_of(node: SampleNode, *, sequence: int = 1, boot_id: str = "boot-1") -> dict[str, Any]:
    """The node's report, as JSON to be."""
    machine, config = node.kubelet.machine, node.kubelet.config
    reservation = {"cpu": f"{config.reservation_cpu_milli}m"}
    reservation |= {name: str(amount) for name, amount in config.reservation_bytes.items()}
    kubelet = {k: v for k, v in node.configuration.items() if k not in ("apiVersion", "kind", "systemReserved")}
    return {
        "schema_version": 1,
        "node_name": node.name,
        "boot_id": boot_id,
        "sequence": sequence,
        "observed_at": 1_790_000_000.0 + sequence,
        "kubelet_version": node.description.kubelet_version,
        "machine": {
            "cpus": [list(cpu) for cpu in machine.cpus],
            "numa": [
                {
                    "id": numa.id,
                    "memory": numa.memory_bytes,
                    "hugepages": {f"{size >> 30}Gi": pages for size, pages in numa.hugepages.items()},
                    "distances": list(numa.distances),
                }
                for numa in machine.numa_nodes
            ],
            "num_sockets": machine.num_sockets,
        },
        "kubelet": {**kubelet, "reservation": reservation},
        "devices": {
            resource: [{"id": i, "numa": _ids(d.numa), "healthy": d.healthy} for i, d in devices.items()]
            for resource, devices in node.state.devices.devices.items()
        },
        "state": state_documents(node),
        "pods": [
            {
                "namespace": "demo",
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
                "counted": True,
                "containers": [],
            }
            for pod in node.pods
        ],
        "zones": [],
        "problems": [],
    }


def _ids(numa: int | None) -> list[int] | None:
    return None if numa is None else [i for i in range(64) if numa >> i & 1]


def pod_of(
    cpu: int | str = 2, memory: str = "1Gi", *, name: str = "p", devices: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """A Guaranteed v1.Pod of one container."""
    amounts = {"cpu": str(cpu), "memory": memory, **{k: str(v) for k, v in (devices or {}).items()}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "app", "image": "i", "resources": {"limits": amounts, "requests": amounts}}]},
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def with_init(pod: dict[str, Any], cpu: int | str, memory: str) -> dict[str, Any]:
    """The pod, to which an init container with these limits is added before its containers."""
    amounts = {"cpu": str(cpu), "memory": memory}
    init = {"name": "init", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    pod["spec"]["initContainers"] = [init]
    return pod


def args_of(pod: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A filter or prioritize request by node names."""
    return {"Pod": pod, "Nodes": None, "NodeNames": list(names)}
