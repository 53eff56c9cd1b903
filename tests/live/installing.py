"""Our manifests on the real API server: every object of them, and tokens of their ServiceAccounts."""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import yaml

from tests.live.api import Api, ApiError, Json
from tests.live.processes import SceneError, until
from tests.manifests.rendering import MANIFESTS, containers, named, rendered
from tests.manifests.test_chart import CHART, HELM

EXTENDER = ("numa-extender", "numa-extender")
EXPORTER = ("numa-node-exporter", "numa-node-exporter")
"""Namespace and name of the ServiceAccounts."""
AUDIENCE = "numa-extender"
TOKEN_SECONDS = 6 * 3600
_FIRST = ("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount")
APPLY, KUBECTL, HELM_CHART = INSTALLERS = ("apply", "kubectl", "helm")
"""Each object by itself as the tests render it, or the programs that docs/install.md names."""


def install(api: Api, recipe: str, components: Sequence[str], installer: str, kubeconfig: Path) -> tuple[Json, ...]:
    """Install `manifests/RECIPE`, with further components; the objects. No controller starts its pods: the test does.

    *kubeconfig*: with all rights, for `KUBECTL` and `HELM_CHART`.
    """
    if installer == KUBECTL:
        objects = _with_kubectl(recipe, components, kubeconfig)
    elif installer == HELM_CHART:
        objects = _with_helm(recipe, components, kubeconfig)
    else:
        objects = (*rendered("crd"), *rendered(recipe, *components))
        for document in sorted(objects, key=lambda o: o["kind"] not in _FIRST):
            api.apply(document)
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}})
    kinds = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
    until(lambda: api.answers(kinds), 60, "the API server serves NodeResourceTopology")
    return objects


def _with_kubectl(recipe: str, components: Sequence[str], kubeconfig: Path) -> tuple[Json, ...]:
    with tempfile.TemporaryDirectory() as folder:
        overlay, base = Path(folder, "numa"), os.path.relpath(MANIFESTS, Path(folder, "numa").resolve())
        overlay.mkdir()
        names = {"resources": [f"{base}/{recipe}"], "components": [f"{base}/components/{name}" for name in components]}
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(names))
        for path in (MANIFESTS / "crd", overlay):
            _run("kubectl", f"--kubeconfig={kubeconfig}", "apply", "-k", str(path))
        return tuple(yaml.safe_load_all(_run("kubectl", "kustomize", str(overlay))))


def _with_helm(recipe: str, components: Sequence[str], kubeconfig: Path) -> tuple[Json, ...]:
    if HELM is None:
        raise SceneError("helm is not installed (make helm gets it)")
    to, values = f"--kubeconfig={kubeconfig}", {"recipe": recipe.rpartition("/")[2], "certificates": {"mode": "chart"}}
    values["components"] = dict.fromkeys(components, True)
    settings = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    where = ("numa", "--namespace=numa-extender", to)
    _run(HELM, "upgrade", "--install", *where, str(CHART), "--create-namespace", *settings)
    return tuple(o for o in yaml.safe_load_all(_run(HELM, "get", "manifest", *where)) if o)


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except OSError as error:
        raise SceneError(f"{command[0]}: {error.strerror}") from None
    except subprocess.CalledProcessError as error:
        raise SceneError(f"{' '.join(command)}: {error.stderr}") from None


def token(api: Api, account: tuple[str, str], *, audience: str | None = None, pod: Json | None = None) -> str:
    """A token of a ServiceAccount, for the API server or another *audience*, bound to *pod* where one is given."""
    namespace, name = account
    spec: dict[str, Any] = {"expirationSeconds": TOKEN_SECONDS}
    if audience is not None:
        spec["audiences"] = [audience]
    if pod is not None:
        metadata = pod["metadata"]
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = api.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
    made: str = answer["status"]["token"]
    return made


def exporter_pod(api: Api, objects: tuple[Json, ...], node: str) -> Json:
    """The DaemonSet's pod on a node, as its controller would create it. Its program is started by the test."""
    template = orjson.loads(orjson.dumps(named(objects, "DaemonSet", "numa-node-exporter")["spec"]["template"]))
    owner = api.call("GET", f"/apis/apps/v1/namespaces/{EXPORTER[0]}/daemonsets/{EXPORTER[1]}")["metadata"]
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": owner["name"], "uid": owner["uid"]}
    metadata = {
        **template["metadata"],
        "name": f"numa-node-exporter-{node}",
        "namespace": EXPORTER[0],
        "ownerReferences": [{**reference, "controller": True}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], "nodeName": node}}
    return api.create(pod)


def extender_environment(objects: tuple[Json, ...]) -> dict[str, str]:
    """The environment of the extender's container."""
    variables = extender_container(objects)["env"]
    return {variable["name"]: variable["value"] for variable in variables if "value" in variable}


def extender_container(objects: tuple[Json, ...]) -> Json:
    """The extender's container, also where it is a sidecar."""
    template = named(objects, "Deployment", "numa-extender")["spec"]["template"]
    (found,) = [container for container in containers(template["spec"]) if container["name"] == "extender"]
    return found


def forget(api: Api, path: str) -> None:
    """Delete every object of a collection, without grace."""
    for found in api.items(path):
        metadata = found["metadata"]
        where = f"{path}/{metadata['name']}"
        if "/namespaces/" not in path and metadata.get("namespace"):
            root, _, plural = path.rpartition("/")
            where = f"{root}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
        try:
            api.delete(f"{where}?gracePeriodSeconds=0")
        except ApiError as error:
            if error.status != 409:
                raise
