"""Findings, and the rules with severity and the problem in one sentence. A test compares docs/lint.md with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from extender.lint.documents import Located


class Severity(StrEnum):
    """`error`: it does not work, or admission is not guaranteed.

    `warning`: it will cause trouble. `info`: good to know.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Rule:
    """One pitfall."""

    severity: Severity
    summary: str


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

FILES: Final[Mapping[str, Rule]] = {
    "unreadable": Rule(_E, "The file is not YAML or JSON, or exceeds a limit."),
    "duplicate-key": Rule(_E, "A duplicate key in a map: strict readers refuse it, others use the last value."),
    "kustomization-not-built": Rule(_W, "A kustomization is not checked: only kustomize can build it."),
    "nothing-to-check": Rule(_W, "The file contains no document of a kind that is checked."),
}

SCHEDULER: Final[Mapping[str, Rule]] = {
    "scheduler-api-version": Rule(_E, "This kube-scheduler does not read this apiVersion of its configuration."),
    "scheduler-policy-gone": Rule(_E, "`kind: Policy` was removed in 1.23."),
    "scheduler-unknown-field": Rule(_E, "kube-scheduler reads its configuration strictly: it does not start."),
    "no-extender": Rule(_W, "The configuration names no extender."),
    "profile-name-twice": Rule(_E, "Two profiles of one name: kube-scheduler does not start."),
    "profiles-share-extenders": Rule(_I, "Extenders are called for the pods of every profile."),
    "lease-shared": Rule(_E, "A second scheduler competes with the control plane's for one lease: only one is active."),
    "nodes-sampled": Rule(_W, "The extender receives only a sample of the feasible nodes."),
    "percentage-invalid": Rule(_E, "The percentage is not an integer from 0 to 100: kube-scheduler does not start."),
    "two-binders": Rule(_E, "Two extenders with a bindVerb: kube-scheduler does not start."),
    "ignorable-order": Rule(_W, "Ignorable extenders are called last, whatever the order in the file."),
    "managed-resource-twice": Rule(_E, "Two extenders manage one resource: kube-scheduler does not start."),
}

EXTENDER: Final[Mapping[str, Rule]] = {
    "url-prefix": Rule(_E, "urlPrefix is not a URL that can be called."),
    "tls-unverified": Rule(_E, "The server's certificate is not verified: anyone on the network path can answer."),
    "https-flag-on-http": Rule(
        _E, "The scheme comes from urlPrefix alone: plain HTTP is used, and a TLS server closes the connection."
    ),
    "ca-and-insecure": Rule(_E, "A CA together with `insecure: true`: kube-scheduler does not start."),
    "client-cert-incomplete": Rule(_E, "A client certificate without its key, or the key without it."),
    "tls-config-on-http": Rule(_W, "tlsConfig has no effect on http://."),
    "plain-http": Rule(_W, "Pods and verdicts cross the network unprotected."),
    "ca-read-once": Rule(_I, "kube-scheduler reads the CA once: its rotation needs a restart."),
    "node-cache-incapable": Rule(
        _E, "Whole Node objects are sent, and from 1.33 on in-tree scores treat nodes as empty."
    ),
    "timeout-unset": Rule(_W, "An unset httpTimeout means 5 s."),
    "timeout-invalid": Rule(_E, "httpTimeout is not a duration such as 5s: kube-scheduler does not start."),
    "timeout-below-deadline": Rule(
        _E, "kube-scheduler's time-out is shorter than the extender's: the reply is too late."
    ),
    "timeout-long": Rule(_W, "The scheduler places no other pod while it waits for the extender."),
    "weight-missing": Rule(_E, "A prioritizeVerb needs a weight above 0: kube-scheduler does not start."),
    "weight-invalid": Rule(_E, "The weight is not an integer: kube-scheduler does not start."),
    "weight-unused": Rule(_W, "A weight without prioritizeVerb has no effect."),
    "weight-dominates": Rule(_W, "The extender outweighs all other scores together."),
    "verb-slash": Rule(_E, "A slash at the beginning or end of a verb changes the path."),
    "verb-no-route": Rule(_E, "The extender has no such route: every call fails."),
    "verb-wrong-route": Rule(_E, "The verb leads to the route of another verb."),
    "filter-missing": Rule(_E, "Without filterVerb pods are sent to nodes that refuse them."),
    "prioritize-missing": Rule(_W, "Without prioritizeVerb nodes that admit the pod are not scored by NUMA fit."),
    "bind-missing": Rule(_W, "Without bindVerb nothing is checked again just before the pod is bound."),
    "preempt-missing": Rule(_W, "Without preemptVerb pods are evicted on nodes that still refuse the preemptor."),
    "managed-resource-native": Rule(_E, "cpu, memory and hugepages cannot be managed: kube-scheduler does not start."),
    "managed-resources-hide": Rule(_W, "Pods that request no managed resource never reach the extender."),
    "binder-of-some-pods": Rule(
        _I, "kube-scheduler itself binds pods that request no managed resource: bind does not check them."
    ),
    "ignored-by-scheduler": Rule(_W, "ignoredByScheduler replaces the list of ignored resources of every profile."),
    "service-name-on-host-network": Rule(_E, "The scheduler's resolver does not know names of Services."),
    "ignorable-without-alert": Rule(_W, "While the extender is down pods are placed without it, and no alert fires."),
    "ignorable-binder": Rule(_E, "Pods that bind refuses are bound by kube-scheduler itself."),
}

