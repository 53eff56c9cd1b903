"""The request that the policy computes for a container: CPU class, isolation, priority, memory types.

Mirrors: `policy/pod-preferences.go` (cpuAllocationPreferences, isolatedCPUsPreference, sharedCPUsPreference,
memoryTypePreference, …), `policy/resources.go` (newRequest), `policy/{coldstart,cpu-class,irq-affinity}.go`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from extender.kubelet.budget import Budget
from extender.nri.config import LEVELS, PRIORITIES, PolicyConfig
from extender.nri.machine import ALL_MEMORY, DRAM, HBM, PMEM, PRESERVE_MEMORY
from extender.nri.objects import NriContainer, NriPod, NriScope, QoS
from extender.nri.text import PatternError, as_texts, glob_match, json_fields, parse_bool, parse_duration
from extender.nri.verdict import NriRefusal, RefusalError

UNLIMITED_CPU: Final = 2**63 - 1
"""The CPU limit of a Burstable container without one."""

_MAX_COLD_START_NS: Final = 3600 * 10**9
_MEMORY_NAMES: Final = {"dram": DRAM, "pmem": PMEM, "hbm": HBM, "mixed": ALL_MEMORY}


class CPUType(Enum):
    """Which CPUs a container gets: those of a pool, the reserved ones, or those that the runtime gives."""

    NORMAL = "normal"
    RESERVED = "reserved"
    PRESERVE = "preserve"


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a container.

    `full`: exclusive CPUs; `fraction` and `limit` in mCPU, `limit` UNLIMITED_CPU where there is none. `isolate`: take
    isolated CPUs if there are enough; `strict_isolate`: else refuse. `memory_types`: PRESERVE_MEMORY or a set of types.
    """

    full: int
    fraction: int
    limit: int
    isolate: bool
    strict_isolate: bool
    cpu_type: CPUType
    priority: int
    memory_request_bytes: int
    memory_limit_bytes: int
    memory_types: int
    pick_by_hints: bool
    strict_hints: bool
    qos: QoS

    @property
    def memory_bytes(self) -> int:
        """The bytes that are counted: the request, else the limit (`resources.go` MemAmountToAllocate)."""
        return self.memory_request_bytes or self.memory_limit_bytes


@dataclass(frozen=True, slots=True)
class _CPUWish:
    full: int
    fraction: int
    limit: int
    isolate: bool
    type: CPUType
    priority: int


def new_request(
    pod: NriPod, container: NriContainer, config: PolicyConfig, types: int, budget: Budget, *, cold_start_off: bool
) -> Request:
    """The request of *container*; *types*: the memory types that the machine has.

    Raises:
        RefusalError: an annotation makes the policy refuse the container.
        BudgetError: the patterns of the reserved namespaces are too long.
    """
    wish = _cpu_wish(pod, container, config, budget)
    _check_cpu_class(pod, container.name, config, wish.full)
    _check_irq_affinity(pod, container.name, wish.full)
    memory_types = _memory_types(pod, container.name)
    if memory_types != PRESERVE_MEMORY:
        memory_types = (memory_types or ALL_MEMORY & ~HBM) & types
        if cold_start_off:
            memory_types |= DRAM if memory_types == PMEM else 0
        elif _cold_start_ns(pod, container.name) > 0:
            memory_types &= ~DRAM
    resources = container.resources
    return Request(
        full=wish.full,
        fraction=wish.fraction,
        limit=wish.limit,
        isolate=wish.isolate,
        strict_isolate=wish.full >= 1 and wish.isolate and _is_isolation_strict(pod, container.name),
        cpu_type=wish.type,
        priority=wish.priority,
        memory_request_bytes=resources.requests.get("memory", 0),
        memory_limit_bytes=resources.limits.get("memory", 0),
        memory_types=memory_types,
        pick_by_hints=picks_by_hints(pod, container.name),
        strict_hints=is_strict_about_hints(pod, container.name),
        qos=pod.qos,
    )


def _flag(pod: NriPod, key: str, container: str) -> bool:
    return bool(parse_bool(pod.effective(key, container) or ""))


def picks_by_hints(pod: NriPod, container: str) -> bool:
    """Whether CPUs and memory are to be taken near the container's devices."""
    return _flag(pod, "pick-resources-by-hints", container)


