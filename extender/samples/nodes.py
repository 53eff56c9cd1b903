"""Sample nodes: their hardware, their pods, and what their kubelets have allocated."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter

from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.samples.machines import CATALOGUE, Hardware, devices_on
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import kubelet_config_from_json

EVICTION_BYTES = 100 << 20
"""The kubelet's default hard eviction threshold, part of the reservation."""


class DescriptionError(Exception):
    """The description of a sample node describes an impossible node."""


class Reserved(BaseModel):
    """Reserved resources: CPUs, and GiB of memory on each NUMA node."""

    model_config = ConfigDict(extra="forbid")
    cpus: int
    memory_gib_per_numa: int


class Workload(BaseModel):
    """Equal pods with one container. `gone`: copies that have ended, so that the node is fragmented."""

    model_config = ConfigDict(extra="forbid")
    name: str
    copies: int = 1
    resources: dict[str, int | str]
    burstable: bool = False
    gone: list[int] = []


def _by_name(value: object) -> object:
    """The hardware of the catalogue machine with this name."""
    return CATALOGUE[value].hardware if isinstance(value, str) else value


class Description(BaseModel):
    """One file of the sample cluster."""

    model_config = ConfigDict(extra="forbid")
    name: str
    about: str
    kubelet_version: str
    hardware: Annotated[Hardware, BeforeValidator(_by_name)]
    kubelet: dict[str, Any]
    reserved: Reserved
    devices: dict[str, list[int]] = {}
    workloads: list[Workload] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleNode:
    """A sample node. `pods`: the running ones, as v1.Pod. `configuration`: a KubeletConfiguration."""

    description: Description
    configuration: Mapping[str, Any]
    kubelet: Kubelet
    state: ManagerState
    pods: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.description.name


_DESCRIPTION = TypeAdapter(Description)


def sample_cluster() -> list[SampleNode]:
    """All sample nodes, by name."""
    texts = [entry.read_text() for entry in files(__package__).joinpath("cluster").iterdir() if ".yaml" in entry.name]
    descriptions = [_DESCRIPTION.validate_python(yaml.safe_load(text)) for text in texts]
    return [make_node(description) for description in sorted(descriptions, key=lambda each: each.name)]


def make_node(description: Description) -> SampleNode:
    """Start the node's kubelet and admit its pods one after another.

    Raises:
        DescriptionError: a pod of the description is refused.
    """
    configuration, reservation = _configuration(description)
    config = kubelet_config_from_json(description.kubelet_version, {**configuration, "reservation": reservation})
    kubelet = start(description.hardware.machine(), config)
    state = initial_state(kubelet, devices_on(description.devices))
    running: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    for pod, leaves in _pods(description):
        request = resolve(pod_from_json(pod), kubelet.rules)
        outcome = admit(kubelet, state, request)
        if not isinstance(outcome.verdict, Admitted):
            raise DescriptionError(f"{description.name} refuses {pod['metadata']['name']}: {outcome.verdict.message}")
        state = start_pod(outcome.state, request)
        (gone if leaves else running).append(pod)
    state = release_pods(state, [pod["metadata"]["uid"] for pod in gone])
    return SampleNode(
        description=description, configuration=configuration, kubelet=kubelet, state=state, pods=tuple(running)
    )


def _configuration(description: Description) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration file: the settings of the description, and the reservations that a kubelet needs.

    And the whole reservation, with the eviction threshold.
    """
    numa_ids, numa_bytes = description.hardware.numa_ids, description.reserved.memory_gib_per_numa << 30
    cpus, memory = str(description.reserved.cpus), len(numa_ids) * numa_bytes
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "systemReserved": {"cpu": cpus, "memory": str(memory - EVICTION_BYTES)},
        **description.kubelet,
    }
    if document.get("memoryManagerPolicy") == "Static":
        document["reservedMemory"] = [{"numaNode": numa, "limits": {"memory": str(numa_bytes)}} for numa in numa_ids]
    return document, {"cpu": cpus, "memory": str(memory)}


def _pods(description: Description) -> Iterator[tuple[dict[str, Any], bool]]:
    for workload in description.workloads:
        for copy in range(workload.copies):
            name = f"{workload.name}-{copy}"
            yield make_pod(f"{description.name}/{name}", name, workload), copy in workload.gone


def make_pod(seed: str, name: str, workload: Workload) -> dict[str, Any]:
    """A v1.Pod. Its UID is computed from *seed*, so that every run of the demo is the same."""
    amounts = {resource: str(amount) for resource, amount in workload.resources.items()}
    resources = {"requests": amounts} if workload.burstable else {"requests": amounts, "limits": amounts}
    return {
        "metadata": {"name": name, "namespace": "demo", "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, seed))},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1", "resources": resources}]},
        "status": {"phase": "Running", "qosClass": "Burstable" if workload.burstable else "Guaranteed"},
    }
