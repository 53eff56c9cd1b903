"""Every alert fires at the first event, and not without one: Prometheus' own promtool runs the rules.

The series before the event are those of a real page of metrics. A series that the page does not have appears with the
event, as it does in a cluster, and then `increase` sees nothing.
"""

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from node_exporter.metrics import ExporterMetrics
from tests.manifests.promtool import Expectation, check_alert, promtool
from tests.manifests.rendering import named, rendered
from tests.reports import report_of, sample

EVENT: Final = 30
"""The minute of the event, when all series have been there for as long as the windows of most alerts are."""
ONCE: Final = f"1x{EVENT * 2}"
AGAIN: Final = f"1+1x{EVENT * 2}"
NEVER: Final = f"0x{EVENT * 2}"
RULES: Final = named(rendered("overlays/standalone", "prometheus"), "PrometheusRule", "numa-extender")["spec"]
ALERTS: Final = tuple(rule["alert"] for group in RULES["groups"] for rule in group["rules"])


class Case(NamedTuple):
    """When an alert fires. `wait`: minutes from the event to the alert. The series have no value before the event."""

    alert: str
    series: dict[str, str]
    quiet: dict[str, str]
    wait: int = 1


def _gauge(alert: str, series: str, bad: str, good: str, wait: int) -> Case:
    values = [f"{good}x{EVENT} {bad}x{EVENT}", f"{good}x{EVENT * 2}"]
    return Case(alert, {series: values[0]}, {series: values[1]}, wait)


def _slow(below: int) -> dict[str, str]:
    name = 'numa_extender_verb_seconds_bucket{verb="filter",outcome="answered",le="%s"}'
    return {name % le: f"0+{count}x60" for le, count in (("1.0", below), ("2.5", 100), ("+Inf", 100))}


COUNTED: Final = {
    "NumaExtenderDefect": 'numa_extender_verb_seconds_count{outcome="failed",verb="bind"}',
    "NumaExtenderNotUnderstood": 'numa_extender_verb_seconds_count{outcome="invalid",verb="filter"}',
    "NumaExtenderReportsRefused": 'numa_extender_reports_total{kind="heartbeat",outcome="failed"}',
    "NumaExtenderFalseAdmit": 'numa_extender_predictions_total{certainty="exact",kubelet="1.36",outcome="false_admit",'
    'policy="single-numa-node",scope="container"}',
    "NumaExtenderBindsFail": 'numa_extender_binds_total{outcome="no_access"}',
    "NumaExporterLooksFail": "numa_exporter_look_failures_total",
}
"""One event of this counter is enough."""
LASTING: Final = {
    "NumaExtenderUnready": ('numa_extender_verb_seconds_count{outcome="unready",verb="filter"}', 6),
    "NumaExtenderStrangers": ('numa_extender_admissions_total{means="token",outcome="forbidden",scope="read"}', 16),
}
"""The condition has to last: so many minutes after its first event the alert fires, and a single event is no alarm."""
STATES: Final = (
    Case("NumaExtenderDown", {'up{job="numa-extender"}': f"1x{EVENT} 0x60"}, {'up{job="numa-extender"}': "1x90"}, 4),
    Case("NumaExtenderSlow", _slow(90), _slow(100), 1),
    _gauge("NumaExtenderHasNoReports", 'numa_extender_nodes{certainty="exact"}', "0", "3", 7),
    _gauge("NumaExtenderStaleNodes", 'numa_extender_nodes{certainty="stale"}', "1", "0", 12),
    _gauge("NumaExtenderUnknownNodes", 'numa_extender_nodes{certainty="unknown"}', "1", "0", 17),
    _gauge("NumaExtenderUnreadableObjects", 'numa_extender_unreadable_objects{watch="pods"}', "1", "0", 17),
    _gauge("NumaExtenderCertificateEnds", "numa_extender_certificate_expiry_timestamp_seconds", "600000", "0", 2),
    _gauge("NumaExtenderCertificateEnds", "numa_extender_certificate_expiry_timestamp_seconds", "600000", "700000", 2),
    _gauge("NumaExtenderInsecure", "numa_extender_insecure", "1", "0", 7),
    _gauge("NumaExporterDown", 'up{job="numa-node-exporter",node="n1"}', "0", "1", 12),
    _gauge("NumaExporterBlind", 'numa_exporter_problems{node="n1",severity="error",source="kubelet"}', "1", "0", 17),
    _gauge(
        "NumaExporterCertificateEnds", 'numa_exporter_certificate_expiry_timestamp_seconds{certificate="client"}',
        "600000", "700000", 2,
    ),
    Case(
        "NumaExporterCannotReport",
        {"numa_exporter_last_contact_timestamp_seconds": f"0+60x{EVENT} {EVENT * 60}x60"},
        {"numa_exporter_last_contact_timestamp_seconds": "0+60x90"},
        10,
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def pages() -> dict[str, bytes]:
    """Each program's page of metrics before any event. The extender knows one node."""
    with TestClient(make_app(make_service(Settings(insecure=True)))) as client:
        report = report_of(sample(policy="single-numa-node", scope="container", version="v1.36.2"))
        assert client.put(f"/v1/nodes/{report['node_name']}/report", json=report).is_success
        extender = client.get("/metrics").content
    return {"extender": extender, "exporter": generate_latest(ExporterMetrics().registry)}


@pytest.fixture(scope="module")
def at_zero(pages: dict[str, bytes]) -> set[str]:
    """Every series that is 0, as text with its labels in order."""
    return {
        sample.name
        + ("{" + ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items())) + "}") * bool(sample.labels)
        for page in pages.values()
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.value == 0
    }


