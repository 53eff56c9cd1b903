"""The options that a TopologyAwarePolicy of plugin v0.14 can have.

Source: config/crd/bases/config.nri_topologyawarepolicies.yaml of containers/nri-plugins.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

MAX_SHOWN: Final = 5
_ANY: Final = None
"""Any value, or an object whose keys are free."""
OPTIONS: Final[Mapping[str, object]] = {
    "agent": {"nodeResourceTopology": _ANY, "podResourceAPI": _ANY},
    "control": _ANY,
    "cpuClasses": dict.fromkeys(
        (
            "disabledCstates", "energyPerformancePreference", "freqGovernor", "maxFreq", "minFreq", "name",
            "pctMaxFreq", "pctMinFreq", "pctPriority", "publishExtendedResource", "sstClosID", "turboPriority",
            "uncoreMaxFreq", "uncoreMinFreq",
        ),
        _ANY,
    ),
    "instrumentation": _ANY,
    "log": _ANY,
    **dict.fromkeys(
        (
            "availableResources", "colocateNamespaces", "colocatePods", "controllableInterrupts", "defaultCPUPriority",
            "defaultExclusiveCPUClass", "namespaceSchedulingClasses", "pinCPU", "pinMemory", "podQoSSchedulingClasses",
            "preferIsolatedCPUs", "preferSharedCPUs", "reservedPoolCPUClass", "reservedPoolNamespaces",
            "reservedResources", "schedulingClasses", "sharedPoolCPUClass", "unlimitedBurstable",
        ),
        _ANY,
    ),
}  # fmt: skip
"""The options by name, with the options below them. `log`, `instrumentation` and `control` place nothing."""


def unknown_options(spec: Mapping[str, object]) -> list[str]:
    """The first `MAX_SHOWN` options of *spec* that are not known, with the path to each."""
    return list(islice(_unknown(spec, OPTIONS, ""), MAX_SHOWN))


def _unknown(spec: object, known: Mapping[str, object], path: str) -> Iterator[str]:
    for part in spec if isinstance(spec, list) else [spec]:
        for name, value in part.items() if isinstance(part, Mapping) else ():
            if name not in known:
                yield f"{path}{name}"
            elif isinstance(below := known[name], Mapping):
                yield from _unknown(value, below, f"{path}{name}.")
