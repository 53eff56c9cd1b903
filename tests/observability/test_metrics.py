"""The page of metrics says what the code has, and no label can grow with input."""

from pathlib import Path

from extender.observability.metrics import Metrics
from tests.docs.metrics_page import page, rows

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_is_what_the_code_has() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.docs.metrics_page > docs/metrics.md"


def test_every_family_is_scraped_under_the_name_of_the_page() -> None:
    metrics = Metrics()
    exposed = metrics.exposition().decode()

    for name, kind, _, _ in rows(metrics):
        assert f"# TYPE {name} {kind}" in exposed
