"""The page of metrics says what the code has, and no label can grow with input."""

from pathlib import Path

from prometheus_client import Counter, Histogram

from extender.api.access.middleware import _OUTCOMES as DENIED
from extender.api.call_outcomes import CallOutcome
from extender.api.reports import _OUTCOMES as REPORT_OUTCOMES
from extender.observability.metrics import Metrics
from extender.scheduling.binder import BindFailure, MaybeBound, PodBound
from extender.scheduling.records.demand_results import DemandResult
from tests.docs.metrics_page import page, rows

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_what_the_code_has() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.docs.metrics_page > docs/metrics.md"


def test_every_family_is_scraped_under_the_name_of_the_page() -> None:
    metrics = Metrics()
    exposed = metrics.exposition().decode()

    for name, kind, _, _ in rows(metrics):
        assert f"# TYPE {name} {kind}" in exposed


def test_counters_start_with_every_value_that_the_code_counts() -> None:
    metrics = Metrics()

    def values(family: Counter | Histogram, label: str) -> set[str]:
        return {sample.labels[label] for metric in family.collect() for sample in metric.samples}

    assert values(metrics.verb_seconds, "outcome") == set(CallOutcome)
    assert values(metrics.reports, "outcome") == {*REPORT_OUTCOMES.values(), "accepted", "failed"}
    assert values(metrics.admissions, "outcome") == {"allowed", *DENIED.values()}
    assert values(metrics.demands, "result") == set(DemandResult)
    assert values(metrics.binds, "outcome") == {PodBound.label, MaybeBound.label, *BindFailure} | (
        set(CallOutcome) - {CallOutcome.ANSWERED}
    )
