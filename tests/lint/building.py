"""Documents for the linter, in few words: a sound one of each kind, with changes."""

from dataclasses import dataclass
from typing import Any

import yaml

Json = dict[str, Any]
GONE = object()
"""As a value: without this key."""


def changed(base: Json, changes: Json) -> Json:
    """A copy with keys set, maps merged, `GONE` ones removed."""
    result = dict(base)
    for key, value in changes.items():
        if value is GONE:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = changed(result[key], value)
        else:
            result[key] = value
    return result


def as_yaml(document: Json) -> str:
    """By libyaml: each test process makes all documents."""
    return str(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False))


def extender(**changes: object) -> Json:
    return changed(
        {
            "urlPrefix": "http://127.0.0.1:9600/scheduler",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "bindVerb": "bind",
            "weight": 5,
            "nodeCacheCapable": True,
            "httpTimeout": "7s",
        },
        changes,
    )


def https(**tls: object) -> Json:
    """An extender over TLS on another host."""
    return extender(urlPrefix="https://numa.example.org:9600/scheduler", enableHTTPS=True, tlsConfig=tls)


def foreign(**changes: object) -> Json:
    """Somebody else's extender."""
    base = {"urlPrefix": "http://localhost:8888", "filterVerb": "fit", "nodeCacheCapable": True, "httpTimeout": "1s"}
    return changed(base, changes)


def scheduler(*extenders: Json, **changes: object) -> str:
    base = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "extenders": list(extenders) or [extender()],
    }
    return as_yaml(changed(base, changes))


def kubelet(**changes: object) -> str:
    base = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node",
        "memoryManagerPolicy": "Static",
        "systemReserved": {"cpu": "1", "memory": "1Gi"},
        "kubeReserved": {"cpu": "1", "memory": "924Mi"},
        "evictionHard": {"memory.available": "100Mi"},
        "reservedMemory": [
            {"numaNode": 0, "limits": {"memory": "1Gi"}},
            {"numaNode": 1, "limits": {"memory": "1Gi"}},
        ],
    }
    return as_yaml(changed(base, changes))


def _workload(kind: str, container: Json, pod: Json, spec: Json) -> str:
    template = {"spec": changed({"containers": [container]}, pod)}
    document = {"apiVersion": "apps/v1", "kind": kind, "spec": changed({"template": template}, spec)}
    return as_yaml(document)


def env(**variables: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def tls_env(**variables: str) -> list[Json]:
    return env(NUMA_EXTENDER_TLS_CERT_FILE="/tls.crt", NUMA_EXTENDER_TLS_KEY_FILE="/tls.key", **variables)


def deployment(container: Json | None = None, pod: Json | None = None, **spec: object) -> str:
    """A Deployment of the extender."""
    base = {
        "image": "example.org/numa-extender:0.1.0",
        "args": ["serve"],
        "env": tls_env(),
        "ports": [{"name": "https", "containerPort": 9643}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"}},
    }
    return _workload("Deployment", changed(base, container or {}), pod or {}, {"replicas": 1, **spec})


def daemonset(pod: Json | None = None, **container: object) -> str:
    """A DaemonSet of the exporter."""
    base = {
        "image": "numa-node-exporter:0.1.0",
        "args": ["run"],
        "env": exporter_env(),
        "volumeMounts": [{"name": "kubelet", "mountPath": "/var/lib/kubelet"}],
    }
    return _workload("DaemonSet", changed(base, container), pod or {}, {})


def exporter_env(**changes: str | object) -> list[Json]:
    base = {
        "NUMA_PUSH_URL": "https://numa-extender.numa-extender.svc:9643",
        "KUBELET_URL": "https://$(HOST_IP):10250",
        "KUBELET_CA_FILE": "/ca.crt",
    }
    return env(**{name: str(value) for name, value in changed(base, dict(changes)).items()})


def host_scheduler(dns_policy: str) -> str:
    """The control plane's own kube-scheduler."""
    spec = {"hostNetwork": True, "dnsPolicy": dns_policy, "containers": [{"command": ["kube-scheduler"]}]}
    return as_yaml({"apiVersion": "v1", "kind": "Pod", "spec": spec})


def alert(expr: str) -> str:
    return as_yaml({"kind": "PrometheusRule", "spec": {"groups": [{"rules": [{"alert": "A", "expr": expr}]}]}})


@dataclass(frozen=True)
class Case:
    bad: tuple[str, ...]
    good: tuple[str, ...]
    kube: int = 36
    kubelet: str = "v1.36.0"
    good_kube: int | None = None


def case(bad: str, good: str, **versions: int | str) -> Case:
    return Case((bad,), (good,), **versions)  # type: ignore[arg-type]
