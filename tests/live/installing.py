"""Our manifests on the real API server: every object of them, and tokens of their ServiceAccounts."""

from collections.abc import Sequence
from typing import Any

import orjson

from tests.live.api import Api, ApiError, Json
from tests.live.processes import until
from tests.manifests.rendering import containers, named, rendered

EXTENDER = ("numa-extender", "numa-extender")
EXPORTER = ("numa-node-exporter", "numa-node-exporter")
"""Namespace and name of the ServiceAccounts."""
AUDIENCE = "numa-extender"
TOKEN_SECONDS = 6 * 3600
_FIRST = ("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount")


def install(api: Api, recipe: str, components: Sequence[str] = ()) -> tuple[Json, ...]:
    """Apply `manifests/RECIPE`, with further components; the objects. No controller starts its pods: the test does."""
    objects = (*rendered("crd"), *rendered(recipe, *components))
    for document in sorted(objects, key=lambda o: o["kind"] not in _FIRST):
        api.apply(document)
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}})
    kinds = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
    until(lambda: api.answers(kinds), 60, "the API server serves NodeResourceTopology")
    return objects


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
