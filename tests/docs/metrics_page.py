"""Writes `docs/metrics.md`: every metric family of the extender, from the code that registers it.

`python -m tests.docs.metrics_page > docs/metrics.md`; a test compares the page with the code.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, Info

from extender.observability.metrics import Metrics
from extender.observability.node_metrics import NodeMetrics
from tests.docs.settings_page import filled, item

Row = tuple[str, str, tuple[str, ...], str]
"""Name as scraped, type, labels, help."""
_HEAD: Final = """# Metrics of the extender

Scraped at `/metrics`. Written by `python -m tests.docs.metrics_page`; a test compares it with the code.

Counters end in `_total`, and have every known series from the start, at 0, so that `increase` sees the first event.
"""
_NODES: Final = """
## Metrics of nodes

Scraped at `/metrics/nodes`, which needs the right to read, because it has names of nodes. Off by default:
`NUMA_EXTENDER_NODE_METRICS` says how many nodes it shows, about 20 series each (`components/node-metrics`).
Everything is computed from counts, without a replay.

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
    histograms = ", ".join(f"`{name}`" for name, kind, _, _ in rows(Metrics()) if kind == "histogram")
    kinds = f"Histograms: {histograms}. All others are gauges. The usual `process_*` metrics are there too."
    return _HEAD + filled(kinds) + "\n" + _list(Metrics()) + _NODES + _list(NodeMetrics())


def _list(metrics: Metrics | NodeMetrics) -> str:
    return "".join(item(f"{_series(name, labels)}: {text}") for name, _, labels, text in rows(metrics))


def _series(name: str, labels: Sequence[str]) -> str:
    """As in a query: `name{label,label}`."""
    return f"`{name}{{{','.join(labels)}}}`" if labels else f"`{name}`"


if __name__ == "__main__":
    sys.stdout.write(page())
