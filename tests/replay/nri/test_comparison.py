"""The reasons why pools are not used, against what the rows themselves show."""

from collections import Counter
from itertools import islice

import pytest

from extender.kubelet.budget import MAX_STEPS, Budget
from extender.kubelet.resolve import resolve
from extender.kubelet.rules import Rules
from extender.nri.admission import place_pod
from extender.nri.comparison import PoolRow, compare_pools
from extender.nri.pools import PoolRule
from extender.replay.nri_pod import nri_pod
from extender.wire.pods import pod_from_json
from tests.nri_states import recorded_creations


def _width(row: PoolRow) -> int:
    assert row.memory_nodes is not None
    return row.memory_nodes.bit_count()


def _is_true(used: PoolRow, row: PoolRow) -> bool:
    """Whether *row* shows what its reason says, where it shows that."""
    fits = row.shared_left >= 0
    return {
        PoolRule.CPU: not fits and used.shared_left >= 0,
        PoolRule.ISOLATED: row.isolated_left < 0 <= used.isolated_left,
        PoolRule.AFFINITY: row.affinity < used.affinity,
        PoolRule.HINTS: row.hint_score is not None,
        PoolRule.NO_MEMORY: row.memory_nodes is None and used.memory_nodes is not None,
        PoolRule.MEMORY_NODES: row.memory_nodes is not None and _width(row) > _width(used),
        PoolRule.DEPTH: row.depth < used.depth,
        PoolRule.ISOLATED_LEFT: row.isolated_left < used.isolated_left,
        PoolRule.CPU_LEFT: row.shared_left < used.shared_left,
        PoolRule.CONTAINERS: row.colocated > used.colocated,
    }.get(row.lost_by, True)


@pytest.mark.parametrize("theme", ["aff", "burst", "full", "hint", "iso", "mixed", "prio", "tier"])
def test_each_reason_is_true_of_its_row_in_recorded_decisions(theme: str) -> None:
    seen = Counter[PoolRule]()
    for creation in islice(recorded_creations(theme), 60):
        request = nri_pod(resolve(pod_from_json(creation.pod), Rules.of("v1.36.2", {}, {})))
        comparisons = compare_pools(creation.before, request.pod, request.containers)
        verdict = place_pod(creation.before, request.pod, request.containers, Budget(MAX_STEPS))
        for comparison in comparisons:
            assert bool(comparison.refusal) is bool(creation.refusal), creation.name
            used, *others = comparison.pools or (None,)
            if used is None:
                continue
            assert verdict.reason is not None or verdict.placed[0].pool == used.pool, creation.name
            assert used.lost_by is PoolRule.USED
            for row in others:
                assert _is_true(used, row), (creation.name, used, row)
                seen[row.lost_by] += 1

    assert PoolRule.USED not in seen
    assert len(seen) > 2
