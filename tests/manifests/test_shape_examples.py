"""The examples for declared shapes: the alert, and what the HorizontalPodAutoscaler and KEDA ask of Prometheus."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from extender.observability.metrics import Metrics
from tests.manifests.promtool import Expectation, check_alert, promtool

EXAMPLES = Path(__file__).parents[2] / "docs/examples/shapes"
TWO_REPLICAS = {
    'numa_extender_shape_missing{shape="train-4",pod="a"}': "2x30",
    'numa_extender_shape_missing{shape="train-4",pod="b"}': "3x30",
    'numa_extender_shape_missing{shape="solver",pod="a"}': "7x30",
}


def example(name: str) -> list[Any]:
    return list(yaml.load_all((EXAMPLES / name).read_text(), yaml.CSafeLoader))


def queries() -> dict[str, str]:
    """The query of each example, as Prometheus gets it."""
    adapter, scaled = example("hpa.yaml")
    (rule,) = yaml.safe_load(adapter["data"]["config.yaml"])["externalRules"]
    metric = scaled["spec"]["metrics"][0]["external"]["metric"]
    labels = ",".join(f'{key}="{value}"' for key, value in metric["selector"]["matchLabels"].items())
    asked = rule["metricsQuery"].replace("<<.Series>>", metric["name"]).replace("<<.LabelMatchers>>", labels)
    (keda,) = example("keda.yaml")
    return {"hpa": f"max({asked})", "keda": keda["spec"]["triggers"][0]["metadata"]["query"]}


@pytest.mark.parametrize("name", ["hpa", "keda"])
def test_scalers_get_the_missing_pods_of_their_shape(name: str, tmp_path: Path) -> None:
    samples({queries()[name]: 2}, TWO_REPLICAS, tmp_path)


def samples(queries: dict[str, float], series: dict[str, str], folder: Path) -> None:
    """Fails unless each query has this one value."""
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": value}]}
            for query, value in queries.items()
        ],
    }
    (folder / "test.json").write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}))
    run = promtool("test", "rules", str(folder / "test.json"))
    assert run.returncode == 0, (run.stdout + run.stderr).decode()


@pytest.mark.parametrize(("demand", "wanted"), [(3, 3), (20, 9)])
def test_workers_are_those_that_the_queue_needs_and_at_most_those_that_fit(
    demand: int, wanted: int, tmp_path: Path
) -> None:
    """Four run. Beside them three fit in one pool, by the lower count of two extenders, and two in another."""
    adapter, scaled, keda = example("fits.yaml")
    (rule,) = yaml.safe_load(adapter["data"]["config.yaml"])["externalRules"]
    assert scaled["spec"]["metrics"][0]["external"]["metric"]["name"] == rule["name"]["as"]
    series = {
        'queue_length{queue="train"}': f"{demand}x30",
        'queue_length{queue="other"}': "50x30",
        'kube_deployment_status_replicas_ready{namespace="default",deployment="train-worker"}': "4x30",
        'numa_extender_shape_fits{shape="train-4",pool="x",pod="a"}': "3x30",
        'numa_extender_shape_fits{shape="train-4",pool="x",pod="b"}': "5x30",
        'numa_extender_shape_fits{shape="train-4",pool="y",pod="a"}': "2x30",
        'numa_extender_shape_fits{shape="solver",pool="y",pod="a"}': "9x30",
    }
    values = {"demand": demand, "running": 4, "fits": 5}
    triggers = {each["name"]: each["metadata"]["query"] for each in keda["spec"]["triggers"]}
    samples({rule["metricsQuery"]: wanted, **{triggers[name]: values[name] for name in triggers}}, series, tmp_path)
    formula = keda["spec"]["advanced"]["scalingModifiers"]["formula"]
    assert formula == "min(demand, running + fits)"
    assert min(values["demand"], values["running"] + values["fits"]) == wanted


@pytest.mark.parametrize("name", ["fits.yaml", "hpa.yaml"])
def test_autoscalers_are_valid_for_the_api(name: str) -> None:
    for document in example(name):
        if not document["apiVersion"].startswith("keda.sh"):
            kubernetes_validate.validate(document, "1.36", strict=True)


def test_the_alert_fires_while_copies_are_missing_and_their_count_is_new(tmp_path: Path) -> None:
    (rule,) = example("alert.yaml")
    missing, age = 'numa_extender_shape_missing{shape="s"}', 'numa_extender_shape_age_seconds{shape="s"}'
    cases = [
        Expectation({missing: "0x5 1x30", age: "10x35"}, 20, fires=True),
        Expectation({missing: "0x35", age: "10x35"}, 20, fires=False),
        Expectation({missing: "0x15 1x20", age: "10x35"}, 20, fires=False),
        Expectation({missing: "1x35", age: "10x5 900x30"}, 20, fires=False),
    ]
    check_alert(rule["spec"], "NumaShapeMissing", cases, tmp_path)


def test_the_examples_name_metrics_that_exist() -> None:
    names = {family.name for family in Metrics().registry.collect()}
    assert {"numa_extender_shape_missing", "numa_extender_shape_age_seconds", "numa_extender_shape_fits"} <= names
