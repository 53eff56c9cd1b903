"""The chart, rendered by Helm itself, makes the same objects as kustomize for every recipe and component."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from extender.config.settings import Settings
from tests.manifests.linting import lint_objects
from tests.manifests.rendering import COMPONENTS, INCLUDED, MANIFESTS, Json, containers, named, pods_of, rendered

CHART: Final = MANIFESTS.parent / "charts/numa-extender"
HELM: Final = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
RECIPES: Final = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())
OPTIONAL: Final = [component for component in COMPONENTS if component not in INCLUDED]
SCHEMA: Final = json.loads((CHART / "values.schema.json").read_text())
VALUES: Final = yaml.safe_load((CHART / "values.yaml").read_text())
OF_HELM: Final = frozenset({
    "helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version",
})  # fmt: skip

OF_THE_TEST: Final = "numa-extender-test"
"""The names of the objects for `helm test` begin so."""


def _helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    if HELM is None:
        message = "helm is not installed (make helm gets it)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def chart_objects(*arguments: str, **values: Any) -> list[Json]:
    """What `helm template` makes."""
    settings = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    run = _helm("template", "numa", str(CHART), *settings, *arguments)
    assert run.returncode == 0, run.stderr
    return [o for o in yaml.load_all(run.stdout, yaml.CSafeLoader) if o]


def _without_helm(objects: list[Json]) -> list[Json]:
    """The objects of the release, without those of `helm test` and without the labels that only Helm's have."""
    found = [o for o in objects if not o["metadata"]["name"].startswith(OF_THE_TEST)]
    for o in found:
        labels = o["metadata"]["labels"]
        assert labels.keys() >= OF_HELM
        o["metadata"]["labels"] = {key: value for key, value in labels.items() if key not in OF_HELM}
        if not o["metadata"]["labels"]:
            del o["metadata"]["labels"]
    return _sorted(found)


def _sorted(objects: Any) -> list[Json]:  # noqa: ANN401 - list or tuple
    return sorted(objects, key=lambda o: (o["kind"], o["metadata"]["name"], o["metadata"].get("namespace", "")))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_has_the_objects_of_kustomize(recipe: str) -> None:
    assert _without_helm(chart_objects(recipe=recipe)) == _sorted(rendered(f"overlays/{recipe}"))


@pytest.mark.parametrize("component", OPTIONAL)
def test_every_component_has_the_objects_of_kustomize(component: str) -> None:
    made = _without_helm(chart_objects(recipe="standalone", components={component: True}))
    assert made == _sorted(rendered("overlays/standalone", component))


def test_all_components_together_have_the_objects_of_kustomize() -> None:
    made = _without_helm(chart_objects(recipe="second-scheduler", components=dict.fromkeys(OPTIONAL, True)))
    assert made == _sorted(rendered("overlays/second-scheduler", *OPTIONAL))


