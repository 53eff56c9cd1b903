"""The examples for declared shapes: the alert, and what the HorizontalPodAutoscaler and KEDA ask of Prometheus."""

import json
from pathlib import Path
from typing import Any

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
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


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
    test = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in TWO_REPLICAS.items()],
        "promql_expr_test": [
            {"expr": queries()[name], "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": 2}]}
        ],
    }
    (tmp_path / "test.json").write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}))
    run = promtool("test", "rules", str(tmp_path / "test.json"))
    assert run.returncode == 0, (run.stdout + run.stderr).decode()


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