def is_strict_about_hints(pod: NriPod, container: str) -> bool:
    """Whether CPUs that do not meet the hints are refused."""
    return _flag(pod, "strict.topologyhints", container)


def hides_hyperthreads(pod: NriPod, container: str) -> bool:
    """Whether only one thread of each core is used (`pod-preferences.go` hideHyperthreadsPreference)."""
    return _flag(pod, "hide-hyperthreads", container)


def unlimited_burstable_level(pod: NriPod, container: str) -> int | None:
    """The topology level in an annotation; None if there is no valid one."""
    return LEVELS.get(pod.effective("unlimited-burstable", container) or "")


def _cpu_wish(pod: NriPod, container: NriContainer, config: PolicyConfig, budget: Budget) -> _CPUWish:
    """`pod-preferences.go` cpuAllocationPreferences: the first rule that matches decides."""
    name, qos, resources = container.name, pod.qos, container.resources
    millicpu = resources.requests.get("cpu", 0)
    limit = 0
    if qos is QoS.BURSTABLE:
        limit = resources.limits.get("cpu", UNLIMITED_CPU)
    elif qos is QoS.GUARANTEED:
        limit = resources.limits.get("cpu", 0)
    default = config.default_priority
    prefer_reserved = parse_bool(pod.effective("prefer-reserved-cpus", name) or "")
    if pod.effective("cpu.preserve", name) == "true":
        return _CPUWish(0, millicpu, limit, isolate=False, type=CPUType.PRESERVE, priority=default)
    if prefer_reserved or (prefer_reserved is None and _is_reserved_namespace(pod.namespace, config, budget)):
        return _CPUWish(0, millicpu, limit, isolate=False, type=CPUType.RESERVED, priority=default)
    if qos is QoS.BURSTABLE:
        return _CPUWish(0, millicpu, limit, isolate=False, type=CPUType.NORMAL, priority=default)
    if qos is QoS.BEST_EFFORT:
        return _CPUWish(0, 0, 0, isolate=False, type=CPUType.NORMAL, priority=default)
    return _guaranteed_wish(pod, name, config, millicpu)


def _guaranteed_wish(pod: NriPod, name: str, config: PolicyConfig, millicpu: int) -> _CPUWish:
    # An annotation can have a negative request, and Go divides towards 0.
    cores = millicpu // 1000 if millicpu >= 0 else -(-millicpu // 1000)
    fraction = millicpu - 1000 * cores
    isolated, isolated_annotated = _isolation(pod, name, config)
    shared = parse_bool(pod.effective("prefer-shared-cpus", name) or "")
    shared_annotated = shared is not None
    if shared is None:
        shared = bool(config.prefer_shared)
    priority = PRIORITIES.get(pod.effective("prefer-cpu-priority", name) or "", config.default_priority)
    if cores == 0:
        full, isolate = 0, False
    elif cores < 2:
        full, isolate = (0, False) if shared else (cores, isolated)
    elif fraction:
        full, isolate = (cores, isolated) if shared_annotated and not shared else (0, False)
    else:
        full, isolate = (0, False) if shared else (cores, isolated and isolated_annotated)
    return _CPUWish(full, millicpu - 1000 * full, millicpu, isolate, CPUType.NORMAL, priority)


def _isolation(pod: NriPod, name: str, config: PolicyConfig) -> tuple[bool, bool]:
    """Whether isolated CPUs are preferred, and whether an annotation says so.

    Source: `pod-preferences.go` isolatedCPUsPreference.

    A missing annotation `require-isolated-cpus` counts as unscoped. So it has precedence over an unscoped
    `prefer-isolated-cpus`, and its empty value does not parse.
    """
    require, prefer = pod.query("require-isolated-cpus", name), pod.query("prefer-isolated-cpus", name)
    if require is None and prefer is None:
        return bool(config.prefer_isolated), False
    value, scope = require or ("", NriScope.UNSCOPED)
    if prefer is not None and scope > prefer[1]:
        value = prefer[0]
    annotated = parse_bool(value)
    return (bool(config.prefer_isolated), False) if annotated is None else (annotated, True)


def _is_isolation_strict(pod: NriPod, name: str) -> bool:
    require, prefer = pod.query("require-isolated-cpus", name), pod.query("prefer-isolated-cpus", name)
    return require is not None and (prefer is None or require[1] <= prefer[1])


