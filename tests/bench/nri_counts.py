"""How many recorded refusals of the NRI policy the zones of a NodeResourceTopology object alone prove."""

import json
import lzma
from collections import Counter
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from extender.nri.counts import refusal_by_pools
from tests.replay.nri.vectors import THEMES, VECTORS
from tests.replay.nri.zones import decisions

KINDS = {
    "": "accepted", "slice": "no CPU: exclusive", "fraction": "no CPU: shared", "take": "no whole CPUs at the pool",
    "offer": "no memory",
}  # fmt: skip
OTHERS = "annotations, strict hints"


def run(console: Console) -> None:
    """Print one table."""
    counted, proven, proven_unknown = Counter[str](), Counter[str](), Counter[str]()
    for theme in THEMES:
        with lzma.open(VECTORS / f"{theme}.jsonl.xz") as lines:
            for line in lines:
                for decision in decisions(json.loads(line)):
                    kind = KINDS.get(decision.refusal, OTHERS)
                    counted[kind] += 1
                    unknown = replace(decision.counts, config=None)
                    for counts, found in ((decision.counts, proven), (unknown, proven_unknown)):
                        found[kind] += refusal_by_pools(counts, decision.pod, [decision.container]) is not None
    table = Table(title="Creations that the zones alone prove to be refused, all recorded decisions")
    for column in ("the policy said", "creations", "proven", "proven without configuration"):
        table.add_column(column, justify="left" if column == "the policy said" else "right")
    for kind in (*KINDS.values(), OTHERS):
        table.add_row(kind, *(f"{found[kind]:,}" for found in (counted, proven, proven_unknown)))
    console.print(table)
