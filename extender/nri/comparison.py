"""How the policy compares its pools for a container, for people.

The plugin sorts all pools and uses the first one, also where the container does not fit in it. For every other pool
this file names the rule by which it comes later, as `scoring.Order` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from extender.kubelet.budget import MAX_STEPS, Budget
from extender.nri.admission import UnplacedContainer, in_order, new_container, place_pod
from extender.nri.events import Node, container_of, run_pod
from extender.nri.hints import resolved
from extender.nri.objects import NriPod
from extender.nri.placing import scored_pools
from extender.nri.pools import PoolRule
from extender.nri.requests import CPUType, new_request
from extender.nri.scoring import Score
from extender.nri.verdict import RefusalError


class PoolRow(NamedTuple):
    """One pool, as a candidate for a container. `has_hints`: whether the container has topology hints."""

    score: Score
    lost_by: PoolRule
    has_hints: bool


@dataclass(frozen=True, slots=True)
class PoolComparison:
    """The pools for one container. `pools`: the used one first, then the others by depth and id.

    `pools` is empty if the policy uses the root without comparing pools (reserved CPUs, CPUs that are not managed).
    `refusal`: why the container would not be created in the used pool, "" if it would be.
    """

    container: str
    pools: tuple[PoolRow, ...]
    refusal: str = ""


def compare_pools(node: Node, pod: NriPod, containers: Sequence[UnplacedContainer]) -> list[PoolComparison]:
    """The pools for each container of *pod* in the order of creation, up to the first that is refused.

    A container that is refused before pools are compared, because of an annotation, is left out.

    Raises:
        BudgetError: the replay takes too many steps.
    """
    result, done = [], list[UnplacedContainer]()
    for container in in_order(containers):
        before = place_pod(node, pod, done, Budget(MAX_STEPS)).node
        try:
            rows = explain_pools(before, pod, container)
        except RefusalError:
            break
        done.append(container)
        after = place_pod(node, pod, done, Budget(MAX_STEPS))
        result.append(PoolComparison(container.name, rows, "" if after.reason is None else after.detail))
        if after.reason is not None:
            break
    return result


def explain_pools(node: Node, pod: NriPod, container: UnplacedContainer) -> tuple[PoolRow, ...]:
    """The pools for the next container of *pod*, see `PoolComparison`.

    Raises:
        RefusalError: an annotation makes the policy refuse the container before it compares pools.
        BudgetError: the comparison takes too many steps.
    """
    books = run_pod(node, pod).books.copy(Budget(MAX_STEPS))
    setup = books.setup
    machine = setup.topology.machine
    object_ = container_of(books, pod, new_container(pod, container, machine.memory_total_bytes))
    types, cold_start_off = machine.memory_types, setup.cold_start_off
    request = new_request(pod, object_, setup.config, types, books.budget, cold_start_off=cold_start_off)
    if request.cpu_type is CPUType.PRESERVE or (request.cpu_type is CPUType.RESERVED and setup.tree.root.reserved):
        return ()
    request = replace(request, cpu_type=CPUType.NORMAL)
    hints = resolved(object_.hints, machine)
    scored, order = scored_pools(books, object_, request, hints)
    best = order.best(scored)
    rows = [
        PoolRow(score, PoolRule.USED if score is best else order.separating_rule(best, score), bool(hints))
        for score in sorted(scored, key=lambda s: (s is not best, s.pool.depth, s.pool.id))
    ]
    return tuple(rows)
