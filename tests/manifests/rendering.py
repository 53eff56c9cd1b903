"""What `kubectl kustomize` makes of our manifests, without kubectl: the part of kustomize that they use.

`test_rendering` compares it with the real one wherever that is installed.
"""

import copy
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonpatch
import yaml

Json = dict[str, Any]
MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
TARGETS: Final = (
    "overlays/second-scheduler",
    "overlays/control-plane",
    "overlays/control-plane-ha",
    "overlays/standalone",
    "overlays/replicas",
    "crd",
)
STATIC_POD: Final = "overlays/control-plane/static-pod/pod.yaml"
STATIC_PODS: Final = ("overlays/control-plane/static-pod", "overlays/control-plane-ha/static-pod")
COMPONENTS: Final = tuple(sorted(path.parent.name for path in MANIFESTS.glob("components/*/kustomization.yaml")))
INCLUDED: Final = frozenset({"api-access", "kubelet-ca"})
"""Components that every recipe has already."""
COMPLETE: Final = frozenset({"crd", "overlays/replicas", "overlays/control-plane-ha"})
"""Targets that take no further components in tests: one has no pods, the others have some of them themselves."""
_KNOWN: Final = frozenset({
    "apiVersion", "kind", "resources", "components", "patches", "images", "configMapGenerator",
})  # fmt: skip
_HASH_LETTERS: Final = str.maketrans("013ae", "ghkmt")


@cache
def rendered(target: str, *components: str) -> tuple[Json, ...]:
    """All objects of a kustomization, with further components put on top."""
    objects = _build(MANIFESTS / target, [])
    for component in components:
        objects = _build(MANIFESTS / "components" / component, objects)
    return tuple(objects)


def documents(path: Path) -> list[Json]:
    """Every document of a YAML file."""
    return [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document]


def named(objects: tuple[Json, ...], kind: str, name: str, namespace: str | None = None) -> Json:
    """The one object of that kind and name."""
    (found,) = [
        o
        for o in objects
        if (o["kind"], o["metadata"]["name"]) == (kind, name) and namespace in (None, o["metadata"].get("namespace"))
    ]
    return found


def everything() -> tuple[Json, ...]:
    """Every object of every target with every component that fits it, and the static pod."""
    found: list[Json] = []
    for target in TARGETS:
        on_top = [c for c in COMPONENTS if c not in INCLUDED and target not in COMPLETE]
        found += rendered(target, *on_top)
    return (*found, *(o for target in STATIC_PODS for o in rendered(target)))


def pods_of(objects: Iterable[Json]) -> list[tuple[str, Json]]:
    """Kind and pod spec of each workload."""
    return [
        (o["kind"], o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"])
        for o in objects
        if o["kind"] in ("Deployment", "DaemonSet", "Pod")
    ]


def pod_specs() -> list[tuple[str, Json]]:
    """Every pod's spec, by kind and name."""
    pods = [(f"{target} {kind}", pod) for target in TARGETS for kind, pod in pods_of(rendered(target))]
    return [*pods, *(("static pod", rendered(target)[0]["spec"]) for target in STATIC_PODS)]


def containers(pod: Json) -> list[Json]:
    """Init containers and containers."""
    return [*pod.get("initContainers", []), *pod["containers"]]


def _build(directory: Path, below: list[Json]) -> list[Json]:
    (kustomization,) = documents(directory / "kustomization.yaml")
    assert kustomization.keys() <= _KNOWN, "the renderer has to learn this first"
    objects = copy.deepcopy(below)
    for name in kustomization.get("resources", []):
        path = directory / name
        objects += _build(path, []) if path.is_dir() else documents(path)
    for name in kustomization.get("components", []):
        objects = _build(directory / name, objects)
    for generator in kustomization.get("configMapGenerator", []):
        objects.append(_config_map(directory, generator))
    for patch in kustomization.get("patches", []):
        _patch(directory, patch, objects)
    for image in kustomization.get("images", []):
        _retag(image, objects)
    return _with_hashes(objects)


def _patch(directory: Path, patch: Json, objects: list[Json]) -> None:
    text = patch["patch"] if "patch" in patch else (directory / patch["path"]).read_text()
    operations, target = yaml.load(text, yaml.CSafeLoader), patch["target"]
    hits = [i for i, o in enumerate(objects) if (o["kind"], o["metadata"]["name"]) == (target["kind"], target["name"])]
    assert hits, f"no {target} to patch"
    for i in hits:
        if isinstance(operations, list):
            objects[i] = jsonpatch.apply_patch(objects[i], operations)
        else:
            _delete_entries(objects[i], operations)


def _delete_entries(target: Json, patch: Json) -> None:
    """The only strategic merge patch that we use: `$patch: delete` on entries of lists that are known by their name."""
    for key, value in patch.items():
        if isinstance(value, dict):
            _delete_entries(target[key], value)
        elif isinstance(value, list):
            for entry in value:
                if entry.get("$patch") == "delete":
                    target[key] = [o for o in target[key] if o["name"] != entry["name"]]
                else:
                    (same,) = [o for o in target[key] if o["name"] == entry["name"]]
                    _delete_entries(same, entry)
        else:
            assert target[key] == value, "the renderer has to learn this first"


def _retag(image: Json, objects: list[Json]) -> None:
    for o in objects:
        template = o.get("spec", {}).get("template", {}).get("spec") if o["kind"] != "Pod" else o["spec"]
        for container in containers(template) if template else []:
            name = container["image"].partition(":")[0]
            if name == image["name"]:
                container["image"] = f"{image.get('newName', name)}:{image['newTag']}"


def _config_map(directory: Path, generator: Json) -> Json:
    options = generator.get("options", {})
    metadata: Json = {"name": generator["name"], "namespace": generator["namespace"]}
    if "labels" in options:
        metadata["labels"] = options["labels"]
    data = {name: (directory / name).read_text() for name in generator["files"]}
    if not options.get("disableNameSuffixHash"):
        metadata["needs-hash"] = True
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _with_hashes(objects: list[Json]) -> list[Json]:
    """Names of generated ConfigMaps, and what refers to them, with the hash of their content."""
    for o in objects:
        if o["metadata"].pop("needs-hash", False):
            name = o["metadata"]["name"]
            text = _go_json({"data": o["data"], "kind": "ConfigMap", "name": ""})
            suffixed = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:10].translate(_HASH_LETTERS)}"
            o["metadata"]["name"] = suffixed
            for other in objects:
                for volume in other.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", []):
                    if volume.get("configMap", {}).get("name") == name:
                        volume["configMap"]["name"] = suffixed
    return objects


def _go_json(value: Json) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
