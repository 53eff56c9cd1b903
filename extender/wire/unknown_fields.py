"""Finds fields of a pod's spec that Kubernetes does not have, such as `resources.limit`.

The API server drops such a field or refuses the pod, so that it has no effect. Only the places where a mistake changes
an answer are checked: the spec itself, its containers, and their resources.

Source: PodSpec, Container and ResourceRequirements of the Kubernetes API of 1.37, and `workloadRef` of 1.35 and 1.36. A
test compares them with the models of the Kubernetes client.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Final

Json = Mapping[str, object]
MAX_FOUND: Final = 20
MAX_SHOWN: Final = 64
_SPEC: Final = frozenset({
    "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
    "enableServiceLinks", "ephemeralContainers", "evictionResponders", "hostAliases", "hostIPC", "hostNetwork",
    "hostPID", "hostUsers", "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName",
    "nodeSelector", "os", "overhead", "preemptionPolicy", "priority", "priorityClassName", "readinessGates",
    "resourceClaims", "resources", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates",
    "schedulingGroup", "securityContext", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN",
    "shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints",
    "volumes", "workloadRef",
})  # fmt: skip
_CONTAINER: Final = frozenset({
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name", "ports",
    "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules", "securityContext",
    "startupProbe", "stdin", "stdinOnce", "terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices",
    "volumeMounts", "workingDir",
})  # fmt: skip
_RESOURCES: Final = frozenset(("claims", "limits", "requests"))


def unknown_fields(spec: Json) -> tuple[str, ...]:
    """The unknown fields of a pod's spec, one sentence each, at most `MAX_FOUND`."""
    return tuple(islice(_unknown(spec), MAX_FOUND))


def _unknown(spec: Json) -> Iterator[str]:
    yield from _among(spec, _SPEC, "spec")
    yield from _among(spec.get("resources"), _RESOURCES, "spec.resources")
    for key in ("initContainers", "containers"):
        containers = spec.get(key)
        for i, container in enumerate(containers if isinstance(containers, list) else ()):
            path = f"spec.{key}[{i}]"
            yield from _among(container, _CONTAINER, path)
            if isinstance(container, dict):
                yield from _among(container.get("resources"), _RESOURCES, f"{path}.resources")


def _among(value: object, known: frozenset[str], path: str) -> Iterator[str]:
    for name in value if isinstance(value, dict) else ():
        if name not in known:
            shown = str(name)[:MAX_SHOWN]
            near = get_close_matches(shown, known, n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield f"{path}.{shown} is not a field of Kubernetes, and was ignored{hint}"