def _counter(series: str, values: str, at_zero: set[str]) -> dict[str, str]:
    return {series: f"{'0' if series in at_zero else '_'}x{EVENT - 1} {values}"}


def test_every_alert_has_a_case() -> None:
    assert {*COUNTED, *LASTING, *(case.alert for case in STATES)} == {*ALERTS}


@pytest.mark.parametrize("alert", COUNTED)
def test_the_first_event_fires(alert: str, at_zero: set[str], tmp_path: Path) -> None:
    event, nothing = (_counter(COUNTED[alert], values, at_zero) for values in (ONCE, NEVER))
    check_alert(
        RULES,
        alert,
        [Expectation(event, EVENT + 2, fires=True), Expectation(nothing, EVENT + 2, fires=False)],
        tmp_path,
    )


@pytest.mark.parametrize("alert", LASTING)
def test_what_lasts_fires_and_one_event_does_not(alert: str, at_zero: set[str], tmp_path: Path) -> None:
    series, wait = LASTING[alert]
    lasting, once = (_counter(series, values, at_zero) for values in (AGAIN, ONCE))
    check_alert(
        RULES,
        alert,
        [
            Expectation(lasting, EVENT + wait, fires=True),
            Expectation(lasting, EVENT + wait - 3, fires=False),
            *(Expectation(once, minute, fires=False) for minute in range(EVENT, EVENT + 20, 5)),
        ],
        tmp_path,
    )


@pytest.mark.parametrize("case", STATES, ids=lambda case: case.alert)
def test_a_state_fires_and_a_good_one_does_not(case: Case, tmp_path: Path) -> None:
    minute = EVENT + case.wait
    check_alert(
        RULES,
        case.alert,
        [Expectation(case.series, minute, fires=True), Expectation(case.quiet, minute, fires=False)],
        tmp_path,
    )


def test_rules_and_their_annotations_parse(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    run = promtool("check", "rules", "--lint-fatal", str(tmp_path / "rules.json"))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(ALERTS)} rules found".encode() in run.stdout


def test_both_pages_are_clean(pages: dict[str, bytes]) -> None:
    for program, page in pages.items():
        run = promtool("check", "metrics", stdin=page)
        assert (run.returncode, run.stdout + run.stderr) == (0, b"")
        assert re.search(rf'^numa_{program}_build_info{{version="[0-9][^"]+"}} 1.0$', page.decode(), re.MULTILINE)
        assert b"\nprocess_resident_memory_bytes " in page
