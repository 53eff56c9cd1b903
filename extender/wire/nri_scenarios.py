"""Scenario lines of the NRI recordings, see tests/vectors/nri/README.md: configurations and steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from extender.nri.config import LEVELS, PRIORITIES, PolicyConfig
from extender.nri.estimates import oom_score_adj, runtime_resources
from extender.nri.events import NewContainer
from extender.nri.objects import ContainerDevice, NriPod, QoS, RuntimeResources
from extender.wire.documents import MAX_VALUES
from extender.wire.errors import WireError
from extender.wire.nri_pods import AnnotationBudget, metadata_of, milli_or_none
from extender.wire.validation import Document, parse_object

MAX_STEPS_OF_A_SCENARIO: Final = 10_000
MAX_GLOBS: Final = 256
"""Limit on the patterns of one list of the configuration."""
MAX_GLOB: Final = 256
"""Limit on the characters of one of them: what they match, a namespace or an interrupt, is shorter."""
_NO_LIMIT: Final = AnnotationBudget(2**31, MAX_VALUES)
_QOS: Final = {"G": QoS.GUARANTEED, "B": QoS.BURSTABLE, "E": QoS.BEST_EFFORT}

_Amounts: TypeAlias = Annotated[list[Annotated[int, Field(ge=-1, lt=2**62)]], Field(min_length=4, max_length=4)]


class _ListedDevice(Document):
    res: str
    nodes: list[Annotated[int, Field(ge=0, le=65_535)]]


class _LinuxDevice(Document):
    t: str
    maj: int
    min: int
    acc: str | None = None


class NriStep(Document):
    """One step. Its fields depend on `o`."""

    o: Literal["pod", "new", "upd", "del", "stop", "rm", "rmpod", "cfg", "restart"]
    id: str = ""
    ns: str = ""
    n: str = ""
    q: Literal["G", "B", "E"] = "G"
    p: str = ""
    lb: dict[str, str] = Field(default_factory=dict)
    an: dict[str, str] = Field(default_factory=dict)
    pr: dict[str, list[_ListedDevice]] = Field(default_factory=dict)
    r: _Amounts = Field(default=[-1, -1, -1, -1])
    dev: list[_LinuxDevice] = Field(default_factory=list)
    wild: bool = False
    oom: int | None = None
    cfg: dict[str, Any] = Field(default_factory=dict)


class _Line(Document):
    id: str
    m: str
    cfg: dict[str, Any]
    steps: Annotated[list[NriStep], Field(max_length=MAX_STEPS_OF_A_SCENARIO)]


class _Answer(Document):
    """What a comparison needs of a recorded answer."""

    varies: bool = False
    any: Annotated[list["_Answer"], Field(min_length=1)] | None = None
    gs: dict[str, dict[str, Any] | None] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_what_it_varies_between(self) -> "_Answer":
        if self.varies and self.any is None:
            raise PydanticCustomError("no_answers", "an answer that varies needs the field any")
        return self


class _CPUClass(Document):
    name: str
    pct_priority: str = Field(default="", alias="pctPriority")
    clos: int | None = Field(default=None, alias="sstClosID")


class _Agent(Document):
    pod_resource_api: bool = Field(default=False, alias="podResourceAPI")


_Globs = Annotated[list[Annotated[str, Field(max_length=MAX_GLOB)]], Field(max_length=MAX_GLOBS)]


class _Config(Document):
    pin_cpu: bool = Field(default=False, alias="pinCPU")
    pin_memory: bool = Field(default=False, alias="pinMemory")
    prefer_isolated: bool | None = Field(default=None, alias="preferIsolatedCPUs")
    prefer_shared: bool | None = Field(default=None, alias="preferSharedCPUs")
    colocate_pods: bool = Field(default=False, alias="colocatePods")
    colocate_namespaces: bool = Field(default=False, alias="colocateNamespaces")
    reserved_namespaces: _Globs = Field(default_factory=list, alias="reservedPoolNamespaces")
    available: dict[str, str] = Field(default_factory=dict, alias="availableResources")
    reserved: dict[str, str] = Field(default_factory=dict, alias="reservedResources")
    priority: str = Field(default="", alias="defaultCPUPriority")
    unlimited_burstable: str = Field(default="", alias="unlimitedBurstable")
    cpu_classes: list[_CPUClass] = Field(default_factory=list, alias="cpuClasses")
    exclusive_class: str = Field(default="", alias="defaultExclusiveCPUClass")
    agent: _Agent | None = None
    interrupts: _Globs = Field(default_factory=list, alias="controllableInterrupts")


_LINE: Final = TypeAdapter(_Line)
_ANSWERS: Final = TypeAdapter(list[_Answer])
_CONFIG: Final = TypeAdapter(_Config)


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
    line = parse_object(_LINE, value, "")
    for number, step in enumerate(line.steps):
        if step.o == "cfg":
            config_from_json(step.cfg, f"steps[{number}].cfg")
    recorded = {k: v for k, v in value.items() if k in ("start", "r", "z0")} if isinstance(value, dict) else {}
    if "r" in recorded:
        parse_object(_ANSWERS, recorded["r"], "r")
    return NRIScenario(line.id, line.m, config_from_json(line.cfg, "cfg"), tuple(line.steps), recorded)


def config_from_json(value: object, field: str) -> PolicyConfig:
    """The policy part of a TopologyAwarePolicy's spec, as written, without defaults of the CRD. Raises WireError."""
    config = parse_object(_CONFIG, value, field)
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
