"""Pod Security, rights and networks: as little as works, and each exception where it is argued."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from extender.config.settings import Settings
from extender.identity import AccessScope
from extender.kube.authority import GRANTS as SCOPES
from node_exporter.dra_cpus import DIRECTORY
from node_exporter.nri_plugin import STATE_FILE
from tests.kube.test_rbac import ACCOUNTS, GRANTS
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
        assert volume.keys() - {"name"} <= allowed or (name, volume["name"]) == ("static pod", "files")


@pytest.mark.parametrize(("name", "pod"), EXPORTERS)
def test_the_exporter_mounts_two_directories_and_writes_none(name: str, pod: Json) -> None:
    paths = {v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    assert paths == {"/var/lib/kubelet", "/var/log/pods"}, name
    (container,) = pod["containers"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


@pytest.mark.parametrize(("name", "pod"), EXPORTERS)
def test_the_exporter_keeps_no_volume_of_another_pod_mounted(name: str, pod: Json) -> None:
    on_the_host = {v["name"] for v in pod["volumes"] if "hostPath" in v}
    (container,) = pod["containers"]
    for mount in container["volumeMounts"]:
        expected = "HostToContainer" if mount["name"] in on_the_host else None
        assert mount.get("mountPropagation") == expected, (name, mount["name"])


@pytest.mark.parametrize("component", ["kubelet-ca", "kubelet-pin"])
def test_secrets_of_pods_and_keys_of_the_kubelet_are_hidden_from_the_exporter(component: str) -> None:
    objects = rendered("base/exporter", component)
    pod = named(objects, "DaemonSet", EXPORTER)["spec"]["template"]["spec"]
    volumes = {v["name"]: v for v in pod["volumes"]}
    mounts = {m["mountPath"]: volumes[m["name"]] for m in pod["containers"][0]["volumeMounts"]}
    for directory in ("pods", "plugins", "pki"):
        assert "emptyDir" in mounts[f"/var/lib/kubelet/{directory}"]


def test_namespaces_enforce_what_their_pods_need() -> None:
    for target in TARGETS[:4]:
        objects = rendered(target)
        assert _levels(objects, EXPORTER)["enforce"] == "privileged"
        expected = "privileged" if "control-plane" in target else "restricted"
        assert set(_levels(objects, EXTENDER).values()) == {expected}, "also warn and audit: pods are warned about"


def _levels(objects: tuple[Json, ...], namespace: str) -> dict[str, str]:
    labels: dict[str, str] = named(objects, "Namespace", namespace)["metadata"]["labels"]
    prefix = "pod-security.kubernetes.io/"
    return {name.removeprefix(prefix): level for name, level in labels.items() if name.startswith(prefix)}


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_written_that_the_api_server_leaves_out(target: str) -> None:
    """An empty list is not stored: `kubectl diff` would show a difference for ever."""
    for o in rendered(target):
        assert list(_empty_lists(o, f"{o['kind']} {o['metadata']['name']}")) == []


def _empty_lists(value: object, path: str) -> Iterator[str]:
    if value == []:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _empty_lists(each, f"{path}.{key}")


def _rules(objects: tuple[Json, ...] | list[Json]) -> list[Json]:
    return [rule for o in objects if o["kind"] in ("Role", "ClusterRole") for rule in o["rules"]]


SUBJECTS: Final = {
    ("ServiceAccount", EXTENDER),
    ("ServiceAccount", EXPORTER),
    ("ServiceAccount", "numa-extender-metrics"),
    *(("ServiceAccount", name) for name in ACCOUNTS),
    ("ServiceAccount", "numa-reader"),
    ("User", EXTENDER),
}


def test_no_right_is_given_by_a_wildcard_or_to_everybody() -> None:
    for rule in _rules(everything()):
        assert not {"*", "secrets"} & {v for values in rule.values() for v in values}
        assert not any("*" in url for url in rule.get("nonResourceURLs", []))
    for o in everything():
        if o["kind"].endswith("RoleBinding"):
            assert {(s["kind"], s["name"]) for s in o["subjects"]} <= SUBJECTS


def test_the_rights_of_the_extender_and_of_its_accounts_are_those_that_the_code_uses() -> None:
    components = (
        "api-access", "autoscaling", "dra", "dra-choice", "gangs", "janitor", "kueue", "leader", "namespace-demands",
        "pod-events", "karpenter", "room", "shapes",
    )  # fmt: skip
    files = [MANIFESTS / "components" / name / "rbac.yaml" for name in components]
    files.append(MANIFESTS / "components/api-access/wake-up.yaml")
    objects = tuple(document for file in files for document in documents(file))
    granted: dict[str, set[tuple[str, str]]] = {}
    for binding in (each for each in objects if each["kind"].endswith("RoleBinding")):
        role = named(objects, binding["roleRef"]["kind"], binding["roleRef"]["name"])
        for subject in binding["subjects"]:
            granted.setdefault(subject["name"], set()).update(_rights(role))
    assert granted == {EXTENDER: GRANTS} | ACCOUNTS


def _rights(role: Json) -> Iterator[tuple[str, str]]:
    for rule in role["rules"]:
        for group in rule.get("apiGroups", []):
            for resource in rule["resources"]:
                yield from ((verb, f"{group}/{resource}" if group else resource) for verb in rule["verbs"])


@pytest.mark.parametrize("account", ACCOUNTS)
def test_only_the_extender_may_act_as_an_account_and_as_no_other(account: str) -> None:
    objects = tuple(documents(MANIFESTS / "components" / account.removeprefix(f"{EXTENDER}-") / "rbac.yaml"))
    assert named(objects, "ServiceAccount", account)["automountServiceAccountToken"] is False
    impersonating = [
        (role, rule) for role in objects for rule in role.get("rules", ()) if "impersonate" in rule["verbs"]
    ]
    ((role, rule),) = impersonating
    assert (role["kind"], rule["resources"], rule["resourceNames"]) == ("Role", ["serviceaccounts"], [account])
    (binding,) = [each for each in objects if each.get("roleRef", {}).get("name") == role["metadata"]["name"]
                  and each["kind"] == "RoleBinding"]  # fmt: skip
    assert [subject["name"] for subject in binding["subjects"]] == [EXTENDER]


def test_who_may_come_through_the_gate() -> None:
    """The URLs and verbs that the gate asks the API server about, and nothing else."""
    given = {
        (o["metadata"]["name"], verb, url)
        for o in rendered("overlays/standalone", "prometheus")
        if o["kind"] == "ClusterRole"
        for rule in o["rules"]
        for url in rule.get("nonResourceURLs", [])
        for verb in rule["verbs"]
    }
    assert given == {
        (EXPORTER, *SCOPES[AccessScope.REPORT]),
        ("numa-extender-reader", *SCOPES[AccessScope.READ]),
        ("numa-extender-reader", *SCOPES[AccessScope.METRICS]),
        ("numa-extender-metrics", *SCOPES[AccessScope.METRICS]),
    }


def test_the_exporter_s_token_is_for_the_extender_alone() -> None:
    audience = Settings.model_fields["token_audience"].default
    for _, pod in EXPORTERS:
        (token,) = [s["serviceAccountToken"] for v in pod["volumes"] for s in v.get("projected", {}).get("sources", [])]
        assert token["audience"] == audience
        env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
        mounts = {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
        for variable in ("NUMA_TOKEN_FILE", "NUMA_CA_FILE"):
            assert str(Path(env[variable]).parent) in mounts


def test_the_exporter_may_ask_its_kubelet_two_things() -> None:
    objects = rendered("base/exporter")
    assert _resources(objects) == {"nodes/configz", "nodes/metrics"}
    assert _resources(rendered("base/exporter", "kubelet-before-1-33")) == {
        "nodes/configz",
        "nodes/metrics",
        "nodes/proxy",
    }


def test_the_exporter_only_reads_what_the_nri_plugin_writes() -> None:
    objects = rendered("base/exporter", "nri")
    rules = [rule for rule in _rules(objects) if rule.get("apiGroups") == ["config.nri"]]
    pod = named(objects, "DaemonSet", EXPORTER)["spec"]["template"]["spec"]
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "nri-state"]

    exporters = tuple(o for o in objects if o["metadata"]["name"].startswith(EXPORTER))
    assert _resources(exporters) == {"nodes/configz", "nodes/metrics", "nodes", "topologyawarepolicies"}
    assert [rule["verbs"] for rule in rules] == [["get"]]
    assert (mount["mountPath"], mount["readOnly"]) == (str(Path("/") / Path(STATE_FILE).parent), True)
    assert {"name": "NUMA_NRI_NAMESPACE", "value": "kube-system"} in pod["containers"][0]["env"]


def test_the_exporter_only_reads_what_dra_driver_cpu_writes() -> None:
    """It gets no right and no other directory with it."""
    objects, plain = rendered("base/exporter", "dra-cpus"), rendered("base/exporter")
    mounts, before = (
        named(each, "DaemonSet", EXPORTER)["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        for each in (objects, plain)
    )
    (mount,) = (each for each in mounts if each not in before)

    assert _rules(objects) == _rules(plain)
    assert (mount["mountPath"], mount["readOnly"]) == (DIRECTORY, True)


def _resources(objects: tuple[Json, ...]) -> set[str]:
    return {r for rule in _rules(objects) for r in rule.get("resources", [])}


def test_every_right_is_argued_in_a_comment() -> None:
    for path in MANIFESTS.rglob("rbac.yaml"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.strip().startswith(("- apiGroups", "- nonResourceURLs")):
                assert lines[number - 1].strip().startswith("#"), f"{path.name}:{number + 1}"


def test_tokens_are_mounted_only_where_they_are_used() -> None:
    mounts = {name: pod["automountServiceAccountToken"] for name, pod in pod_specs()}
    assert mounts == {
        "overlays/second-scheduler Deployment": True,
        "overlays/second-scheduler DaemonSet": True,
        "overlays/control-plane DaemonSet": True,
        "overlays/control-plane-ha DaemonSet": True,
        "overlays/standalone Deployment": True,
        "overlays/replicas Deployment": True,
        "overlays/replicas DaemonSet": True,
        "overlays/standalone DaemonSet": True,
        "static pod": False,
    }


@pytest.mark.parametrize("target", TARGETS[:4])
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
