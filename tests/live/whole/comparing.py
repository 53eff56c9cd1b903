"""What containers were given, against what the extender wrote into their pods before they were bound."""

from collections import Counter
from collections.abc import Iterable, Mapping

import orjson

from tests.live.api import Json
from tests.live.book import Entry
from tests.live.node import Given
from tests.oracle.amounts import parse_cpus

PLACEMENT = "numa-extender.io/placement"
SAME, OTHER, UNSAID = "as predicted", "otherwise", "without a prediction"


def compared(entries: Iterable[Entry], given: Iterable[Given]) -> tuple[Counter[str], list[str]]:
    """How many containers got the exclusive CPUs and the NUMA nodes that were predicted; lines about the others.

    A container is without a prediction if its pod has none that is certain. Only the first creation of a container
    counts: a restart of the kubelet may change what its pods hold.
    """
    predictions = {entry.uid: _prediction(entry.pod) for entry in entries}
    counts: Counter[str] = Counter()
    lines = []
    seen = set()
    for each in given:
        if each.uid not in predictions or (each.uid, each.container) in seen:
            continue
        seen.add((each.uid, each.container))
        predicted = predictions[each.uid].get(each.container)
        if predicted is None:
            counts[UNSAID] += 1
            continue
        cpus, mems = parse_cpus(predicted["cpus"]), {numa for block in predicted["memory"] for numa in block["numa"]}
        is_same = (not cpus or parse_cpus(each.cpus) == cpus) and parse_cpus(each.mems) == mems
        counts[SAME if is_same else OTHER] += 1
        if not is_same:
            said = f"CPUs {predicted['cpus']}, memory of {sorted(mems)}"
            lines.append(
                f"{each.pod}/{each.container}: predicted {said}; given CPUs {each.cpus}, memory of {each.mems}"
            )
    return counts, lines


def _prediction(pod: Json) -> Mapping[str, Json]:
    """By container; empty: none, or it is not certain."""
    text = pod["metadata"].get("annotations", {}).get(PLACEMENT)
    document = orjson.loads(text) if text else {}
    found: Mapping[str, Json] = document.get("containers", {})
    return found
