"""Each platform has values that render, are valid, lint clean and are described."""

import re
from pathlib import Path
from typing import Final

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from tests.manifests.linting import lint_objects
from tests.manifests.rendering import MANIFESTS, containers, named
from tests.manifests.test_chart import CHART, SCHEMA, chart_objects

PAGE: Final = (MANIFESTS.parent / "docs/platforms.md").read_text()
PLATFORMS: Final = sorted((CHART / "platforms").glob("*.yaml"))


def test_the_page_names_every_file_and_no_other() -> None:
    assert set(re.findall(r"Values: `([\w.-]+)`", PAGE)) == {path.name for path in PLATFORMS}
    assert len(PLATFORMS) == len(re.findall(r"^## (?!Read)", PAGE, re.MULTILINE))


@pytest.mark.parametrize("path", PLATFORMS, ids=lambda path: path.stem)
def test_its_values_render_to_valid_objects_without_findings(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)
    objects = chart_objects(f"--values={path}", recipe="second-scheduler")
    assert {"Deployment", "DaemonSet"} <= {o["kind"] for o in objects}
    for o in objects:
        if "monitoring.coreos.com" not in o["apiVersion"]:
            kubernetes_validate.validate(o, "1.36", strict=True)
    assert lint_objects(objects) == []


def test_openshift_verifies_kubelets_with_the_ca_that_the_page_puts_beside_ours() -> None:
    objects = chart_objects(f"--values={CHART / 'platforms/openshift.yaml'}", recipe="second-scheduler")
    pod = named(tuple(objects), "DaemonSet", "numa-node-exporter")["spec"]["template"]["spec"]
    (exporter,) = containers(pod)
    (file,) = (each["value"] for each in exporter["env"] if each["name"] == "KUBELET_CA_FILE")
    folder, _, key = file.rpartition("/")
    assert f"--from-file={key}" in PAGE
    (mount,) = (each for each in exporter["volumeMounts"] if each["mountPath"] == folder)
    (volume,) = (each for each in pod["volumes"] if each["name"] == mount["name"])
    assert volume["configMap"] == {"name": "numa-extender-ca"}


def test_there_is_no_bundle_for_olm_because_it_would_lack_the_exporters() -> None:
    """The list of kinds is that of operator-registry, `pkg/lib/bundle/supported_resources.go`, of November 2026."""
    in_a_bundle = {
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin",
        "ConsoleQuickStart", "ConsoleYAMLSample", "CustomResourceDefinition", "NetworkPolicy", "PodDisruptionBudget",
        "PodMonitor", "PriorityClass", "PrometheusRule", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount",
        "ServiceMonitor", "VerticalPodAutoscaler",
    }  # fmt: skip
    objects = chart_objects(f"--values={CHART / 'platforms/openshift.yaml'}", recipe="second-scheduler")
    of_the_csv = {"Deployment"}
    assert {"DaemonSet", "Namespace"} <= {o["kind"] for o in objects} - in_a_bundle - of_the_csv
    assert "There is no OLM bundle" in (MANIFESTS.parent / "release/README.md").read_text()
