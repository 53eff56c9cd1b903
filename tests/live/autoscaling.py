"""Cluster Autoscaler with its provider kwok, and the machines behind the Node objects that it makes."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import yaml

from tests.live import shapes
from tests.live.api import MERGE_PATCH, ApiError, Json
from tests.live.cluster import Cluster
from tests.live.control_plane import ControlPlane
from tests.live.processes import Program, until
from tests.ports import reserve_port

POOL = "live-pool"
GROUP = "live-group"
"""The provider counts every node with this label as one of its own."""
NAMESPACE = "kube-system"
MAX_NODES = 6
_GROUP = "autoscaling.x-k8s.io"
REQUESTS = f"/apis/{_GROUP}/v1/provisioningrequests"


def crd() -> Json:
    """ProvisioningRequest, without a schema of its own."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": "provisioningrequests", "singular": "provisioningrequest", "kind": "ProvisioningRequest"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"provisioningrequests.{_GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, test-only"},
        },
        "spec": {
            "group": _GROUP, "scope": "Namespaced",
            "names": {**names, "listKind": "ProvisioningRequestList"}, "versions": [version],
        },
    }  # fmt: skip


def template_node(pool: str, scenario: Json) -> Json:
    """The Node that the provider copies for each new node of a pool."""
    offered = shapes.allocatable(scenario)
    amounts = {name: str(amount) for name, amount in offered.items() if name != "cpu"}
    amounts |= {"cpu": f"{offered['cpu']}m", "pods": "110", "ephemeral-storage": "100Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{pool}-template",
            "labels": {POOL: pool, GROUP: pool, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
            "annotations": {
                "cluster-autoscaler.kwok.nodegroup/min-count": "0",
                "cluster-autoscaler.kwok.nodegroup/max-count": str(MAX_NODES),
            },
        },
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts, "phase": "Running"},
    }


class Autoscaler(Program):
    """The program, with pools of these machines. Times of scaling down are short. It looks every five seconds.

    *expander*: the port of the extender, which it asks which pools to extend.
    """

    def __init__(self, binary: Path, plane: ControlPlane, logs: Path, pools: dict[str, Json], expander: int) -> None:
        certificate, key = plane.identities.client("autoscaler", user="live-autoscaler", group="system:masters")
        files = {"client-certificate": str(certificate), "client-key": str(key)}
        kubeconfig = plane.identities.kubeconfig("autoscaler", plane.url, files)
        nodes = [template_node(pool, scenario) for pool, scenario in pools.items()]
        config = {
            "apiVersion": "v1alpha1",
            "readNodesFrom": "configmap",
            "nodegroups": {"fromNodeLabelKey": GROUP},
            "nodes": {"skipTaint": True},
            "configmap": {"name": "kwok-provider-templates", "key": "templates"},
        }
        templates = {"apiVersion": "v1", "kind": "List", "items": nodes}
        for name, data in (
            ("kwok-provider-config", {"config": yaml.safe_dump(config)}),
            ("kwok-provider-templates", {"templates": yaml.safe_dump(templates)}),
        ):
            metadata = {"name": name, "namespace": NAMESPACE}
            plane.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        plane.api.apply(crd())
        until(lambda: plane.api.answers(REQUESTS), 60, "the API server serves ProvisioningRequest")
        command: list[str | Path] = [
            binary, "--cloud-provider=kwok", f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}",
            f"--address=127.0.0.1:{reserve_port()}", "--leader-elect=false", "--scan-interval=5s",
            "--enable-provisioning-requests=true", "--scale-down-unneeded-time=15s",
            "--scale-down-delay-after-add=15s", "--unremovable-node-recheck-timeout=10s",
            "--skip-nodes-with-system-pods=false", "--skip-nodes-with-local-storage=false",
            "--max-graceful-termination-sec=10", "-v=4", "--expander=grpc,random",
            f"--grpc-expander-url=localhost:{expander}", f"--grpc-expander-cert={plane.identities.ca_file}",
        ]  # fmt: skip
        environment = {"POD_NAMESPACE": NAMESPACE, "KWOK_PROVIDER_MODE": "local", "KUBECONFIG": str(kubeconfig)}
        super().__init__("cluster-autoscaler", command, logs / "cluster-autoscaler.log", environment)


class Machines:
    """Gives each Node object of the provider a kubelet and an exporter. *groups*: the machine of each pool."""

    def __init__(self, running: Cluster, groups: dict[str, int]) -> None:
        self._cluster, self._groups = running, groups
        self.made: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._end.wait(1.0):
            try:
                nodes = self._cluster.plane.api.items("/api/v1/nodes")
            except (httpx.TransportError, ApiError):
                continue
            for node in nodes:
                name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
                if annotations.get("kwok.x-k8s.io/node") == "fake" and name not in self.made:
                    self._make(name, node["metadata"]["labels"][POOL])

    def _make(self, name: str, pool: str) -> None:
        running = self._cluster
        number = 100 + len(self.made)
        self.made.append(name)
        node = running.nodes.adopt(running.objects, name, number, self._groups[pool])
        until(node.is_ready, 60, f"the kubelet of {name} is ready")
        running.nodes.start_exporter(node, running.objects, "--push", running.extender.tls_url)

    def present(self) -> list[str]:
        """The nodes of the provider that exist now."""
        nodes = {node["metadata"]["name"] for node in self._cluster.plane.api.items("/api/v1/nodes")}
        return [name for name in self.made if name in nodes]


def label(running: Cluster, pool: str) -> None:
    """Put the nodes that are there into a pool."""
    for node in running.nodes.all:
        running.plane.api.call(
            "PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {POOL: pool}}}, MERGE_PATCH
        )
