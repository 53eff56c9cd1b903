"""The merges of a pod's admission, in the order in which the kubelet's providers are asked.

Where free amounts decide an admission, only these merges and the amounts matter. `cluster.free_table` has the rest.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from extender.kubelet.pod import INT64_MAX, ContainerRequest, PodRequest
from extender.replay.alignment_demand import CPU


class PodStep(NamedTuple):
    """One merge of an admission: what is wanted of each resource, in the order in which providers are asked.

    `stays`: what is taken stays taken while later containers are admitted.
    """

    wanted: tuple[tuple[str, int], ...]
    memory: Mapping[str, int]
    cpus: int
    stays: bool


class PodSteps:
    """The merges of one pod under the rules of a kubelet. Immutable."""

    __slots__ = ("_by_pod", "_cpus_of_containers", "by_container", "cpus", "memory_types")

    def __init__(self, pod: PodRequest) -> None:
        self.by_container: Final = _steps_by_container(pod)
        """The steps in scope container. In scope pod they also say what the pod takes."""
        self._by_pod = _steps_by_pod(pod, self.by_container)
        self._cpus_of_containers = tuple(c.cpus for c in pod.containers)
        self.cpus = sum(self._cpus_of_containers)
        self.memory_types = frozenset(name for c in pod.containers for name in c.memory_bytes or ())

    def of(self, *, by_pod: bool) -> tuple[PodStep, ...] | None:
        """The merges of the admission in scope pod or container; None where free amounts decide none."""
        return self._by_pod if by_pod else self.by_container

    def takes_whole_cores(self, cpus_per_core: int) -> bool:
        """Whether each container requests a multiple of a core's CPUs."""
        return all(cpus % cpus_per_core == 0 for cpus in self._cpus_of_containers)


def _is_plain(container: ContainerRequest) -> bool:
    """Whether free amounts can decide the container's requests."""
    memory = container.memory_bytes
    return (
        not (container.reusable and (container.cpus or container.devices))
        and not container.dra_resources
        and (memory is None or (len(memory) > 0 and max(memory.values()) <= INT64_MAX))
        and all(container.devices.values())
    )


def _step(cpus: int, memory: Mapping[str, int], devices: Mapping[str, int], *, stays: bool) -> PodStep:
    wanted = [*devices.items(), *([(CPU, cpus)] if cpus else []), *memory.items()]
    return PodStep(tuple(wanted), memory, cpus, stays)


def _steps_by_container(pod: PodRequest) -> tuple[PodStep, ...] | None:
    if pod.pod_level is not None or not all(map(_is_plain, pod.containers)):
        return None
    return tuple(_step(c.cpus, c.memory_bytes or {}, c.devices, stays=not c.reusable) for c in pod.containers)


def _steps_by_pod(pod: PodRequest, by_container: tuple[PodStep, ...] | None) -> tuple[PodStep, ...] | None:
    """The merge in scope pod.

    A NUMA node with room for the totals has room for each container in turn, if all types of memory are in the totals.
    """
    types = {name for c in pod.containers for name in c.memory_bytes or ()}
    if by_container is None or types != pod.total_memory_bytes.keys():
        return None
    return (_step(pod.total_cpus, pod.total_memory_bytes, pod.total_devices, stays=True),)