def test_the_chart_is_sound() -> None:
    run = _helm("lint", "--strict", str(CHART))
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_schema_names_every_value_recipe_component_and_setting() -> None:
    jsonschema.validate(VALUES, SCHEMA)
    properties = SCHEMA["properties"]
    assert properties.keys() == VALUES.keys() | {"global"}
    assert properties["recipe"]["enum"] == RECIPES
    assert [*properties["components"]["properties"]] == OPTIONAL
    assert VALUES["components"] == dict.fromkeys(OPTIONAL, False)
    assert properties["settings"]["properties"].keys() == Settings.model_fields.keys()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--set=recipe=third-scheduler"], "recipe"),
        (["--set=components.prometeus=true"], "prometeus"),
        (["--set=settings.stratgy=most-numa"], "stratgy"),
        (["--set=certificates.mode=cert-manager"], "issuerRef"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(arguments: list[str], field: str) -> None:
    run = _helm("template", "numa", str(CHART), *arguments)
    assert run.returncode
    assert field in run.stderr


def test_values_change_what_they_name() -> None:
    objects = chart_objects(
        recipe="second-scheduler",
        components={"prometheus": True},
        settings={"strategy": "most-numa", "warm_up_seconds": 30, "read_audiences": ["https://kubernetes.default.svc"]},
        extender={"image": {"repository": "r.example.org:5000/numa-extender", "tag": "1.2.3"}},
        exporter={"resources": {"limits": {"memory": "1Gi"}}, "nodeSelector": {"numa": "true"}, "env": {"A": "b"}},
        scheduler={"image": {"tag": "v1.35.1"}},
        imagePullSecrets=[{"name": "registry"}],
        runbookUrl="https://wiki.example.com/numa",
    )
    pod = named(tuple(objects), "Deployment", "numa-extender")["spec"]["template"]["spec"]
    extender, scheduler = containers(pod)
    assert (extender["image"], scheduler["image"]) == (
        "r.example.org:5000/numa-extender:1.2.3",
        "registry.k8s.io/kube-scheduler:v1.35.1",
    )
    env = [(e["name"], e.get("value")) for e in extender["env"]]
    assert len(dict(env)) == len(env)
    assert dict(env)["NUMA_EXTENDER_STRATEGY"] == "most-numa"
    assert dict(env)["NUMA_EXTENDER_WARM_UP_SECONDS"] == "30"
    assert dict(env)["NUMA_EXTENDER_READ_AUDIENCES"] == '["https://kubernetes.default.svc"]'
    exporter = named(tuple(objects), "DaemonSet", "numa-node-exporter")["spec"]["template"]["spec"]
    assert exporter["nodeSelector"] == {"kubernetes.io/os": "linux", "numa": "true"}
    assert exporter["containers"][0]["resources"] == {"limits": {"memory": "1Gi"}}
    assert {"name": "A", "value": "b"} in exporter["containers"][0]["env"]
    assert all(p["imagePullSecrets"] == [{"name": "registry"}] for _, p in pods_of(objects))
    rules = named(tuple(objects), "PrometheusRule", "numa-extender")["spec"]["groups"][0]["rules"]
    assert rules[0]["annotations"]["runbook_url"] == "https://wiki.example.com/numa#numaextenderdown"


def test_certificates_of_the_chart_are_a_chain_that_both_programs_find() -> None:
    import base64

    from cryptography import x509

    objects = tuple(chart_objects(certificates={"mode": "chart", "extraNames": ["numa.example.com"]}))
    secret = named(objects, "Secret", "numa-extender-tls", "numa-extender")
    ca = x509.load_pem_x509_certificate(
        named(objects, "ConfigMap", "numa-extender-ca", "numa-node-exporter")["data"]["ca.crt"].encode()
    )
    assert base64.b64decode(secret["data"]["ca.crt"]).strip().startswith(b"-----BEGIN CERTIFICATE")
    certificate = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    certificate.verify_directly_issued_by(ca)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "numa-extender.numa-extender.svc", "localhost", "numa.example.com",
    ]  # fmt: skip


def test_certificates_of_cert_manager_are_where_the_pods_look() -> None:
    objects = chart_objects(certificates={"mode": "cert-manager", "issuerRef": {"name": "ours"}})
    made = {(o["metadata"]["namespace"], o["spec"]["secretName"]) for o in objects if o["kind"] == "Certificate"}
    wanted = {
        (o["metadata"]["namespace"], volume["secret"]["secretName"])
        for o in objects
        if o["kind"] in ("Deployment", "DaemonSet")
        for volume in o["spec"]["template"]["spec"]["volumes"]
        if "secret" in volume
    }
    assert made == wanted == {("numa-extender", "numa-extender-tls"), ("numa-node-exporter", "numa-extender-ca")}


def test_what_only_the_chart_has_is_valid_and_the_linter_has_no_finding() -> None:
    objects = chart_objects(certificates={"mode": "chart"})
    of_the_test = [o for o in objects if o["metadata"]["name"].startswith(OF_THE_TEST)]
    assert {o["kind"] for o in of_the_test} == {"NetworkPolicy", "Pod"}
    for o in (*of_the_test, *(o for o in objects if o["kind"] in ("Secret", "ConfigMap"))):
        kubernetes_validate.validate(o, "1.36", strict=True)
    assert lint_objects(objects) == []


def test_helm_finds_the_log_of_each_hook() -> None:
    """`helm test --logs` takes every hook for a pod of the release's namespace, and asks after the hooks have ended."""
    objects = chart_objects("--namespace=numa-extender")
    hooks = [o for o in objects if "helm.sh/hook" in o["metadata"].get("annotations", {})]
    assert [(o["kind"], o["metadata"]["namespace"]) for o in hooks] == [("Pod", "numa-extender")]
    assert hooks[0]["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"


def test_the_namespace_of_the_release_is_not_made() -> None:
    spaces = [o["metadata"]["name"] for o in chart_objects("--namespace=numa-extender") if o["kind"] == "Namespace"]
    assert spaces == ["numa-node-exporter"]
