"""In-place resize: whether a kubelet accepts other amounts of CPU and memory for a running pod.

The checks of the API server (such as an unchanged QoS class) and the fit of the node's totals are not made here.

Mirrors: kubelet `kubelet.go` canResizePod up to 1.33, `allocation/allocation_manager.go` in 1.34 and 1.35,
`allocation/handlers.go` from 1.36 on.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from extender.kubelet.admission import admit
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodSpec, QOSClass
from extender.kubelet.resolve import qos_class, resolve
from extender.kubelet.rules import gate_enabled
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Rejected

_SCALING, _CPUS, _MEMORY = (f"InPlacePodVerticalScaling{suffix}" for suffix in ("", "ExclusiveCPUs", "ExclusiveMemory"))


class ResizeResult(StrEnum):
    """Whether a kubelet carries out a resize."""

    FITS = "fits"
    DEFERRED = "deferred"
    """Not now; the kubelet tries again when other pods leave."""
    INFEASIBLE = "infeasible"
    """Never on this node with this configuration."""
    NOT_SUPPORTED = "not-supported"
    """This kubelet does not resize pods in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """`reason`: one sentence; empty if the resize fits. The managers hold the same for the pod after any resize."""

    result: ResizeResult
    reason: str = ""


def resize(kubelet: Kubelet, state: ManagerState, before: PodSpec, after: PodSpec) -> Resize:
    """Whether the kubelet resizes a running pod from *before* to *after*."""
    minor, gates = kubelet.rules.minor, kubelet.config.feature_gates
    if not gate_enabled(_SCALING, minor, gates):
        text = f"kubelet 1.{minor} resizes no pod in place: its feature gate {_SCALING} is off"
        return Resize(result=ResizeResult.NOT_SUPPORTED, reason=text)
    is_guaranteed = qos_class(before, kubelet.rules) is QOSClass.GUARANTEED
    cpu_changed, memory_changed = _changed(before, after, "cpu"), _changed(before, after, "memory")
    any_change = minor <= 33 and (cpu_changed or memory_changed)
    exclusive_cpus = minor >= 32 and gates.get(_CPUS, False)
    exclusive_memory = minor >= 34 and gates.get(_MEMORY, False)
    if is_guaranteed and minor >= 32:
        if kubelet.cpu_static and (cpu_changed or any_change) and not exclusive_cpus:
            return _infeasible("CPU", "an amount" if any_change else "the CPUs", minor)
        if kubelet.memory_static and minor >= 33 and (memory_changed or any_change) and not exclusive_memory:
            return _infeasible("Memory", "an amount" if any_change else "the memory", minor)
    if minor >= 37:
        return Resize(result=ResizeResult.FITS)
    verdict = admit(kubelet, state, resolve(replace(after, uid=before.uid), kubelet.rules)).verdict
    if isinstance(verdict, Rejected):
        return Resize(result=ResizeResult.DEFERRED, reason=f"{verdict.reason.value}: {verdict.message}")
    return Resize(result=ResizeResult.FITS)


def _infeasible(manager: str, changed: str, minor: int) -> Resize:
    text = (
        f"kubelet 1.{minor} does not change {changed} of a Guaranteed pod "
        f"while the {manager} Manager's policy is static"
    )
    return Resize(result=ResizeResult.INFEASIBLE, reason=text)


def _changed(before: PodSpec, after: PodSpec, resource: str) -> bool:
    return any(
        old.requests_milli.get(resource) != new.requests_milli.get(resource)
        or old.limits_milli.get(resource) != new.limits_milli.get(resource)
        for old, new in zip(before.containers, after.containers, strict=True)
    )
