"""The kubelet's podresources service of a sample node, on its unix socket."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from extender.kubelet.sets import iter_bits
from extender.kubelet.state import Device
from extender.samples.files import KUBELET_DIR
from extender.samples.nodes import SampleNode
from node_exporter._podresources import podresources_pb2 as pb


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