KUBELET: Final[Mapping[str, Rule]] = {
    "kubelet-api-version": Rule(_E, "Kubelets read kubelet.config.k8s.io/v1beta1."),
    "kubelet-field-misspelled": Rule(_W, "A kubelet can start with an unknown field and only log it."),
    "kubelet-value-invalid": Rule(_E, "A value of a wrong type, or not a quantity."),
    "kubelet-does-not-start": Rule(_E, "The kubelet refuses to start with this configuration."),
    "kubelet-gate": Rule(_E, "The kubelet does not start: its version lacks a feature gate, or has it locked."),
    "kubelet-gate-unknown": Rule(_W, "A kubelet that does not know a feature gate does not start."),
    "kubelet-newer-than-known": Rule(_I, "The rules of the newest known kubelet are used."),
    "topology-without-static-cpu": Rule(_W, "No CPUs are aligned: the CPU manager gives no hints."),
    "static-cpu-without-topology": Rule(_I, "CPUs are exclusive, but nothing aligns them with anything."),
    "prefer-closest-no-effect": Rule(_W, "prefer-closest-numa-nodes does nothing under single-numa-node."),
    "topology-options-ignored": Rule(_W, "Options of the Topology Manager are ignored under policy none."),
    "memory-without-topology": Rule(_W, "Memory is pinned to NUMA nodes that nothing aligns with the CPUs."),
    "memory-groups": Rule(_W, "A pod that spans NUMA nodes joins them: no pod can have memory on one of them alone."),
    "best-effort-refuses": Rule(_I, "best-effort refuses no pod, but the Memory Manager can."),
    "full-pcpus-only": Rule(
        _I, "CPU requests that are not a multiple of a core's threads are refused, under every policy."
    ),
    "reserved-cpus-override": Rule(_W, "reservedSystemCPUs replaces the cpu of systemReserved and kubeReserved."),
    "reserved-cpu-fraction": Rule(_W, "The scheduler counts a part of a CPU that the kubelet allocates to no pod."),
    "eviction-percent": Rule(_W, "reservedMemory must match to the byte, and a percentage differs by machine."),
    "reserved-memory-unused": Rule(_W, "reservedMemory has no effect without memoryManagerPolicy Static."),
    "memory-manager-gate": Rule(_E, "The feature gate switches the Memory Manager off."),
    "cpu-reconcile-slow": Rule(_W, "CPUs of ended pods stay assigned until the next reconciliation."),
}

