"""The sample nodes at work: the podresources service of each kubelet, and the exporter, which reports once."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import grpc

from extender.kubelet.sets import iter_bits
from extender.kubelet.state import Device
from extender.samples.files import KUBELET_DIR
from extender.samples.nodes import SampleNode
from node_exporter._podresources import podresources_pb2 as pb

PARALLEL = 4
TIMEOUT_SECONDS = 60


class PublishError(Exception):
    """The report of an exporter was not accepted."""


def publish(nodes: Sequence[SampleNode], root: Path, url: str) -> Iterator[str]:
    """Report every node to the extender at *url*. Yields each name when its report is accepted.

    The files of a node are in *root*/NAME.

    Raises:
        PublishError: a report was not accepted. The message is the exporter's.
    """
    with ThreadPoolExecutor(PARALLEL) as pool:
        running = [pool.submit(_publish_one, node, root / node.name, url) for node in nodes]
        for done in as_completed(running):
            yield done.result()


def _publish_one(node: SampleNode, root: Path, url: str) -> str:
    command = [
        *(sys.executable, "-m", "node_exporter", "run", "--once"),
        *("--root", str(root)),
        *("--node-name", node.name),
        *("--kubelet-version", node.description.kubelet_version),
        *("--push", url),
        *("--listen", ""),
    ]
    done = subprocess.run(  # noqa: S603 - our own exporter, with our own arguments
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode:
        raise PublishError(f"{node.name}: {done.stderr.strip()[-500:]}")
    return node.name


def serve_podresources(root: Path, node: SampleNode) -> grpc.Server:
    """Answer List and GetAllocatableResources for *node* below *root*. Stop the returned server when done."""
    socket = root / KUBELET_DIR / "pod-resources/kubelet.sock"
    socket.parent.mkdir(parents=True)
    listed = pb.ListPodResourcesResponse(pod_resources=[_pod(node, pod["metadata"]) for pod in node.pods])
    answers = {"List": listed.SerializeToString(), "GetAllocatableResources": _allocatable(node).SerializeToString()}
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        method: grpc.unary_unary_rpc_method_handler(lambda _request, _context, answer=answer: answer)
        for method, answer in answers.items()
    }
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _pod(node: SampleNode, metadata: dict[str, str]) -> pb.PodResources:
    """One pod with its only container, `app`."""
    state, uid = node.state, metadata["uid"]
    held = state.devices.entries.get(uid, {}).get("app", {})
    app = pb.ContainerResources(
        name="app",
        devices=[_device(r, i, state.devices.devices[r][i]) for r, ids in held.items() for i in sorted(ids)],
        cpu_ids=iter_bits(state.cpu.entries.get(uid, {}).get("app", 0)),
        memory=[
            pb.ContainerMemory(memory_type=block.type, size=block.size, topology=_topology(block.mask))
            for block in state.memory.entries.get(uid, {}).get("app", ())
        ],
    )
    return pb.PodResources(name=metadata["name"], namespace=metadata["namespace"], containers=[app])


def _allocatable(node: SampleNode) -> pb.AllocatableResourcesResponse:
    known = node.state.devices.devices
    return pb.AllocatableResourcesResponse(
        devices=[_device(resource, i, device) for resource, ids in known.items() for i, device in ids.items()],
        cpu_ids=iter_bits(node.kubelet.allocatable_cpus if node.kubelet.cpu_static else 0),
    )


def _device(resource: str, device_id: str, device: Device) -> pb.ContainerDevices:
    return pb.ContainerDevices(resource_name=resource, device_ids=[device_id], topology=_topology(device.numa or 0))


def _topology(numa: int) -> pb.TopologyInfo:
    return pb.TopologyInfo(nodes=[pb.NUMANode(ID=i) for i in iter_bits(numa)])
