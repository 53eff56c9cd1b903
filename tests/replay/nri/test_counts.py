"""What the root's zone alone proves is true of every recorded decision: it never refuses what the policy accepted."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from extender.conformance.nri_scenario import creations
from extender.replay.nri.counts import RootCounts, refused_by_counts
from extender.replay.nri.events import NewContainer, Node, Outcome, container_of
from extender.replay.nri.machine import DRAM, NO_PRIORITY
from extender.replay.nri.objects import QoS
from extender.replay.nri.requests import CPUType, Request, new_request
from extender.replay.nri.verdict import Refusal, RefusalError
from extender.wire.nri_scenarios import scenario_from_json
from tests.replay.nri.vectors import machine, sample


def request(full: int = 0, fraction: int = 0, memory: int = 0, **changes: Any) -> Request:
    fields: dict[str, Any] = {
        "limit": 0, "isolate": False, "strict_isolate": False, "cpu_type": CPUType.NORMAL, "priority": NO_PRIORITY,
        "memory_limit_bytes": 0, "memory_types": DRAM, "pick_by_hints": False, "strict_hints": False,
        "qos": QoS.GUARANTEED,
    }  # fmt: skip
    return Request(full=full, fraction=fraction, memory_request_bytes=memory, **(fields | changes))


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (request(full=4), None),
        (request(full=5), Refusal.SLICE),
        (request(full=4, fraction=1), None),
        (request(full=4, fraction=2), Refusal.SLICE),
        (request(fraction=4001), None),
        (request(fraction=4002), Refusal.FRACTION),
        (request(full=5, isolate=True), None),
        (request(full=5, cpu_type=CPUType.RESERVED), None),
        (request(memory=1000), None),
        (request(memory=1001), Refusal.OFFER),
    ],
)
def test_only_what_no_pool_can_give_is_refused(asked: Request, refusal: Refusal | None) -> None:
    assert refused_by_counts(RootCounts(4000, 1000), asked) is refusal


def decisions(theme: str, count: int) -> Iterator[tuple[Node, NewContainer, Outcome]]:
    """Recorded creations: the node before, the container, and what the policy did."""
    for document in sample(theme, count):
        for event in creations(scenario_from_json(document), machine(document["m"])):
            _, outcome = event()
            yield event.args[0], event.args[1], outcome


def requested(node: Node, new: NewContainer) -> Request:
    books = node.books
    pod, setup = books.pods[new.pod_id], books.setup
    types = setup.topology.machine.memory_types
    container = container_of(books, pod, new)
    return new_request(pod, container, setup.config, types, cold_start_off=setup.cold_start_off)


@pytest.mark.parametrize("theme", ["shared", "full", "mem", "memtight", "mixed"])
def test_counts_prevent_most_refusals_and_refuse_nothing_that_was_accepted(theme: str) -> None:
    counted = Counter[str]()
    for node, new, outcome in decisions(theme, 8):
        root = node.books.setup.tree.root.id
        available, _, memory, _ = node.books.zones()[root]
        try:
            asked = requested(node, new)
        except RefusalError:
            continue
        refusal = refused_by_counts(RootCounts(available, memory), asked)
        if outcome.refusal is None:
            counted["accepted"] += 1
            assert refusal is None, new
        elif outcome.refusal in (Refusal.SLICE, Refusal.FRACTION, Refusal.OFFER):
            counted["refused"] += 1
            counted["prevented"] += refusal is not None

    assert counted["accepted"] > 60
    assert counted["prevented"] > counted["refused"] // 2
