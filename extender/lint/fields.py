"""Names of fields, for configurations that are read strictly or in which a misspelling is not noticed.

Source: k8s.io/kube-scheduler/config/v1/types.go, k8s.io/kubelet/config/v1beta1/types.go.
"""

import difflib
from collections.abc import Iterable
from typing import Final

SCHEDULER: Final = frozenset({
    "apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "enableProfiling",
    "enableContentionProfiling", "percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds",
    "profiles", "extenders", "delayCacheUntilActive", "metadata",
})  # fmt: skip
PROFILE: Final = frozenset({"schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"})
LEADER_ELECTION: Final = frozenset({
    "leaderElect", "leaseDuration", "renewDeadline", "retryPeriod", "resourceLock", "resourceName", "resourceNamespace",
})  # fmt: skip
EXTENDER: Final = frozenset({
    "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "weight", "bindVerb", "enableHTTPS", "tlsConfig",
    "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable",
})  # fmt: skip
TLS: Final = frozenset({
    "insecure", "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData",
})  # fmt: skip
MANAGED_RESOURCE: Final = frozenset({"name", "ignoredByScheduler"})

KUBELET: Final = frozenset({
    "cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod", "memoryManagerPolicy",
    "reservedMemory", "topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions",
    "reservedSystemCPUs", "systemReserved", "kubeReserved", "evictionHard", "featureGates",
    "mergeDefaultEvictionSettings",
})  # fmt: skip
"""Only the fields that decide admissions."""

KUBELET_NEIGHBOURS: Final = frozenset({
    "evictionSoft", "systemReservedCgroup", "kubeReservedCgroup", "evictionSoftGracePeriod", "evictionMinimumReclaim",
    "cpuCFSQuota", "cpuCFSQuotaPeriod", "memorySwap", "memoryThrottlingFactor",
})  # fmt: skip
"""Real fields with names similar to one of those."""


def meant(name: str, known: Iterable[str], cutoff: float = 0.8) -> str | None:
    """The known name that a misspelled one probably means."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None
