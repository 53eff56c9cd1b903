"""Writes `docs/metrics.md`: every metric family of the extender, from the code that registers it.

`python -m tests.docs.metrics_page > docs/metrics.md`; a test compares the page with the code.
"""

import sys
from collections.abc import Iterator
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info

from extender.observability.metrics import Metrics
from extender.observability.node_metrics import NodeMetrics

Row = tuple[str, str, tuple[str, ...], str]
"""Name as scraped, type, labels, help."""
_HEAD: Final = """# Metrics of the extender

Scraped at `/metrics`. Written by `python -m tests.docs.metrics_page`; a test compares it with the code.

Counters have every known series from the start, at 0, so that `increase` sees the first event. The usual `process_*`
metrics are there too.

| family | type | labels | meaning |
|---|---|---|---|
"""
_NODES: Final = """
## Metrics of nodes

Scraped at `/metrics/nodes`, which needs the right to read, because it has names of nodes. Off by default:
`NUMA_EXTENDER_NODE_METRICS` says how many nodes it shows, about 20 series each (`components/node-metrics`).
Everything is computed from counts, without a replay.

| family | type | labels | meaning |
|---|---|---|---|
"""


def rows(metrics: Metrics | NodeMetrics) -> Iterator[Row]:
    """Every family, in the order of its declaration."""
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram | Info):
            family = next(iter(metric.describe()))
            name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
            labels = ("version",) if family.type == "info" else tuple(metric._labelnames)
            yield name, "gauge" if family.type == "info" else family.type, labels, family.documentation


def page() -> str:
    """The page."""
    return _HEAD + _table(Metrics()) + _NODES + _table(NodeMetrics())


def _table(metrics: Metrics | NodeMetrics) -> str:
    return "".join(
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |\n"
        for name, kind, labels, text in rows(metrics)
    )


if __name__ == "__main__":
    sys.stdout.write(page())
