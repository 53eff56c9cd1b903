"""Annotations that the NRI topology-aware policy reads, checked without a node.

Each fault has one sentence for people. What depends on the machine or the configuration is left to the replay. Keys are
those of `pkg/resmgr/cache/pod.go` (QueryEffectiveAnnotation) and `policy/pod-preferences.go`.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial, reduce
from operator import and_
from typing import Final

from extender.nri.affinity import AFFINITY_KEY, ANTI_AFFINITY_KEY, affinities
from extender.nri.config import LEVELS, PRIORITIES, PolicyConfig
from extender.nri.hints import annotated_hints, is_from_kubelet
from extender.nri.objects import KEY_SUFFIX, NriPod
from extender.nri.requests import check_annotations, is_strict_about_hints, picks_by_hints
from extender.nri.text import parse_bool, parse_id_list
from extender.nri.verdict import NriRefusal, RefusalError
from extender.wire.nri_pods import DOMAIN, KEPT, metadata_of
from extender.wire.nri_scenarios import NriStep, pod_of

MAX_FAULTS: Final = 20
MAX_ANNOTATIONS: Final = 256
"""How many annotations of the policy are checked; a pod needs a few for each container."""
MAX_CONTAINERS: Final = 100
"""For how many containers annotations are checked."""
MAX_NUMA_NODES: Final = 63
"""The plugin does not start on a machine with more."""
_MEMORY_TYPES: Final = frozenset({"dram", "pmem", "hbm", "mixed"})


class FaultKind(StrEnum):
    """What a fault does."""

    NO_EFFECT = "no effect"
    REFUSED = "refused"
    """A container is never created."""
    CRASH = "crash"
    """The plugin's process ends. Containers are then created without the policy."""


@dataclass(frozen=True, slots=True)
class AnnotationFault:
    """What is wrong with the annotation `key`; `text` says it in one sentence. `key` is "" for what is left out."""

    kind: FaultKind
    key: str
    text: str


def _is_bool(text: str) -> bool:
    return parse_bool(text) is not None


_VALUES: Final[Mapping[str, Callable[[str], bool]]] = {
    "prefer-isolated-cpus": _is_bool,
    "require-isolated-cpus": _is_bool,
    "prefer-shared-cpus": _is_bool,
    "prefer-reserved-cpus": _is_bool,
    "hide-hyperthreads": _is_bool,
    "pick-resources-by-hints": _is_bool,
    "strict.topologyhints": _is_bool,
    "prefer-cpu-priority": lambda text: text in PRIORITIES or text == "default",
    "unlimited-burstable": lambda text: text in LEVELS,
    "memory-type": lambda text: all(part.lower() in _MEMORY_TYPES for part in text.split(",")),
    "cpu.preserve": lambda text: text in ("true", "false"),
    "memory.preserve": lambda text: text in ("true", "false"),
}
"""Keys whose wrong values are ignored, and which values are right."""
_OTHERS: Final = frozenset({
    "cold-start", "irq-affinity", "cpu-class", "topologyhints", "allow.topologyhints", "deny.topologyhints",
    "test.topologyhints", "scheduling-class", "rdtclass", "blockioclass", "toptierlimit",
})  # fmt: skip


def annotation_faults(annotations: Mapping[str, str], containers: Sequence[str]) -> list[AnnotationFault]:
    """What is wrong with the policy's annotations of a pod with these *containers*; empty for other pods."""
    ours = {key: text for key, text in annotations.items() if DOMAIN in key}
    if not ours:
        return []
    metadata = metadata_of(None, ours)
    if excess := metadata.excess or metadata.late.parsed.excess:
        return [AnnotationFault(FaultKind.NO_EFFECT, "", f"{excess}, and the annotations are not checked")]
    left_out = len(ours) - MAX_ANNOTATIONS
    ours = dict(sorted(ours.items())[:MAX_ANNOTATIONS])
    faults = [fault for key, text in ours.items() for fault in _faults_of(key, text, containers)]
    pod = pod_of(NriStep(o="pod", id="pod", n="pod", an=ours), KEPT)
    checked = containers[:MAX_CONTAINERS]
    # A malformed affinity of one container refuses all of them, so one look is enough.
    looks: list[Callable[[], object]] = [lambda: affinities(pod, "", PolicyConfig())]
    looks += (partial(check_annotations, pod, name) for name in checked)
    faults += dict.fromkeys(fault for look in looks for fault in _refusals(pod, look))
    faults += (fault for name in checked for fault in _hint_faults(pod, name))
    if len(faults) > MAX_FAULTS or left_out > 0:
        more = max(0, len(faults) - MAX_FAULTS)
        text = f"{more} more faults and {max(0, left_out)} more annotations are left out"
        return [*faults[:MAX_FAULTS], AnnotationFault(FaultKind.NO_EFFECT, "", text)]
    return faults


