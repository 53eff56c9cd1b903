"""Converts KubeVirt's VirtualMachine and VirtualMachineInstance to the pod that KubeVirt creates for them.

Only the container `compute` of the virt-launcher pod is created, which holds the machine's CPUs and memory. The memory
that KubeVirt adds to the guest's differs by its version and by the machine's devices. It is estimated, and a note says
so.

The estimate is close to the rule of thumb in the documentation of OpenShift Virtualization: 218 MiB, 8 MiB for each
vCPU, and 0.2 % of the guest's memory. It was not compared with the code of any KubeVirt version.
"""

from typing import Final

from extender.wire.errors import WireError, shown
from extender.wire.parsing import Json, object_at, optional_object_at, parse_milli

KINDS: Final = ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet")
NOTE: Final = (
    "this is the pod of a KubeVirt machine with its CPUs, memory and host devices; the memory that KubeVirt adds to "
    "the guest's is estimated, and KubeVirt's other containers are left out"
)
MAX_VCPUS: Final = 4096
CPUS_A_REQUEST: Final = 10
"""KubeVirt requests a tenth of a CPU for each vCPU that is not dedicated (`cpuAllocationRatio`)."""
_MIB: Final = 1 << 20
_FIXED_MIB: Final = 220 + 8 + 32
"""virt-launcher, its monitor, virtlogd, virtqemud and qemu; an I/O thread; the video memory."""


def notes(machine: Json) -> tuple[str, ...]:
    """What is not known of the machine in a document of one of `KINDS`, one sentence each."""
    name = _instancetype(machine)
    if name is None:
        return (NOTE,)
    sentence = (
        f"KubeVirt takes CPUs, memory and devices of this machine from its instancetype {shown(name)}, which is not "
        "read: the answer counts only what the document itself states, which is too little. Ask about the "
        "VirtualMachineInstance that KubeVirt has made of it, which has all amounts"
    )
    return sentence, NOTE


def _instancetype(machine: Json) -> object | None:
    """The name of the instancetype that completes the machine; None if it has none."""
    spec = machine.get("spec")
    instancetype = spec.get("instancetype") if isinstance(spec, dict) else None
    if not isinstance(instancetype, dict) or not instancetype:
        return None
    return instancetype.get("name") or f"of volume {instancetype.get('inferFromVolume')}"


def pod_template_of(instance: Json, path: str, machine: Json) -> Json:
    """The pod template for an instance, whose `spec.domain` is read. *path* is its place in the document *machine*.

    Raises:
        WireError: an amount is missing or malformed.
    """
    where = f"{path}.spec" if path else "spec"
    spec = object_at(instance.get("spec"), where)
    here = f"{where}.domain"
    domain = object_at(spec.get("domain"), here)
    cpu = optional_object_at(domain.get("cpu"), f"{here}.cpu")
    resources = optional_object_at(domain.get("resources"), f"{here}.resources")
    vcpus = 1
    for name in ("cores", "sockets", "threads"):
        vcpus *= _count(cpu.get(name), f"{here}.cpu.{name}")
    guest = _guest_bytes(domain, resources, here, is_complete=_instancetype(machine) is None)
    dedicated = bool(cpu.get("dedicatedCpuPlacement"))
    amounts: dict[str, object] = {}
    overhead = _FIXED_MIB * _MIB + vcpus * 8 * _MIB + guest // 512
    memory = optional_object_at(domain.get("memory"), f"{here}.memory")
    pages = optional_object_at(memory.get("hugepages"), f"{here}.memory.hugepages")
    if pages:
        amounts[f"hugepages-{pages.get('pageSize', '2Mi')}"] = str(guest)
        amounts["memory"] = str(overhead)
    else:
        amounts["memory"] = str(guest + overhead)
    emulator = 1 if cpu.get("isolateEmulatorThread") else 0
    amounts["cpu"] = str(vcpus + emulator) if dedicated else f"{vcpus * 1000 // CPUS_A_REQUEST}m"
    devices = _devices(domain, here)
    limits = {**amounts, **devices} if dedicated else dict(devices)
    container = {"name": "compute", "resources": {"requests": {**amounts, **devices}, "limits": limits}}
    kept = {key: spec[key] for key in ("nodeSelector", "affinity", "tolerations") if key in spec}
    return {"metadata": instance.get("metadata") or {}, "spec": {**kept, "containers": [container]}}


def _guest_bytes(domain: Json, resources: Json, path: str, *, is_complete: bool) -> int:
    """The guest's memory. *is_complete*: the document must state it."""
    memory = optional_object_at(domain.get("memory"), f"{path}.memory")
    if memory.get("guest") is not None:
        return parse_milli(memory["guest"], f"{path}.memory.guest") // 1000
    for key in ("requests", "limits"):
        amounts = optional_object_at(resources.get(key), f"{path}.resources.{key}")
        if amounts.get("memory") is not None:
            return parse_milli(amounts["memory"], f"{path}.resources.{key}.memory") // 1000
    if is_complete:
        raise WireError(f"{path}.memory.guest", "missing")
    return 0


def _devices(domain: Json, path: str) -> dict[str, str]:
    counts: dict[str, int] = {}
    devices = optional_object_at(domain.get("devices"), f"{path}.devices")
    for key in ("gpus", "hostDevices"):
        items = devices.get(key)
        for i, item in enumerate(items if isinstance(items, list) else ()):
            where = f"{path}.devices.{key}[{i}]"
            name = object_at(item, where).get("deviceName")
            if isinstance(name, str):  # otherwise it is from a resource claim
                counts[name] = counts.get(name, 0) + 1
    return {name: str(count) for name, count in counts.items()}


def _count(value: object, path: str) -> int:
    if value is None or value == 0:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_VCPUS:
        raise WireError(path, f"{shown(value)} is not a count from 1 to {MAX_VCPUS}")
    return value
