"""What writes mean: create, replace, patch, apply, delete, bind, each as the real registry does it."""

import copy
import time
import uuid
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.fakes.k8s.resources import JSON, NODES, PDBS, PODS, ApiProblem, Resource, Target, conflict, not_found, text
from tests.fakes.k8s.store import Store, Stored, key_of_object

_TERMINAL: Final = ("Succeeded", "Failed")
_DEFAULT_GRACE_SECONDS: Final = 30


def now_text() -> str:
    """The current time as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(slots=True)
class Registry:
    """Writes to the store, with the checks of the real server."""

    store: Store
    random: Random = field(default_factory=lambda: Random(0))

    def create(self, resource: Resource, value: JSON, namespace: str = "") -> JSON:
        """Store a new object; 409 AlreadyExists when the name is taken. *value* itself is left alone."""
        value = copy.deepcopy(value)
        metadata = value.setdefault("metadata", {})
        if resource.namespaced:
            metadata["namespace"] = namespace or metadata.get("namespace") or "default"
        if generate := metadata.get("generateName"):
            metadata.setdefault("name", f"{generate}{self.random.getrandbits(25):05x}")
        key = key_of_object(resource, value)
        value.setdefault("kind", resource.kind)
        value.setdefault("apiVersion", resource.api_version)
        metadata.setdefault("uid", str(uuid.UUID(int=self.random.getrandbits(128), version=4)))
        metadata.setdefault("creationTimestamp", now_text())
        if resource is PODS:
            value.setdefault("spec", {}).setdefault("schedulerName", "default-scheduler")
            value.setdefault("status", {}).setdefault("phase", "Pending")
        with self.store.lock:
            if self.store.read(resource, key) is not None:
                raise ApiProblem(409, "AlreadyExists", f'{resource.plural} "{metadata["name"]}" already exists')
            return self.store.write(resource, key, value)

    def get(self, target: Target) -> Stored:
        """The object; 404 when there is none."""
        found = self.store.read(target.resource, target.key)
        if found is None:
            raise not_found(target.resource, target.name)
        return found

    def replace(self, target: Target, value: JSON) -> JSON:
        """PUT: 409 when the resourceVersion or UID given is not the stored one. `/status` replaces the status only."""
        with self.store.lock:
            old = self.get(target).decode()
            metadata = value.get("metadata") or {}
            for name in ("resourceVersion", "uid"):
                if metadata.get(name) and metadata[name] != old["metadata"][name]:
                    raise conflict(target.resource.plural, target.name, "the object has been modified")
            new = copy.deepcopy(old)
            if target.subresource == "status":
                new["status"] = value.get("status", {})
            else:
                status = old.get("status")
                new = copy.deepcopy(value)
                new["metadata"] = {**metadata, **{k: old["metadata"][k] for k in ("uid", "creationTimestamp")}}
                if status is not None and target.resource in (PODS, NODES):
                    new["status"] = status
            return self.store.write(target.resource, target.key, new)

    def merge(self, target: Target, patch: JSON) -> JSON:
        """JSON merge patch; strategic merge is taken as the same, which it is for everything but keyed lists."""
        with self.store.lock:
            value = self.get(target).decode()
            wanted = text(patch, "metadata", "resourceVersion")
            if wanted and wanted != value["metadata"]["resourceVersion"]:
                raise conflict(target.resource.plural, target.name, "the object has been modified")
            if text(patch, "metadata", "uid") not in ("", value["metadata"]["uid"]):
                raise conflict(target.resource.plural, target.name, "Precondition failed: UID in precondition")
            merge_into(value, patch)
            return self.store.write(target.resource, target.key, value)

    def apply(self, target: Target, value: JSON, manager: str, *, force: bool) -> JSON:
        """Server-side apply: creates, sets what is given, removes what this manager gave before and no longer does."""
        if not manager:
            raise ApiProblem(422, "Invalid", "fieldManager: Required value: is required for apply patch")
        with self.store.lock:
            if self.store.read(target.resource, target.key) is None:
                skeleton: JSON = {"metadata": {"name": target.name}}
                self.create(target.resource, skeleton, target.namespace)
            stored = self.get(target).decode()
            applied = self.store.collections[target.resource].applied.setdefault(target.key, {})
            if not force:
                _refuse_conflicts(applied, manager, value, target)
            prune(stored, applied.get(manager, {}), value)
            merge_into(stored, value)
            applied[manager] = copy.deepcopy(value)
            entry = {"operation": "Apply", "apiVersion": target.resource.api_version, "fieldsType": "FieldsV1"}
            stored["metadata"]["managedFields"] = [{"manager": m, **entry} for m in sorted(applied)]
            return self.store.write(target.resource, target.key, stored)

    def delete(self, target: Target, options: JSON) -> JSON:
        """DELETE: a bound, living pod is only marked, until somebody deletes it with a grace period of 0."""
        with self.store.lock:
            value = self.get(target).decode()
            wanted = text(options, "preconditions", "uid")
            if wanted and wanted != value["metadata"]["uid"]:
                raise conflict(target.resource.plural, target.name, "the UID in the precondition does not match")
            version = text(options, "preconditions", "resourceVersion")
            if version and version != value["metadata"]["resourceVersion"]:
                raise conflict(target.resource.plural, target.name, "the version in the precondition does not match")
            grace = options.get("gracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
            living = target.resource is PODS and text(value, "spec", "nodeName")
            if living and grace and text(value, "status", "phase") not in _TERMINAL:
                if "deletionTimestamp" not in value["metadata"]:
                    value["metadata"]["deletionTimestamp"] = now_text()
                    value["metadata"]["deletionGracePeriodSeconds"] = grace
                return self.store.write(target.resource, target.key, value)
            return self.store.write(target.resource, target.key, None)

    def evict(self, target: Target, eviction: JSON) -> JSON:
        """pods/eviction: a deletion with the pod's own grace period; 429 if a budget of its namespace allows none."""
        with self.store.lock:
            pod = self.get(target).decode()
            labels = pod["metadata"].get("labels") or {}
            for stored in self.store.collections[PDBS].objects.values():
                budget = stored.decode()
                wanted = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
                is_for_it = budget["metadata"]["namespace"] == target.namespace and wanted.items() <= labels.items()
                if is_for_it and budget.get("status", {}).get("disruptionsAllowed", 0) < 1:
                    raise ApiProblem(429, "TooManyRequests", "Cannot evict pod: a disruption budget", retry_after=10)
            grace = pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
            self.delete(target, {"gracePeriodSeconds": grace, **(eviction.get("deleteOptions") or {})})
            return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def bind(self, target: Target, binding: JSON) -> JSON:
        """pods/binding: one node for ever; 409 for another UID, for a pod being deleted and for a bound one."""
        node = text(binding, "target", "name")
        if not node:
            raise ApiProblem(422, "Invalid", "target.name: Required value")
        with self.store.lock:
            pod = self.get(target).decode()
            uid = text(binding, "metadata", "uid")
            metadata = pod["metadata"]
            if uid and uid != metadata["uid"]:
                why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
                raise conflict("pods/binding", target.name, why)
            if "deletionTimestamp" in metadata:
                why = f"pod {target.name} is being deleted, cannot be assigned to a host"
                raise conflict("pods/binding", target.name, why)
            if bound := text(pod, "spec", "nodeName"):
                why = f'pod {target.name} is already assigned to node "{bound}"'
                raise conflict("pods/binding", target.name, why)
            pod["spec"]["nodeName"] = node
            if annotations := (binding.get("metadata") or {}).get("annotations"):
                metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
            condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now_text()}
            pod["status"].setdefault("conditions", []).append(condition)
            self.store.write(PODS, target.key, pod)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def merge_into(value: JSON, patch: JSON) -> None:
    """RFC 7396 on objects: null removes, objects merge, anything else replaces."""
    for name, new in patch.items():
        if new is None:
            value.pop(name, None)
        elif isinstance(new, dict):
            here = value.get(name)
            if not isinstance(here, dict):
                here = value[name] = {}
            merge_into(here, new)
        else:
            value[name] = copy.deepcopy(new)


def prune(value: JSON, before: JSON, after: JSON) -> None:
    """Remove from *value* what *before* gave and *after* no longer gives."""
    for name, old in before.items():
        if name not in after:
            value.pop(name, None)
        elif isinstance(old, dict) and isinstance(after[name], dict) and isinstance(value.get(name), dict):
            prune(value[name], old, after[name])


def _refuse_conflicts(applied: dict[str, JSON], manager: str, value: JSON, target: Target) -> None:
    mine = _leaves(value)
    for other, theirs in applied.items():
        taken = _leaves(theirs)
        for path in sorted(mine.keys() & taken.keys()):
            if other != manager and path not in _IDENTITY and mine[path] != taken[path]:
                message = f'Apply failed with 1 conflict: conflict with "{other}": .{".".join(path)}'
                raise ApiProblem(409, "Conflict", f"{target.name}: {message}")


_IDENTITY: Final = {("kind",), ("apiVersion",), ("metadata", "name"), ("metadata", "namespace")}


def _leaves(value: JSON, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, inner in value.items():
        if isinstance(inner, dict):
            found.update(_leaves(inner, (*path, name)))
        else:
            found[*path, name] = inner
    return found