def _faults_of(key: str, text: str, containers: Sequence[str]) -> Iterator[AnnotationFault]:
    """The faults that make one annotation have no effect."""
    if key in (AFFINITY_KEY, ANTI_AFFINITY_KEY):
        return
    for reason in _effects_lost(key, text, containers):
        yield AnnotationFault(FaultKind.NO_EFFECT, key, f"annotation {key[:200]} {reason}")


def _effects_lost(key: str, text: str, containers: Sequence[str]) -> Iterator[str]:
    base, slash, scope = key.partition("/")
    name = base.removesuffix(KEY_SUFFIX)
    if not base.endswith(KEY_SUFFIX) or name not in (*_VALUES, *_OTHERS):
        near = difflib.get_close_matches(name, (*_VALUES, *_OTHERS), n=1, cutoff=0.8) if len(name) < 100 else []
        hint = f"; did you mean {near[0]}{KEY_SUFFIX}?" if near else ""
        yield f"is not one of the NRI topology-aware policy: it has no effect{hint}"
        return
    if slash and scope != "pod" and not scope.startswith("container."):
        yield "ends neither in /pod nor in /container.NAME: it has no effect"
    elif scope.startswith("container.") and scope.removeprefix("container.") not in containers:
        yield "names a container that the pod does not have"
    is_right = _VALUES.get(name)
    if is_right is not None and not is_right(text):
        yield "has a value that the policy does not know: it has no effect"
    if name == "prefer-isolated-cpus" and not slash:
        yield "is ignored without /pod or /container.NAME"
    if name == "test.topologyhints":
        yield "is for tests: a wrong NUMA node or CPU list in it can end the plugin's process"


def _refusals(pod: NriPod, look: Callable[[], object]) -> Iterator[AnnotationFault]:
    try:
        look()
    except RefusalError as error:
        key = next((key for key in pod.annotations if _name_of(key) in error.reason.split()), "")
        if error.refusal is NriRefusal.PANIC:
            reason = f"{error.reason}: it ends the process of the NRI topology-aware policy"
            yield AnnotationFault(FaultKind.CRASH, key, reason)
        else:
            reason = f"{error.reason}: the policy refuses to create the container"
            yield AnnotationFault(FaultKind.REFUSED, key, reason)


def _name_of(key: str) -> str:
    """What messages call the annotation *key*."""
    return key if key in (AFFINITY_KEY, ANTI_AFFINITY_KEY) else key.partition("/")[0].removesuffix(KEY_SUFFIX)


def _hint_faults(pod: NriPod, container: str) -> Iterator[AnnotationFault]:
    """Hints of the test annotation that no machine can meet (`policy/resources.go` takeCPUsByHints, strict hints)."""
    key, where = f"test.topologyhints{KEY_SUFFIX}", f"annotation test.topologyhints of container {container}"
    hints = annotated_hints(pod, container)
    for provider, hint in hints:
        if picks_by_hints(pod, container) and is_from_kubelet(provider) and parse_id_list(hint.cpus) is None:
            reason = f"{where} has CPUs {hint.cpus[:80]!r}, which are not a list: that ends the plugin's process"
            yield AnnotationFault(FaultKind.CRASH, key, reason)
    if not is_strict_about_hints(pod, container):
        return
    if any((parse_id_list(hint.numas) or 0) >> MAX_NUMA_NODES for _, hint in hints):
        reason = f"{where} names a NUMA node that no machine has, in a strict hint: that ends the plugin's process"
        yield AnnotationFault(FaultKind.CRASH, key, reason)
    sets = [cpus for _, hint in hints if (cpus := parse_id_list(hint.cpus))]
    if sets and not reduce(and_, sets):
        reason = f"{where} has strict hints without a common CPU: the policy refuses to create it"
        yield AnnotationFault(FaultKind.REFUSED, key, reason)
