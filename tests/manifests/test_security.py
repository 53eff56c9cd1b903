"""Pod Security, rights and networks: as little as works, and each exception where it is argued."""

from typing import Any, Final

import pytest

from tests.kube.test_rbac import GRANTS
from tests.manifests.rendering import MANIFESTS, TARGETS, containers, documents, everything, named, pod_specs, rendered

EXPORTER: Final = "numa-node-exporter"
EXTENDER: Final = "numa-extender"
RESTRICTED: Final = [(name, pod) for name, pod in pod_specs() if "DaemonSet" not in name]
EXPORTERS: Final = [(name, pod) for name, pod in pod_specs() if "DaemonSet" in name]
Json = dict[str, Any]


@pytest.mark.parametrize(("name", "pod"), pod_specs())
def test_every_container_is_confined(name: str, pod: Json) -> None:
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(pod.get(key) for key in ("hostPID", "hostIPC"))
    assert bool(pod.get("hostNetwork")) == (name == "static pod")
    assert pod["enableServiceLinks"] is False
    for container in containers(pod):
        context = container["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        assert context["privileged"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert "@" in container["image"] or ":" in container["image"]
        assert not container["image"].endswith(":latest")


@pytest.mark.parametrize(("name", "pod"), RESTRICTED)
def test_what_needs_no_file_of_the_node_is_restricted(name: str, pod: Json) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True, name
    assert pod["securityContext"]["runAsUser"] >= 1000
    allowed = {"configMap", "emptyDir", "projected", "secret", "downwardAPI"}
    for volume in pod.get("volumes", []):
        assert volume.keys() - {"name"} <= allowed


@pytest.mark.parametrize(("name", "pod"), EXPORTERS)
def test_the_exporter_mounts_two_directories_and_writes_none(name: str, pod: Json) -> None:
    paths = {v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    assert paths == {"/var/lib/kubelet", "/var/log/pods"}, name
    (container,) = pod["containers"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


@pytest.mark.parametrize("component", ["kubelet-ca", "kubelet-pin"])
def test_secrets_of_pods_and_keys_of_the_kubelet_are_hidden_from_the_exporter(component: str) -> None:
    objects = rendered("base/exporter", component)
    pod = named(objects, "DaemonSet", EXPORTER)["spec"]["template"]["spec"]
    volumes = {v["name"]: v for v in pod["volumes"]}
    mounts = {m["mountPath"]: volumes[m["name"]] for m in pod["containers"][0]["volumeMounts"]}
    for directory in ("pods", "plugins", "pki"):
        assert "emptyDir" in mounts[f"/var/lib/kubelet/{directory}"]


def test_namespaces_enforce_what_their_pods_need() -> None:
    level = "pod-security.kubernetes.io/enforce"
    for target in TARGETS[:3]:
        objects = rendered(target)
        assert named(objects, "Namespace", EXPORTER)["metadata"]["labels"][level] == "privileged"
        expected = "privileged" if "control-plane" in target else "restricted"
        assert named(objects, "Namespace", EXTENDER)["metadata"]["labels"][level] == expected


def _rules(objects: tuple[Json, ...] | list[Json]) -> list[Json]:
    return [rule for o in objects if o["kind"] in ("Role", "ClusterRole") for rule in o["rules"]]


def test_no_right_is_given_by_a_wildcard_or_to_everybody() -> None:
    for rule in _rules(everything()):
        assert "*" not in {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
        assert "secrets" not in rule["resources"]
    for o in everything():
        if o["kind"].endswith("RoleBinding"):
            assert {s["kind"] for s in o["subjects"]} == {"ServiceAccount"}


def test_the_rights_of_the_extender_are_those_that_its_code_uses() -> None:
    granted = set()
    for rule in _rules(documents(MANIFESTS / "components/api-access/rbac.yaml")):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                granted |= {(verb, f"{group}/{resource}" if group else resource) for verb in rule["verbs"]}
    assert granted == GRANTS


def test_the_exporter_may_ask_its_kubelet_two_things() -> None:
    objects = rendered("overlays/standalone")
    assert {r for rule in _rules(objects) for r in rule["resources"]} == {"nodes/configz", "nodes/metrics"}
    old = rendered("overlays/standalone", "kubelet-before-1-33")
    assert {r for rule in _rules(old) for r in rule["resources"]} == {"nodes/configz", "nodes/metrics", "nodes/proxy"}


def test_every_right_is_argued_in_a_comment() -> None:
    for path in MANIFESTS.rglob("rbac.yaml"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.strip().startswith("- apiGroups"):
                assert lines[number - 1].strip().startswith("#"), f"{path.name}:{number + 1}"


def test_tokens_are_mounted_only_where_they_are_used() -> None:
    mounts = {name: pod["automountServiceAccountToken"] for name, pod in pod_specs()}
    assert mounts == {
        "overlays/second-scheduler Deployment": True,
        "overlays/second-scheduler DaemonSet": True,
        "overlays/control-plane DaemonSet": True,
        "overlays/standalone Deployment": False,
        "overlays/standalone DaemonSet": True,
        "static pod": False,
    }


@pytest.mark.parametrize("target", TARGETS[:3])
def test_every_namespace_denies_what_is_not_named(target: str) -> None:
    objects = rendered(target)
    namespaces = {o["metadata"].get("namespace") for o in objects if o["kind"] in ("Deployment", "DaemonSet")}
    for namespace in namespaces:
        closed = [
            o
            for o in objects
            if o["kind"] == "NetworkPolicy" and o["metadata"]["namespace"] == namespace and not o["spec"]["podSelector"]
        ]
        assert any({"Ingress", "Egress"} == set(o["spec"]["policyTypes"]) for o in closed)
