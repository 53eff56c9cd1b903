"""The reply of GET /v1/machines."""

from typing import Annotated

from extender.samples.machines import CATALOGUE
from extender.wire.replies import ReplyBody, about


class MachineShape(ReplyBody):
    """A machine shape that a question can name."""

    name: Annotated[str, about("Name for `machine` in a question.")]
    about: Annotated[str, about("Short description.")]
    sockets: Annotated[int, about("CPU sockets.")]
    numa_nodes: Annotated[int, about("NUMA nodes of all sockets.")]
    cpus: Annotated[int, about("Logical CPUs.")]
    threads: Annotated[int, about("Threads of each core.")]
    memory_bytes: Annotated[int, about("Memory of all NUMA nodes, in bytes.")]
    devices: Annotated[dict[str, int], about("Devices by resource.")]


class MachineIndex(ReplyBody):
    """The catalogue."""

    machines: Annotated[list[MachineShape], about("By name.")]


def machine_index() -> MachineIndex:
    """The catalogue of machine shapes."""
    return MachineIndex(
        machines=[
            MachineShape.filled(
                shape.hardware,
                name=name,
                about=shape.about,
                numa_nodes=len(shape.hardware.numa_ids),
                memory_bytes=len(shape.hardware.numa_ids) * shape.hardware.memory_gib << 30,
                devices={resource: len(numas) for resource, numas in shape.devices.items()},
            )
            for name, shape in CATALOGUE.items()
        ]
    )
