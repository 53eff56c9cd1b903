"""Scenario lines of the NRI recordings, see tests/vectors/nri/README.md: configurations and steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from extender.nri.config import LEVELS, PRIORITIES, PolicyConfig
from extender.nri.estimates import oom_score_adj, runtime_resources
from extender.nri.events import NewContainer
from extender.nri.objects import ContainerDevice, NriPod, QoS, RuntimeResources
from extender.wire.documents import MAX_VALUES
from extender.wire.errors import WireError
from extender.wire.nri_pods import AnnotationBudget, metadata_of, milli_or_none
from extender.wire.parsing import converted

MAX_STEPS_OF_A_SCENARIO: Final = 10_000
MAX_GLOBS: Final = 256
"""Limit on the patterns of one list of the configuration."""
MAX_GLOB: Final = 256
"""Limit on the characters of one of them: what they match, a namespace or an interrupt, is shorter."""
_NO_LIMIT: Final = AnnotationBudget(2**31, MAX_VALUES)
_QOS: Final = {"G": QoS.GUARANTEED, "B": QoS.BURSTABLE, "E": QoS.BEST_EFFORT}

_Amounts: TypeAlias = Annotated[list[Annotated[int, Meta(ge=-1, lt=2**62)]], Meta(min_length=4, max_length=4)]


class _ListedDevice(msgspec.Struct, frozen=True):
    res: str
    nodes: list[Annotated[int, Meta(ge=0, le=65_535)]]


class _LinuxDevice(msgspec.Struct, frozen=True):
    t: str
    maj: int
    min: int
    acc: str | None = None


class NriStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step. Its fields depend on `o`."""

    o: Literal["pod", "new", "upd", "del", "stop", "rm", "rmpod", "cfg", "restart"]
    id: str = ""
    ns: str = ""
    n: str = ""
    q: Literal["G", "B", "E"] = "G"
    p: str = ""
    lb: dict[str, str] = {}
    an: dict[str, str] = {}
    pr: dict[str, list[_ListedDevice]] = {}
    r: _Amounts = msgspec.field(default_factory=lambda: [-1, -1, -1, -1])
    dev: list[_LinuxDevice] = []
    wild: bool = False
    oom: int | None = None
    cfg: dict[str, Any] = {}


class _Line(msgspec.Struct):
    id: str
    m: str
    cfg: dict[str, Any]
    steps: Annotated[list[NriStep], Meta(max_length=MAX_STEPS_OF_A_SCENARIO)]


class _Answer(msgspec.Struct):
    """What a comparison needs of a recorded answer."""

    varies: bool = False
    any: Annotated[list["_Answer"], Meta(min_length=1)] | None = None
    gs: dict[str, dict[str, Any] | None] = {}

    def __post_init__(self) -> None:
        if self.varies and self.any is None:
            raise ValueError("an answer that varies needs the field any")


class _CPUClass(msgspec.Struct):
    name: str
    pct_priority: str = msgspec.field(default="", name="pctPriority")
    clos: int | None = msgspec.field(default=None, name="sstClosID")


class _Agent(msgspec.Struct):
    pod_resource_api: bool = msgspec.field(default=False, name="podResourceAPI")


_Globs = Annotated[list[Annotated[str, Meta(max_length=MAX_GLOB)]], Meta(max_length=MAX_GLOBS)]


class _Config(msgspec.Struct):
    pin_cpu: bool = msgspec.field(default=False, name="pinCPU")
    pin_memory: bool = msgspec.field(default=False, name="pinMemory")
    prefer_isolated: bool | None = msgspec.field(default=None, name="preferIsolatedCPUs")
    prefer_shared: bool | None = msgspec.field(default=None, name="preferSharedCPUs")
    colocate_pods: bool = msgspec.field(default=False, name="colocatePods")
    colocate_namespaces: bool = msgspec.field(default=False, name="colocateNamespaces")
    reserved_namespaces: _Globs = msgspec.field(default_factory=list, name="reservedPoolNamespaces")
    available: dict[str, str] = msgspec.field(default_factory=dict, name="availableResources")
    reserved: dict[str, str] = msgspec.field(default_factory=dict, name="reservedResources")
    priority: str = msgspec.field(default="", name="defaultCPUPriority")
    unlimited_burstable: str = msgspec.field(default="", name="unlimitedBurstable")
    cpu_classes: list[_CPUClass] = msgspec.field(default_factory=list, name="cpuClasses")
    exclusive_class: str = msgspec.field(default="", name="defaultExclusiveCPUClass")
    agent: _Agent | None = None
    interrupts: _Globs = msgspec.field(default_factory=list, name="controllableInterrupts")