OURS: Final[Mapping[str, Rule]] = {
    "setting-unknown": Rule(_E, "Unknown setting: it has no effect."),
    "setting-invalid": Rule(_E, "The program does not start with this setting."),
    "keep-alive-short": Rule(_E, "Connections are closed during the scheduler's calls, which then fail."),
    "insecure": Rule(_W, "Every caller may report, schedule and read, over plain HTTP."),
    "arguments-invalid": Rule(_E, "The program does not start with these arguments."),
    "probe-unreachable": Rule(_E, "The program listens on loopback only, but the probe uses the pod's address."),
    "probe-port": Rule(_E, "The probe uses a port on which nothing listens."),
    "probe-path": Rule(_E, "The probe uses a path that does not exist."),
    "grace-period-short": Rule(_W, "The kubelet kills the process while requests are in progress."),
    "replicas-split-reports": Rule(_E, "Each replica knows only the nodes that report to it."),
    "standby-refuses": Rule(
        _W, "Bind calls that reach a standby are refused: the scheduler keeps that connection for long."
    ),
    "standby-blocks-drain": Rule(_W, "A standby is never ready, so that a drain of the leader's node may never end."),
    "cpu-limit": Rule(_W, "A throttled extender replies after the scheduler's time-out."),
    "token-in-clear": Rule(_E, "A token is sent over plain HTTP."),
    "push-in-clear": Rule(_E, "An extender accepts plain HTTP on loopback only."),
    "push-to-loopback": Rule(_E, "The exporter reports to its own pod."),
    "kubelet-not-asked": Rule(_W, "Without the kubelet's version nothing can be replayed."),
    "kubelet-unproven": Rule(_E, "The exporter sends its token only to a kubelet whose certificate it can verify."),
    "interval-makes-stale": Rule(_E, "Nodes go stale between two messages of their exporter."),
    "state-file-mounted": Rule(_E, "The kubelet replaces its state files: a mounted one never changes."),
}

NRI: Final[Mapping[str, Rule]] = {
    "nri-annotation-ignored": Rule(_W, "The NRI topology-aware policy ignores an annotation."),
    "nri-annotation-refused": Rule(_E, "The policy never creates the container: it stays in CreateContainerError."),
    "nri-annotation-crash": Rule(_E, "The plugin's process ends, and containers are created without the policy."),
    "nri-config-invalid": Rule(_E, "The plugin refuses the configuration: it keeps the old one, or does not start."),
    "nri-field-misspelled": Rule(_W, "The API server drops an unknown field, and the plugin refuses it in a file."),
    "nri-namespace-pattern": Rule(_W, "A malformed pattern ends the search in reservedPoolNamespaces."),
    "nri-zones-off": Rule(_I, "The plugin publishes no NodeResourceTopology object."),
    "nri-unlimited-burstable": Rule(_I, "unlimitedBurstable places only containers that have a memory limit."),
    "nri-static-cpu": Rule(_W, "The kubelet's CPU Manager and the policy both pin CPUs without knowing each other."),
    "nri-reserves-more": Rule(_W, "The policy reserves CPUs that the scheduler counts as free."),
    "nri-grants-unread": Rule(_W, "The exporter reads the policy's configuration, but not its grants."),
}

DEMANDS: Final[Mapping[str, Rule]] = {
    "demand-value": Rule(_E, "A demand for alignment is not understood: the pods stay Pending."),
    "demand-key": Rule(_W, "An annotation or label of numa-extender.io has no meaning."),
    "group-size": Rule(_W, "The size of a group of pods is not a number above 0: its pods are placed one by one."),
    "demand-misplaced": Rule(_W, "A demand is on the workload, not on its pods: it has no effect."),
    "demand-unplaced": Rule(_W, "No kubelet places such pods: they fit only on nodes with one NUMA node."),
}

RULES: Final[Mapping[str, Rule]] = {**FILES, **SCHEDULER, **EXTENDER, **KUBELET, **OURS, **NRI, **DEMANDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`path`: the place in the document. `why`: the consequence here. `fix`: what to do."""

    file: str
    line: int
    path: str
    rule: str
    severity: Severity
    why: str
    fix: str


def found(rule: str, place: Located, why: str, fix: str) -> Finding:
    """A finding of a rule of the catalogue, at a place of a document."""
    return Finding(
        file=place.file,
        line=place.line,
        path=place.path,
        rule=rule,
        severity=RULES[rule].severity,
        why=why,
        fix=fix,
    )
