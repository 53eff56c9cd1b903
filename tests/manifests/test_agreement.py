"""Manifests and programs speak of the same ports, paths, flags, routes and metrics."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest

from extender.__main__ import main
from extender.app import make_app, make_service
from extender.cli.lint import check_arguments, check_settings
from extender.config.settings import Settings
from extender.lint import Severity
from extender.observability.metrics import Metrics
from node_exporter.__main__ import main as exporter
from node_exporter.agent import JITTER, Cadence
from node_exporter.metrics import ExporterMetrics
from tests.manifests.linting import lint_objects
from tests.manifests.rendering import (
    COMPONENTS,
    MANIFESTS,
    STATIC_POD,
    STATIC_PODS,
    TARGETS,
    containers,
    documents,
    named,
    pod_specs,
    rendered,
)

Json = dict[str, Any]
SCHEDULERS: Final = tuple(sorted(MANIFESTS.glob("overlays/*/scheduler-config.yaml")))
OVERLAYS: Final = tuple(path.parent.name for path in SCHEDULERS)
PROGRAMS: Final = {"numa-extender": main, "numa-node-exporter": exporter}
VERBS: Final = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind"}
PRE_STOP_SECONDS: Final = 5
SCRAPED: Final = frozenset({"up"})
"""Made by Prometheus itself."""
RELABELLED: Final = frozenset({"job", "node"})
"""Labels that scraping puts on."""


@cache
def _paths() -> dict[str, Json]:
    paths: dict[str, Json] = make_app(make_service(Settings())).openapi()["paths"]
    return paths


def _ours() -> list[tuple[str, str, Json, Json]]:
    """(where, program, pod, container) of every container of ours."""
    return [
        (where, program, pod, container)
        for where, pod in pod_specs()
        for container in containers(pod)
        if (program := container["image"].partition(":")[0]) in PROGRAMS
    ]


@pytest.mark.parametrize(("where", "program", "pod", "container"), _ours())
def test_arguments_and_settings_are_taken(where: str, program: str, pod: Json, container: Json) -> None:  # noqa: ARG001
    assert check_arguments(PROGRAMS[program], program, container["args"]) is None
    variables = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    if program == "numa-extender":
        assert not check_settings(variables)
        assert {name.removeprefix("NUMA_EXTENDER_").lower() for name in variables} <= Settings.model_fields.keys()
    else:
        known = {p.envvar for p in exporter.commands["run"].params if getattr(p, "envvar", None)}
        assert variables.keys() <= known | {"HOST_IP"}


@pytest.mark.parametrize(("where", "program", "pod", "container"), _ours())
def test_probes_ask_where_the_program_listens(where: str, program: str, pod: Json, container: Json) -> None:  # noqa: ARG001
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    variables = {e["name"]: e.get("value") for e in container["env"]}
    if program == "numa-extender":
        listens = Settings.model_fields["tls_port"].default
        assert variables["NUMA_EXTENDER_TLS_CERT_FILE"]
    else:
        listens = int(variables["NUMA_LISTEN"].rpartition(":")[2])
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[kind]["httpGet"]
        assert get.get("scheme", "HTTP") == ("HTTPS" if program == "numa-extender" else "HTTP")
        assert ports.get(get["port"], get["port"]) == listens
        assert get["path"] in (_paths() if program == "numa-extender" else {"/livez", "/readyz"})


def test_exporters_report_to_the_service_of_the_extender() -> None:
    for overlay in OVERLAYS:
        objects = rendered(f"overlays/{overlay}")
        service = named(objects, "Service", "numa-extender", "numa-extender")
        (container,) = named(objects, "DaemonSet", "numa-node-exporter")["spec"]["template"]["spec"]["containers"]
        url = next(e["value"] for e in container["env"] if e["name"] == "NUMA_PUSH_URL")
        port = service["spec"]["ports"][0]["port"]
        assert re.fullmatch(rf"https://numa-extender\.numa-extender\.svc:{port}", url)
    assert "/v1/nodes/{name}/report" in _paths()


def test_files_of_certificates_are_mounted() -> None:
    for _, program, pod, container in _ours():
        volumes = {m["mountPath"]: m for m in container["volumeMounts"]}
        for e in container["env"]:
            if program == "numa-extender" and e["name"].endswith(("_FILE", "_KUBECONFIG")):
                assert volumes[str(Path(e["value"]).parent)]["name"] in {v["name"] for v in pod["volumes"]}


def test_services_and_policies_select_pods_that_exist() -> None:
    (static,) = documents(MANIFESTS / STATIC_POD)
    for overlay in OVERLAYS:
        objects = rendered(f"overlays/{overlay}", "prometheus")
        labels = {
            (o["metadata"]["namespace"], tuple(sorted(o["spec"]["template"]["metadata"]["labels"].items())))
            for o in objects
            if o["kind"] in ("Deployment", "DaemonSet")
        }
        labels.add((static["metadata"]["namespace"], tuple(sorted(static["metadata"]["labels"].items()))))
        for o in objects:
            wanted = o.get("spec", {}).get("selector" if o["kind"] != "NetworkPolicy" else "podSelector")
            if o["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy") and wanted:
                wanted = wanted.get("matchLabels", wanted)
                assert any(
                    namespace == o["metadata"]["namespace"] and wanted.items() <= dict(have).items()
                    for namespace, have in labels
                ), f"{overlay}: {o['kind']} {o['metadata']['name']}"


@pytest.mark.parametrize("path", SCHEDULERS, ids=OVERLAYS)
def test_verbs_of_the_schedulers_are_routes(path: Path) -> None:
    (config,) = documents(path)
    entries = config["extenders"]
    for extender in entries:
        for verb, name in VERBS.items():
            if verb in extender:
                url_path = "/" + f"{extender['urlPrefix']}/{extender[verb]}".split("/", 3)[3]
                assert "post" in _paths()[url_path]
                assert url_path == f"/scheduler/{name}"
        assert ("http://127.0.0.1:9600/" in extender["urlPrefix"]) != ("tlsConfig" in extender)
    assert sorted(verb for extender in entries for verb in VERBS if verb in extender) == sorted(VERBS)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_linter_has_no_error_for_our_own_recipes(overlay: str) -> None:
    configuration = (MANIFESTS / "overlays" / overlay / "scheduler-config.yaml").read_text()
    findings = lint_objects(rendered(f"overlays/{overlay}", "prometheus"), configuration)
    assert [f for f in findings if f.severity is Severity.ERROR] == []
    unsaid = {f.rule for f in findings} - {"ca-read-once", "binder-of-some-pods"}
    assert not unsaid, "argue it in the manifest, and name it here"


@pytest.mark.parametrize("target", [*TARGETS, *STATIC_PODS])
def test_the_linter_has_no_finding_for_what_our_recipes_make(target: str) -> None:
    assert lint_objects(rendered(target)) == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_linter_has_no_finding_for_our_components(component: str) -> None:
    if component != "kubelet-ca":
        assert lint_objects(rendered("overlays/standalone", component)) == []


def test_the_extender_is_warm_before_its_scheduler_starts() -> None:
    deployment = named(rendered("overlays/second-scheduler"), "Deployment", "numa-extender")
    (sidecar,) = deployment["spec"]["template"]["spec"]["initContainers"]
    delay = sidecar["startupProbe"]["initialDelaySeconds"]
    assert sidecar["restartPolicy"] == "Always"
    assert delay > Cadence().longest_backoff
    assert delay > Cadence().interval * (1 + JITTER)


def test_ends_are_given_time() -> None:
    settings = Settings()
    for where, pod in pod_specs():
        if "DaemonSet" not in where:
            assert (
                pod["terminationGracePeriodSeconds"]
                >= settings.drain_seconds + settings.shutdown_seconds + PRE_STOP_SECONDS
            )


def _families(registry: Any) -> dict[str, set[str]]:  # noqa: ANN401 - a registry of either program
    """Series names as scraped, with their label names."""
    names: dict[str, set[str]] = {}
    for collector in registry._collector_to_names:
        labels = set(getattr(collector, "_labelnames", ()))
        for name in registry._collector_to_names[collector]:
            names[name] = labels | ({"le"} if name.endswith("_bucket") else set())
    return names


def _selectors(query: str) -> list[tuple[str, set[str]]]:
    found = []

    def visit(node: Any) -> bool:  # noqa: ANN401 - any kind of node
        if isinstance(node, promql_parser.VectorSelector):
            found.append((node.name or "", {matcher.name for matcher in node.matchers.matchers}))
        return True

    promql_parser.walk(promql_parser.parse(query), visit)
    return found


def _queries() -> list[str]:
    rules = named(rendered("overlays/standalone", "prometheus"), "PrometheusRule", "numa-extender")
    queries = [rule["expr"] for group in rules["spec"]["groups"] for rule in group["rules"]]
    dashboard = json.loads((MANIFESTS / "components/grafana/dashboard.json").read_text())
    queries += [
        t["expr"].replace("$__rate_interval", "5m").replace("$__range", "6h")
        for p in dashboard["panels"]
        for t in p.get("targets", [])
    ]
    return queries


@pytest.mark.parametrize("query", _queries())
def test_every_metric_and_label_exists(query: str) -> None:
    families = _families(Metrics().registry) | _families(ExporterMetrics().registry)
    selectors = _selectors(query)
    assert selectors
    for name, labels in selectors:
        if name not in SCRAPED:
            assert name in families
            assert labels <= families[name] | RELABELLED
    known = set().union(*(families[name] for name, _ in selectors if name not in SCRAPED), RELABELLED)
    for group in re.findall(r"by \(([^)]*)\)", query):
        assert {label.strip() for label in group.split(",")} <= known


def test_monitors_scrape_ports_that_services_name() -> None:
    objects = rendered("overlays/standalone", "prometheus")
    for monitor in (o for o in objects if o["kind"] == "ServiceMonitor"):
        service = named(objects, "Service", monitor["metadata"]["name"])
        wanted = monitor["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= service["metadata"]["labels"].items()
        assert monitor["spec"]["endpoints"][0]["port"] in {p["name"] for p in service["spec"]["ports"]}
        job = service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
        assert f'job="{job}"' in " ".join(_queries())


def test_every_component_is_named_in_the_install_page() -> None:
    text = (MANIFESTS.parent / "docs/install.md").read_text()
    for component in COMPONENTS:
        assert f"components/{component}" in text, component
