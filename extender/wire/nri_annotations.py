"""Annotations that the NRI topology-aware policy reads, checked without a node.

Each fault is one sentence for people. What depends on the machine or the configuration is left to the replay. Keys are
those of `pkg/resmgr/cache/pod.go` (QueryEffectiveAnnotation) and `policy/pod-preferences.go`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from extender.replay.nri.affinity import AFFINITY_KEY, ANTI_AFFINITY_KEY, affinities
from extender.replay.nri.config import LEVELS, PRIORITIES, PolicyConfig
from extender.replay.nri.objects import KEY_SUFFIX, Pod
from extender.replay.nri.requests import check_annotations
from extender.replay.nri.text import parse_bool
from extender.replay.nri.verdict import Refusal, RefusalError
from extender.wire.nri_scenarios import NriStep, pod_of

DOMAIN: Final = "resource-policy.nri.io"
MAX_FAULTS: Final = 20
_MEMORY_TYPES: Final = frozenset({"dram", "pmem", "hbm", "mixed"})


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
"""Keys of which a wrong value is ignored, and what is a right one."""
_OTHERS: Final = frozenset({
    "cold-start", "irq-affinity", "cpu-class", "topologyhints", "allow.topologyhints", "deny.topologyhints",
    "test.topologyhints", "scheduling-class", "rdtclass", "blockioclass", "toptierlimit",
})  # fmt: skip


def annotation_faults(annotations: Mapping[str, str], containers: Sequence[str]) -> list[str]:
    """What is wrong with the policy's annotations of a pod with these *containers*; empty for other pods."""
    ours = {key: text for key, text in annotations.items() if DOMAIN in key}
    if not ours:
        return []
    faults = [fault for key, text in sorted(ours.items()) for fault in _faults_of(key, text, containers)]
    pod = pod_of(NriStep(o="pod", id="pod", n="pod", an=ours))
    faults += dict.fromkeys(fault for name in containers for fault in _refusals(pod, name))
    if len(faults) > MAX_FAULTS:
        return [*faults[:MAX_FAULTS], f"{len(faults) - MAX_FAULTS} more faults of annotations are left out"]
    return faults


def _faults_of(key: str, text: str, containers: Sequence[str]) -> Iterator[str]:
    if key in (AFFINITY_KEY, ANTI_AFFINITY_KEY):
        return
    shown = f"annotation {key[:200]}"
    base, slash, scope = key.partition("/")
    name = base.removesuffix(KEY_SUFFIX)
    if not base.endswith(KEY_SUFFIX) or name not in (*_VALUES, *_OTHERS):
        yield f"{shown} is not one of the NRI topology-aware policy: it has no effect"
        return
    if slash and scope != "pod" and not scope.startswith("container."):
        yield f"{shown} ends neither in /pod nor in /container.NAME: it has no effect"
    elif scope.startswith("container.") and scope.removeprefix("container.") not in containers:
        yield f"{shown} names a container that the pod does not have"
    is_right = _VALUES.get(name)
    if is_right is not None and not is_right(text):
        yield f"{shown} has a value that the policy does not know: it has no effect"
    if name == "prefer-isolated-cpus" and not slash:
        yield f"{shown} is ignored without /pod or /container.NAME"
    if name == "test.topologyhints":
        yield f"{shown} is for tests: a wrong NUMA node or CPU list in it can end the plugin's process"


def _refusals(pod: Pod, container: str) -> Iterator[str]:
    for check in (
        lambda: check_annotations(pod, container),
        lambda: affinities(pod, container, PolicyConfig()),
    ):
        try:
            check()
        except RefusalError as error:
            if error.refusal is Refusal.PANIC:
                yield f"{error.reason}: it ends the process of the NRI topology-aware policy"
            else:
                yield f"{error.reason}: the policy refuses to create container {container}"
