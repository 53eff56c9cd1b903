"""Every rule: how bad it is, and what bites, in one sentence. docs/lint.md is compared with this."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """`error`: broken, or the promise does not hold. `warning`: it will bite some day. `info`: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that bites."""

    severity: Severity
    bites: str


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

FILES: Final[Mapping[str, Rule]] = {
    "unreadable": Rule(_E, "The file is no YAML or JSON, or beyond all bounds."),
    "duplicate-key": Rule(_E, "A key occurs twice in one map: strict readers refuse it, others take the last one."),
    "kustomization-not-built": Rule(_W, "Only kustomize knows what a kustomization makes: it is not looked at."),
    "nothing-to-check": Rule(_W, "The file holds no document of a kind that is looked at."),
}

SCHEDULER: Final[Mapping[str, Rule]] = {
    "scheduler-api-version": Rule(_E, "This kube-scheduler does not read this apiVersion of its configuration."),
    "scheduler-policy-gone": Rule(_E, "`kind: Policy` was removed in 1.23."),
    "scheduler-unknown-field": Rule(_E, "kube-scheduler reads its configuration strictly: it does not start."),
    "no-extender": Rule(_W, "The configuration names no extender."),
    "profile-name-twice": Rule(_E, "Two profiles of one name: kube-scheduler does not start."),
    "profiles-share-extenders": Rule(_I, "Extenders are called for the pods of every profile."),
    "lease-shared": Rule(_E, "A second scheduler competes with the control plane's for one lease: only one is active."),
    "nodes-sampled": Rule(_W, "Only a sample of the feasible nodes reaches the extender."),
    "percentage-invalid": Rule(_E, "Outside 0 to 100, or no integer: kube-scheduler does not start."),
    "two-binders": Rule(_E, "Two extenders with a bindVerb: kube-scheduler does not start."),
    "ignorable-order": Rule(_W, "Ignorable extenders are called last, whatever the order in the file."),
    "managed-resource-twice": Rule(_E, "Two extenders manage one resource: kube-scheduler does not start."),
}

EXTENDER: Final[Mapping[str, Rule]] = {
    "url-prefix": Rule(_E, "No URL that can be called."),
    "tls-unverified": Rule(_E, "The server's certificate is not verified: anyone on the way may answer."),
    "https-flag-on-http": Rule(
        _E, "The scheme comes from urlPrefix alone: plain HTTP is spoken, a TLS server hangs up."
    ),
    "ca-and-insecure": Rule(_E, "A CA together with `insecure: true`: kube-scheduler does not start."),
    "client-cert-incomplete": Rule(_E, "A client certificate without its key, or the key without it."),
    "tls-config-on-http": Rule(_W, "tlsConfig has no effect on http://."),
    "plain-http": Rule(_W, "Pods and verdicts cross the network unprotected."),
    "ca-read-once": Rule(_I, "kube-scheduler reads the CA once: its rotation needs a restart."),
    "node-cache-incapable": Rule(_E, "Whole Node objects are sent, and from 1.33 on in-tree scores see empty nodes."),
    "timeout-unset": Rule(_W, "An unset httpTimeout means 5 s."),
    "timeout-invalid": Rule(_E, "No duration such as 5s: kube-scheduler does not start."),
    "timeout-below-deadline": Rule(_E, "kube-scheduler gives up before the extender does: its answer comes too late."),
    "timeout-long": Rule(_W, "The scheduler does nothing else while it waits."),
    "weight-missing": Rule(_E, "A prioritizeVerb needs a weight above 0: kube-scheduler does not start."),
    "weight-invalid": Rule(_E, "No integer: kube-scheduler does not start."),
    "weight-unused": Rule(_W, "A weight without prioritizeVerb has no effect."),
    "weight-dominates": Rule(_W, "The extender outweighs all other scores together."),
    "verb-slash": Rule(_E, "A slash at the end of a verb, or at its beginning, makes another path."),
    "verb-no-route": Rule(_E, "The extender has no such route: every call fails."),
    "verb-wrong-route": Rule(_E, "The verb leads to the route of another verb."),
    "filter-missing": Rule(_E, "Without filterVerb nothing keeps a pod from a node that refuses it."),
    "prioritize-missing": Rule(_W, "Without prioritizeVerb the nodes that admit are not ranked by NUMA fit."),
    "bind-missing": Rule(_W, "Without bindVerb nothing is checked again just before the pod is bound."),
    "preempt-missing": Rule(_W, "Pods are evicted on nodes that refuse the preemptor all the same."),
    "managed-resource-native": Rule(_E, "cpu, memory and hugepages cannot be managed: kube-scheduler does not start."),
    "managed-resources-hide": Rule(_W, "Pods without such a resource never reach the extender."),
    "binder-of-some-pods": Rule(_I, "Pods without such a resource are bound by kube-scheduler, without the last look."),
    "ignored-by-scheduler": Rule(_W, "It replaces the list of ignored resources of every profile."),
    "service-name-on-host-network": Rule(_E, "The scheduler's resolver does not know names of Services."),
    "ignorable-without-alert": Rule(_W, "While the extender is down pods are placed without it, and nobody is told."),
    "ignorable-binder": Rule(_E, "What bind refuses is bound all the same, by kube-scheduler itself."),
}

KUBELET: Final[Mapping[str, Rule]] = {
    "kubelet-api-version": Rule(_E, "Kubelets read kubelet.config.k8s.io/v1beta1."),
    "kubelet-field-misspelled": Rule(_W, "A kubelet may only log an unknown field, and run without it."),
    "kubelet-value-invalid": Rule(_E, "A value of a wrong type, or no quantity."),
    "kubelet-does-not-start": Rule(_E, "The kubelet refuses to start with this configuration."),
    "kubelet-gate": Rule(_E, "The kubelet does not start: its version lacks a feature gate, or has it locked."),
    "kubelet-newer-than-known": Rule(_I, "The rules of the newest known kubelet stand in."),
    "topology-without-static-cpu": Rule(_W, "No CPUs are aligned: the CPU manager gives no hints."),
    "static-cpu-without-topology": Rule(_I, "CPUs are exclusive, but nothing aligns them with anything."),
    "prefer-closest-no-effect": Rule(_W, "prefer-closest-numa-nodes does nothing under single-numa-node."),
    "topology-options-ignored": Rule(_W, "Options of the Topology Manager are not even read under policy none."),
    "memory-without-topology": Rule(_W, "Memory is pinned to NUMA nodes that nothing aligns with the CPUs."),
    "memory-groups": Rule(_W, "A pod that spans NUMA nodes joins them into a group that refuses pods of one node."),
    "best-effort-refuses": Rule(_I, "best-effort does not refuse, but the Memory Manager may."),
    "full-pcpus-only": Rule(_I, "CPU requests that fill no whole core are refused, under every policy."),
    "reserved-cpus-override": Rule(_W, "reservedSystemCPUs replaces the cpu of systemReserved and kubeReserved."),
    "reserved-cpu-fraction": Rule(_W, "The scheduler counts a part of a CPU that the kubelet gives nobody."),
    "eviction-percent": Rule(_W, "reservedMemory must match to the byte, and a percentage differs by machine."),
    "reserved-memory-unused": Rule(_W, "reservedMemory has no effect without memoryManagerPolicy Static."),
    "memory-manager-gate": Rule(_E, "The feature gate switches the Memory Manager off."),
    "cpu-reconcile-slow": Rule(_W, "CPUs of ended pods stay assigned until the next reconciliation."),
}

OURS: Final[Mapping[str, Rule]] = {
    "setting-unknown": Rule(_E, "No setting of that name: it has no effect."),
    "setting-invalid": Rule(_E, "The program does not start with this setting."),
    "keep-alive-short": Rule(_E, "Connections close under the scheduler's calls: some fail for no other reason."),
    "insecure": Rule(_W, "Everybody who can connect may report, schedule and read, over plain HTTP."),
    "arguments-invalid": Rule(_E, "The program does not start with these arguments."),
    "probe-unreachable": Rule(_E, "The program listens there on loopback only, the probe asks the pod's address."),
    "probe-port": Rule(_E, "The probe asks a port on which nothing listens."),
    "probe-path": Rule(_E, "The probe asks a path that does not exist."),
    "grace-period-short": Rule(_W, "The kubelet kills the process while requests are under way."),
    "replicas-split-reports": Rule(_E, "Each replica knows only the nodes that happen to report to it."),
    "standby-refuses": Rule(_W, "Bind calls that reach a standby are refused: the scheduler stays with it for long."),
    "standby-blocks-drain": Rule(_W, "A standby that is never ready: a drain of the leader's node may never end."),
    "cpu-limit": Rule(_W, "Throttled, the extender answers after the scheduler's time-out."),
    "token-in-clear": Rule(_E, "A token is sent over plain HTTP."),
    "push-in-clear": Rule(_E, "An extender takes plain HTTP from loopback only."),
    "push-to-loopback": Rule(_E, "The exporter reports to its own pod."),
    "kubelet-not-asked": Rule(_W, "Without the kubelet's version nothing can be replayed."),
    "kubelet-unproven": Rule(_E, "The exporter shows its token only to a kubelet that it can tell from another."),
    "interval-makes-stale": Rule(_E, "Nodes go stale between two messages of their exporter."),
    "state-file-mounted": Rule(_E, "The kubelet replaces its state files: a mounted one never changes."),
}

RULES: Final[Mapping[str, Rule]] = {**FILES, **SCHEDULER, **EXTENDER, **KUBELET, **OURS}