def _is_reserved_namespace(namespace: str, config: PolicyConfig, budget: Budget) -> bool:
    """A malformed pattern ends the search (`pod-preferences.go` checkReservedPoolNamespaces)."""
    if namespace == "kube-system":
        return True
    try:
        return any(glob_match(pattern, namespace, budget) for pattern in config.reserved_namespaces)
    except PatternError:
        return False


def _memory_types(pod: NriPod, name: str) -> int:
    """PRESERVE_MEMORY, the annotated types, or 0 if there is no valid annotation."""
    if pod.effective("memory.preserve", name) == "true":
        return PRESERVE_MEMORY
    text = pod.effective("memory-type", name)
    types = 0
    for part in text.split(",") if text else ():
        type_ = _MEMORY_NAMES.get(part.lower())
        if type_ is None:
            return 0
        types |= type_
    return types


def _cold_start_ns(pod: NriPod, name: str) -> int:
    """`pod-preferences.go` coldStartPreference."""
    document = pod.document("cold-start", name)
    if document is None:
        return 0
    fields = json_fields(document)
    if fields is None:
        raise RefusalError(NriRefusal.REQUEST, "annotation cold-start is not an object with a duration")
    duration = fields.get("duration", "0")
    nanoseconds = parse_duration(duration) if isinstance(duration, str) else None
    if nanoseconds is None or not 0 <= nanoseconds <= _MAX_COLD_START_NS:
        raise RefusalError(NriRefusal.REQUEST, "annotation cold-start has no duration within an hour")
    return nanoseconds


def _check_cpu_class(pod: NriPod, name: str, config: PolicyConfig, full: int) -> None:
    """`cpu-class.go` resolveCpuClass, `pod-preferences.go` cpuClassPreference."""
    if not config.cpu_classes:
        return
    found = pod.query("cpu-class", name)
    value, scope = found or (config.default_exclusive_cpu_class, NriScope.UNSCOPED)
    if pod.qos is not QoS.GUARANTEED:
        if found is not None and scope is NriScope.CONTAINER:
            raise RefusalError(NriRefusal.REQUEST, "annotation cpu-class needs a Guaranteed pod")
        return
    if value and value not in config.cpu_classes:
        raise RefusalError(NriRefusal.REQUEST, f"unknown CPU class {value!r}")
    if value and not full and scope is NriScope.CONTAINER:
        raise RefusalError(NriRefusal.REQUEST, f"CPU class {value!r} needs exclusive CPUs")


def check_annotations(pod: NriPod, container: str) -> None:
    """Check annotations as far as this is possible without a node. Raises RefusalError."""
    if _memory_types(pod, container) != PRESERVE_MEMORY:
        _cold_start_ns(pod, container)
    found = pod.query("irq-affinity", container)
    document = pod.document("irq-affinity", container)
    if found is not None and document is not None and not _is_irq_affinity(document):
        raise RefusalError(NriRefusal.REQUEST, "annotation irq-affinity is malformed")


def _check_irq_affinity(pod: NriPod, name: str, full: int) -> None:
    """`irq-affinity.go` parseIrqAffinity, `pod-preferences.go` irqAffinityPreference."""
    found = pod.query("irq-affinity", name)
    if found is None:
        return
    document, scope = pod.document("irq-affinity", name), found[1]
    if document is not None and not _is_irq_affinity(document):
        raise RefusalError(NriRefusal.REQUEST, "annotation irq-affinity is malformed")
    if scope is NriScope.CONTAINER and (pod.qos is not QoS.GUARANTEED or not full):
        raise RefusalError(NriRefusal.REQUEST, "annotation irq-affinity needs exclusive CPUs of a Guaranteed pod")


def names_interrupts(pod: NriPod, container: str) -> bool:
    """Whether an annotation claims or masks interrupts, so that the policy looks them up (`pkg/irq/irq.go`)."""
    fields = json_fields(pod.document("irq-affinity", container)) or {}
    return any(as_texts(fields.get(name)) for name in ("claim", "mask"))


def _is_irq_affinity(document: object) -> bool:
    fields = json_fields(document)
    if fields is None or fields.get("mode") not in (None, "", "mask-first", "claim-first"):
        return False
    return all(as_texts(fields.get(name)) is not None for name in ("claim", "mask"))
