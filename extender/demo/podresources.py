"""The kubelet's podresources service of a sample node, on its unix socket.

The messages are written in protobuf's wire format by hand: three kinds of fields are all that these answers need, and
the exporter's generated classes are none of ours. Field numbers: k8s.io/kubelet podresources v1.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from extender.replay.sets import iter_bits
from extender.replay.state import Block, Device
from extender.samples.files import KUBELET_DIR
from extender.samples.nodes import SampleNode

_VARINT, _LENGTH = 0, 2


def serve_podresources(root: Path, node: SampleNode) -> grpc.Server:
    """Answer List and GetAllocatableResources for *node* below *root*; stop the server that comes back."""
    socket = root / KUBELET_DIR / "pod-resources/kubelet.sock"
    socket.parent.mkdir(parents=True)
    answers = {"List": _listed(node), "GetAllocatableResources": _allocatable(node)}
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        method: grpc.unary_unary_rpc_method_handler(lambda _request, _context, answer=answer: answer)
        for method, answer in answers.items()
    }
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _listed(node: SampleNode) -> bytes:
    """ListPodResourcesResponse: pod_resources=1."""
    return b"".join(_message(1, _pod(node, pod["metadata"])) for pod in node.pods)


def _pod(node: SampleNode, metadata: dict[str, str]) -> bytes:
    """PodResources: name=1, namespace=2, containers=3; ContainerResources: name=1, devices=2, cpu_ids=3, memory=4."""
    state, uid = node.state, metadata["uid"]
    cpus = state.cpu.entries.get(uid, {}).get("app", 0)
    blocks = state.memory.entries.get(uid, {}).get("app", ())
    held = state.devices.entries.get(uid, {}).get("app", {})
    container = _text(1, "app")
    for resource, ids in held.items():
        known = state.devices.devices[resource]
        container += b"".join(_message(2, _device(resource, i, known[i])) for i in sorted(ids))
    container += _numbers(3, iter_bits(cpus)) + b"".join(_message(4, _memory(block)) for block in blocks)
    return _text(1, metadata["name"]) + _text(2, metadata["namespace"]) + _message(3, container)


def _allocatable(node: SampleNode) -> bytes:
    """AllocatableResourcesResponse: devices=1, cpu_ids=2, memory=3."""
    devices = (
        _message(1, _device(resource, device_id, device))
        for resource, known in node.state.devices.devices.items()
        for device_id, device in known.items()
    )
    cpus = node.kubelet.allocatable_cpus if node.kubelet.cpu_static else 0
    return b"".join(devices) + _numbers(2, iter_bits(cpus))


def _device(resource: str, device_id: str, device: Device) -> bytes:
    """ContainerDevices: resource_name=1, device_ids=2, topology=3."""
    return _text(1, resource) + _text(2, device_id) + _message(3, _topology(device.numa or 0))


def _memory(block: Block) -> bytes:
    """ContainerMemory: memory_type=1, size=2, topology=3."""
    return _text(1, block.type) + _number(2, block.size) + _message(3, _topology(block.mask))


def _topology(numa: int) -> bytes:
    """TopologyInfo: nodes=1; NUMANode: ID=1."""
    return b"".join(_message(1, _number(1, i)) for i in iter_bits(numa))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _numbers(field: int, values: Iterable[int]) -> bytes:
    return b"".join(_number(field, value) for value in values)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | _LENGTH) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())
