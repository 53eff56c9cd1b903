"""Karpenter with its provider kwok, a NodePool, and the only instance type of the provider."""

import json
from pathlib import Path

import yaml

from tests.live import shapes
from tests.live.api import MERGE_PATCH, Json
from tests.live.autoscaling import POOL
from tests.live.control_plane import ControlPlane
from tests.live.processes import Program, until
from tests.ports import reserve_port

API = "/apis/karpenter.sh/v1"
NODE_POOL = "general"
TYPE = "live-large"
LABELS = {"karpenter.sh/nodepool": NODE_POOL, "node.kubernetes.io/instance-type": TYPE}
_CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"


def instance_type(scenario: Json) -> Json:
    """The machine, as the provider reads it from its file."""
    offered = shapes.allocatable(scenario)
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
    ]
    return {
        "name": TYPE,
        "offerings": [{"Price": 1.0, "Available": True, "Requirements": requirements}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {
            "cpu": str(len(scenario["machine"]["cpus"])),
            "memory": str(offered["memory"]),
            "ephemeral-storage": "100Gi",
            "pods": "110",
        },
    }


def node_pool(limit_cpus: int) -> Json:
    """One whose nodes Karpenter removes as soon as it thinks that they are not needed."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    spec = {"nodeClassRef": reference, "requirements": [], "expireAfter": "Never"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": NODE_POOL},
        "spec": {
            "template": {"metadata": {"labels": {POOL: NODE_POOL}}, "spec": spec},
            "limits": {"cpu": str(limit_cpus)},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "0s",
                "budgets": [{"nodes": "100%"}],
            },
        },
    }


class Karpenter(Program):
    """The program. Its objects are there before it starts."""

    def __init__(self, binary: Path, crds: Path, plane: ControlPlane, logs: Path, scenario: Json, limit: int) -> None:
        certificate, key = plane.identities.client("karpenter", user="live-karpenter", group="system:masters")
        files = {"client-certificate": str(certificate), "client-key": str(key)}
        kubeconfig = plane.identities.kubeconfig("karpenter", plane.url, files)
        for path in sorted(crds.glob("*.yaml")):
            plane.api.apply(yaml.safe_load(path.read_text()))
        for served in (f"{API}/nodepools", f"{API}/nodeclaims", _CLASSES):
            until(lambda path=served: plane.api.answers(path), 60, f"the API server serves {served}")  # type: ignore[misc]
        made = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
        plane.api.call("POST", _CLASSES, made)
        plane.api.call("POST", f"{API}/nodepools", node_pool(limit))
        types = logs / "instance-types.json"
        types.write_text(json.dumps([instance_type(scenario)]))
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "SYSTEM_NAMESPACE": "kube-system",
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(reserve_port()),
            "HEALTH_PROBE_PORT": str(reserve_port()),
            "INSTANCE_TYPES_FILE_PATH": str(types),
        }
        super().__init__("karpenter", [binary], logs / "karpenter.log", environment)


def claims(plane: ControlPlane) -> list[Json]:
    """The NodeClaims that exist."""
    return plane.api.items(f"{API}/nodeclaims")


def label_nodes(plane: ControlPlane, names: list[str]) -> None:
    """Put these nodes into the NodePool. Karpenter does nothing at all while one of them has no `providerID`."""
    for name in names:
        patch = {"metadata": {"labels": LABELS}, "spec": {"providerID": f"kwok://{name}"}}
        plane.api.call("PATCH", f"/api/v1/nodes/{name}", patch, MERGE_PATCH)