@dataclass(frozen=True, slots=True)
class NRIScenario:
    """One line. `recorded`: the fields `start` and `r` with the real policy's answers, if present."""

    id: str
    machine: str
    config: PolicyConfig
    steps: tuple[NriStep, ...]
    recorded: Mapping[str, Any]


def scenario_from_json(value: object) -> NRIScenario:
    """The scenario of one line; raises WireError."""
    line = converted(value, _Line, "")
    for number, step in enumerate(line.steps):
        if step.o == "cfg":
            config_from_json(step.cfg, f"steps[{number}].cfg")
    recorded = {k: v for k, v in value.items() if k in ("start", "r", "z0")} if isinstance(value, dict) else {}
    if "r" in recorded:
        converted(recorded["r"], list[_Answer], "r")
    return NRIScenario(line.id, line.m, config_from_json(line.cfg, "cfg"), tuple(line.steps), recorded)


def config_from_json(value: object, field: str) -> PolicyConfig:
    """The policy part of a TopologyAwarePolicy's spec, as written, without defaults of the CRD. Raises WireError."""
    config = converted(value, _Config, field)
    if config.unlimited_burstable not in ("", *LEVELS):
        raise WireError(f"{field}.unlimitedBurstable", f"one of {', '.join(LEVELS)} is expected")
    reserved = config.reserved.get("cpu")
    return PolicyConfig(
        pin_cpu=config.pin_cpu,
        pin_memory=config.pin_memory,
        prefer_isolated=config.prefer_isolated,
        prefer_shared=config.prefer_shared,
        colocate_pods=config.colocate_pods,
        colocate_namespaces=config.colocate_namespaces,
        reserved_namespaces=tuple(config.reserved_namespaces),
        available_cpus=config.available.get("cpu"),
        reserved_cpus=reserved,
        reserved_millicpu=None if reserved is None else milli_or_none(reserved),
        default_priority=PRIORITIES.get(config.priority.lower(), PRIORITIES["none"]),
        unlimited_burstable=config.unlimited_burstable,
        cpu_classes=frozenset(c.name for c in config.cpu_classes),
        default_exclusive_cpu_class=config.exclusive_class,
        uses_speed_select=any(c.pct_priority or c.clos is not None for c in config.cpu_classes),
        pod_resource_api=config.agent is not None and config.agent.pod_resource_api,
        controllable_interrupts=tuple(config.interrupts),
    )


def pod_of(step: NriStep, budget: AnnotationBudget = _NO_LIMIT) -> NriPod:
    """The pod of a `pod` step. *budget*: the steps for its annotations."""
    metadata = metadata_of(step.lb, step.an, budget)
    return NriPod(
        id=step.id,
        uid=f"uid-{step.id}",
        namespace=step.ns,
        name=step.n,
        qos=_QOS[step.q],
        labels=step.lb,
        annotations=metadata.annotations,
        device_nodes={c: tuple((d.res, tuple(d.nodes)) for d in listed) for c, listed in step.pr.items()},
        late=metadata.late,
    )


def container_of(step: NriStep, qos: QoS, memory_total_bytes: int) -> NewContainer:
    """The container of a `new` step, with the values that a kubelet passes to the runtime."""
    oom = step.oom if step.oom is not None else oom_score_adj(qos, step.r[2], memory_total_bytes)
    return NewContainer(
        id=step.id,
        pod_id=step.p,
        name=step.n,
        resources=resources_of(step.r),
        oom_score_adj=oom,
        devices=tuple(ContainerDevice(d.t, d.maj, d.min, d.acc) for d in step.dev),
        wildcard_rule=step.wild,
    )


def resources_of(amounts: list[int]) -> RuntimeResources:
    """Requests and limits [CPU request, CPU limit, memory request, memory limit] as the kubelet passes them on."""
    request, limit, _, memory_limit = (max(0, amount) for amount in amounts)
    return runtime_resources(request or limit, limit, memory_limit)
