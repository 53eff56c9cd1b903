"""Kueue's manager with its own CRDs, and the part of the Job controller that makes pods."""

from pathlib import Path

import orjson
import yaml

from tests.live.api import MERGE_PATCH, Json
from tests.live.control_plane import ControlPlane
from tests.live.processes import Program, until
from tests.ports import reserve_port

GROUP = "kueue.x-k8s.io/v1beta2"
API = f"/apis/{GROUP}"
WORKLOADS = f"{API}/namespaces/default/workloads"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUEUE, CHECK, POOL = "live-queue", "live-check", "live-pool"
CPUS = 1000
"""The quota: more than any cluster of a scene has."""


class Kueue(Program):
    """The manager, in a mount namespace: it reads certificates of its metrics from a fixed folder below /etc."""

    def __init__(self, binary: Path, crds: Path, plane: ControlPlane, directory: Path, logs: Path) -> None:
        certificate, key = plane.identities.client("kueue", user="live-kueue", group="system:masters")
        files = {"client-certificate": str(certificate), "client-key": str(key)}
        kubeconfig = plane.identities.kubeconfig("kueue", plane.url, files)
        own = directory / "kueue-etc"
        certificates = own / "kueue/metrics/certs"
        certificates.mkdir(parents=True)
        for made, name in zip(plane.identities.server("kueue-server"), ("tls.crt", "tls.key"), strict=True):
            (certificates / name).write_bytes(made.read_bytes())
        config = directory / "kueue.yaml"
        config.write_text(yaml.safe_dump(_configuration(directory / "kueue-etc/kueue/metrics/certs")))
        applied = [plane.api.apply(yaml.safe_load(path.read_text())) for path in sorted(crds.glob("*.yaml"))]
        wanted = {f"{each['spec']['group']}/{version['name']}/{each['spec']['names']['plural']}"
                  for each in applied for version in each["spec"]["versions"] if version["served"]}  # fmt: skip
        until(lambda: wanted <= _discovered(plane), 120, "the API server names Kueue's objects to its clients")
        plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
        script = f'mount --bind {own} /etc && exec {binary} "$@"'
        command: list[str | Path] = [
            "unshare", "--mount", "sh", "-c", script, "kueue", f"--config={config}", f"--kubeconfig={kubeconfig}",
            "--zap-log-level=2",
        ]  # fmt: skip
        super().__init__("kueue", command, logs / "kueue.log")


def _discovered(plane: ControlPlane) -> set[str]:
    """GROUP/VERSION/PLURAL of what clients that ask the API server for its resources hear of Kueue.

    An object can be listed some time before.
    """
    groups = [each for each in plane.api.call("GET", "/apis")["groups"] if each["name"] == GROUP.partition("/")[0]]
    versions = [version["groupVersion"] for each in groups for version in each["versions"]]
    return {f"{version}/{each['name']}" for version in versions
            for each in plane.api.call("GET", f"/apis/{version}")["resources"]}  # fmt: skip


def _configuration(certificates: Path) -> Json:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{reserve_port()}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": reserve_port(), "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": {"VisibilityOnDemand": False},
    }


def queue(plane: ControlPlane, name: str = QUEUE, topology: str = "") -> None:
    """A queue with much quota and the extender's check, for the nodes with the label `POOL`.

    *topology*: the label of the only level of a topology by which Kueue places pods; "": it does not place them.
    """
    flavor: Json = {"nodeLabels": {POOL: "a"}}
    if topology:
        _apply(plane, "Topology", name, {"levels": [{"nodeLabel": topology}]})
        flavor["topologyName"] = name
    quotas = [{"name": "cpu", "nominalQuota": str(CPUS)}, {"name": "memory", "nominalQuota": "1000Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": quotas}]}
    checks = {"admissionChecks": [{"name": CHECK}]}
    _apply(plane, "ResourceFlavor", name, flavor)
    _apply(plane, "AdmissionCheck", CHECK, {"controllerName": "numa-extender.io/alignment"})
    _apply(
        plane,
        "ClusterQueue",
        name,
        {"namespaceSelector": {}, "resourceGroups": [group], "admissionChecksStrategy": checks},
    )
    _apply(plane, "LocalQueue", name, {"clusterQueue": name}, namespace="default")


def _apply(plane: ControlPlane, kind: str, name: str, spec: Json, namespace: str = "") -> None:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    plane.api.apply({"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec})


def job(name: str, pods: int, template: Json, queue: str = QUEUE, **annotations: str) -> Json:
    """A Job that Kueue starts. *template*: a v1.Pod. *annotations*: of its pods."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": {"annotations": annotations}, "spec": template["spec"]},
        },
    }


def make_pods(plane: ControlPlane, name: str) -> list[Json]:
    """What the Job controller does once the Job is not suspended: its pods, from its template as it is now."""
    found = plane.api.call("GET", f"{JOBS}/{name}")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": found["metadata"]["uid"], "controller": True}
    pods = []
    for number in range(found["spec"]["parallelism"]):
        template = orjson.loads(orjson.dumps(found["spec"]["template"]))
        template["metadata"] |= {"name": f"{name}-{number}", "namespace": "default", "ownerReferences": [owner]}
        pods.append(plane.api.create({"apiVersion": "v1", "kind": "Pod", **template}))
    return pods


def is_started(plane: ControlPlane, name: str) -> bool:
    """Whether Kueue has started the Job."""
    return not plane.api.call("GET", f"{JOBS}/{name}")["spec"].get("suspend")


def workload_of(plane: ControlPlane, name: str) -> Json:
    """The Workload that Kueue has made for the Job; empty: none yet."""
    for each in plane.api.items(WORKLOADS):
        if any(owner["name"] == name for owner in each["metadata"].get("ownerReferences", ())):
            return each
    return {}


def conditions(document: Json) -> dict[str, Json]:
    """The conditions in the status, by type."""
    return {each["type"]: each for each in document.get("status", {}).get("conditions", ())}


def check_of(workload: Json) -> Json:
    """The entry of our check; empty: none yet."""
    found = workload.get("status", {}).get("admissionChecks", ())
    return next((each for each in found if each["name"] == CHECK), {})


def label_nodes(plane: ControlPlane) -> None:
    """Put all nodes into the flavor."""
    for node in plane.api.items("/api/v1/nodes"):
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        plane.api.call("PATCH", path, {"metadata": {"labels": {POOL: "a"}}}, MERGE_PATCH)
