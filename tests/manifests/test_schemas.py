"""Everything that is applied is valid, strictly: an unknown or misspelled field is an error."""

import json
import re
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import promql_parser
import pytest
import yaml

from tests.manifests.rendering import MANIFESTS, documents, everything, named, rendered

OPERATOR = "monitoring.coreos.com/v1"
NATIVE = list({json.dumps(o): o for o in everything() if o["apiVersion"] != OPERATOR}.values())
SINCE_1_30 = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
"""Kinds of components that say so (components/topology-policy)."""
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
RULE = {
    "type": "object",
    "required": ["alert", "expr", "labels", "annotations"],
    "properties": {
        "alert": {"pattern": "^Numa[A-Za-z]+$"},
        "expr": {"type": "string"},
        "for": {"pattern": "^[0-9]+[smh]$"},
        "labels": {**LABELS, "properties": {"severity": {"enum": ["critical", "warning"]}}, "required": ["severity"]},
        "annotations": {**LABELS, "required": ["summary", "description", "runbook_url"]},
    },
    "additionalProperties": False,
}
ENDPOINT = {
    "type": "object",
    "required": ["port", "path"],
    "properties": {
        "port": {"type": "string"},
        "path": {"type": "string"},
        "interval": {"pattern": "^[0-9]+s$"},
        "scrapeTimeout": {"pattern": "^[0-9]+s$"},
        "scheme": {"enum": ["http", "https"]},
        "tlsConfig": {"type": "object"},
        "authorization": {"type": "object"},
        "bearerTokenSecret": {"type": "object"},
        "relabelings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"sourceLabels": {"type": "array"}, "targetLabel": {"type": "string"}},
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
SPECS: dict[str, dict[str, Any]] = {
    "ServiceMonitor": {
        "required": ["selector", "endpoints"],
        "properties": {
            "jobLabel": {"type": "string"},
            "selector": {"type": "object", "required": ["matchLabels"]},
            "endpoints": {"type": "array", "items": ENDPOINT},
        },
        "additionalProperties": False,
    },
    "PrometheusRule": {
        "required": ["groups"],
        "properties": {
            "groups": {
                "type": "array",
                "items": {
                    "required": ["name", "rules"],
                    "properties": {"name": {"type": "string"}, "rules": {"type": "array", "items": RULE}},
                    "additionalProperties": False,
                },
            }
        },
        "additionalProperties": False,
    },
}
"""The parts of the Prometheus operator's types that we use."""


def _id(o: dict[str, Any]) -> str:
    return f"{o['kind']}-{o['metadata']['name']}"


@pytest.mark.parametrize("version", ["1.29", "1.30", "1.36"])
def test_kubernetes_types(version: str) -> None:
    for o in NATIVE:
        if not (version == "1.29" and o["kind"] in SINCE_1_30):
            kubernetes_validate.validate(o, version, strict=True)


def test_what_needs_no_sidecars_is_valid_from_the_oldest_kubelet_on() -> None:
    for o in (*rendered("overlays/standalone"), *rendered("overlays/control-plane"), *rendered("crd")):
        kubernetes_validate.validate(o, "1.27", strict=True)


def test_the_schemas_are_strict() -> None:
    broken = json.loads(json.dumps(named(rendered("overlays/standalone"), "Deployment", "numa-extender")))
    broken["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.36", strict=True)


def test_types_of_the_prometheus_operator() -> None:
    objects = rendered("overlays/standalone", "prometheus")
    found = [o for o in objects if o["apiVersion"] == OPERATOR]
    assert {o["kind"] for o in found} == SPECS.keys()
    for o in found:
        jsonschema.validate(o["spec"], SPECS[o["kind"]])
        assert o.keys() == {"apiVersion", "kind", "metadata", "spec"}


def test_queries_of_alerts_and_dashboard_are_promql() -> None:
    rules = named(rendered("overlays/standalone", "prometheus"), "PrometheusRule", "numa-extender")
    for group in rules["spec"]["groups"]:
        for rule in group["rules"]:
            promql_parser.parse(rule["expr"])
    dashboard = json.loads((MANIFESTS / "components/grafana/dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            promql_parser.parse(target["expr"].replace("$__rate_interval", "5m").replace("$__range", "6h"))


def test_panels_of_the_dashboard_neither_overlap_nor_repeat_an_id() -> None:
    panels = json.loads((MANIFESTS / "components/grafana/dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        grid = panel["gridPos"]
        mine = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not mine & cells
        assert grid["x"] + grid["w"] <= 24
        cells |= mine


NRT = """
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: worker-0}
attributes: [{name: topologyManagerPolicy, value: single-numa-node}]
topologyPolicies: [SingleNUMANodeContainerLevel]
zones:
  - name: node-0
    type: Node
    costs: [{name: node-0, value: 10}, {name: node-1, value: 21}]
    resources:
      - {name: cpu, capacity: "64", allocatable: "62", available: 10}
      - {name: memory, capacity: "270582939648", allocatable: 1Gi, available: 500m}
"""


def test_the_crd_takes_what_is_published_in_the_field_and_nothing_malformed() -> None:
    crd = named(rendered("crd"), "CustomResourceDefinition", "noderesourcetopologies.topology.node.k8s.io")
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    sound = yaml.safe_load(NRT)
    jsonschema.validate(sound, schema)
    for path, value in {("zones",): None, ("zones", 0, "type"): None, ("attributes", 0, "value"): 5}.items():
        bad = yaml.safe_load(NRT)
        place = bad
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


def test_the_crd_is_structural() -> None:
    """Every schema has a type or is an int-or-string, and its name is plural.group."""
    (crd,) = documents(MANIFESTS / "crd/noderesourcetopologies.yaml")
    assert crd["metadata"]["name"] == f"{crd['spec']['names']['plural']}.{crd['spec']['group']}"
    assert re.match(r"https://", crd["metadata"]["annotations"]["api-approved.kubernetes.io"])

    def check(schema: dict[str, Any]) -> None:
        assert "type" in schema or schema.get("x-kubernetes-int-or-string")
        for child in schema.get("properties", {}).values():
            check(child)
        if "items" in schema:
            check(schema["items"])

    check(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
