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
from extender.nri.scoring import Score
from extender.replay.nri_pod import nri_pod
from extender.wire.pods import pod_from_json
from tests.nri_states import recorded_creations


def _width(score: Score) -> int:
    return 0 if score.offer is None else score.offer.zone.bit_count()


def _is_true(best: Score, row: PoolRow) -> bool:
    """Whether *row* shows what its reason says, where it shows that. *best*: of the used pool."""
    score = row.score
    return {
        PoolRule.CPU: score.shared < 0 <= best.shared,
        PoolRule.ISOLATED: score.isolated < 0 <= best.isolated,
        PoolRule.AFFINITY: score.affinity < best.affinity,
        PoolRule.HINTS: row.has_hints,
        PoolRule.NO_MEMORY: score.offer is None and best.offer is not None,
        PoolRule.MEMORY_NODES: _width(score) > _width(best) > 0,
        PoolRule.DEPTH: score.pool.depth < best.pool.depth,
        PoolRule.ISOLATED_LEFT: score.isolated < best.isolated,
        PoolRule.CPU_LEFT: score.shared < best.shared,
        PoolRule.CONTAINERS: score.colocated > best.colocated,
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
            assert verdict.reason is not None or verdict.placed[0].pool == used.score.pool.name, creation.name
            assert used.lost_by is PoolRule.USED
            for row in others:
                assert _is_true(used.score, row), (creation.name, used, row)
                seen[row.lost_by] += 1

    assert PoolRule.USED not in seen
    assert len(seen) > 2
