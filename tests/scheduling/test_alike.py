"""Classes that are alike for a pod: one judgement is enough for all of them."""

from dataclasses import replace
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest

from extender.cluster.free_table import NO_PLACE, Int64s
from extender.cluster.node_class import ClassTable, NodeClass
from extender.kubelet.budget import Budget
from extender.kubelet.startup import initial_state
from extender.replay.possible_states import PossibleStates
from extender.scheduling.cached_judge import MAX_MERGES, WORTH, alike
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.pod_shape import SHAPE_UID, PodShape
from extender.scheduling.ranking.strategies import STRATEGIES, Weights, make_strategy
from extender.wire.pods import pod_from_json
from tests.bench.distinct_states import TYPES, Type, _full_replays, _kubelet, _states, random_pod
from tests.reports import pod_of

NODES, PODS = 120, 10
OTHERS = (
    Type("single-numa-node, whole cores", 2, 32, "single-numa-node", cpu_options=("full-pcpus-only",), page_size="1Gi"),
    Type("4 NUMA nodes, in doubt, GPUs", 4, 16, "restricted", gpus=8, in_doubt=True),
)


@cache
def states_of(kind: Type) -> tuple[PossibleStates, ...]:
    return tuple(islice(_states(kind, NODES), NODES))


def held(table: ClassTable, kind: Type) -> list[NodeClass]:
    kubelet = _kubelet(kind)
    return [table.hold(kubelet, each, frozenset(), stale=False) for each in states_of(kind)]


@pytest.mark.parametrize("kind", [*TYPES, *OTHERS], ids=lambda kind: kind.name)
def test_classes_that_are_alike_have_the_judgement_of_their_full_replays(kind: Type) -> None:
    table, random = ClassTable(), Random(kind.name)
    classes = held(table, kind)
    assert all(each.place != NO_PLACE for each in classes)
    judge = BoundedJudge(make_strategy(STRATEGIES[0], Weights({})), UncertaintyPolicy())
    covered = 0
    for number in range(PODS):
        shape = PodShape(replace(pod_from_json(random_pod(kind, f"p{number}", random)), uid=SHAPE_UID))
        found = list(alike(table.free, shape, np.array([each.place for each in classes])))
        members = np.concatenate([each.members for each in found]) if found else np.array([], np.int64)
        assert len(set(members.tolist())) == len(members)
        for each in found:
            first = classes[each.members[0]]
            judgement = judge(shape, first)
            if judge.follows_from_key(shape, first, judgement):
                covered += len(each.members)
                some = [classes[i] for i in random.sample(each.members.tolist(), min(3, len(each.members)))]
                _, full = _full_replays(judge, PodShape(shape.pod), some)
                assert full == {node_class.id: judgement for node_class in some}
    if kind.policy != "best-effort":
        assert covered > NODES * PODS / 2


@pytest.mark.parametrize("name", STRATEGIES[1:])
@pytest.mark.parametrize("kind", [*TYPES, *OTHERS], ids=lambda kind: kind.name)
def test_the_merits_of_rows_are_those_of_their_full_replays(kind: Type, name: str) -> None:
    table, random = ClassTable(), Random(kind.name)
    classes = held(table, kind)
    judge = BoundedJudge(make_strategy(name, Weights({"memory": 3})), UncertaintyPolicy())
    covered = 0
    for number in range(PODS):
        shape = PodShape(replace(pod_from_json(random_pod(kind, f"p{number}", random)), uid=SHAPE_UID))
        for each in alike(table.free, shape, np.array([each.place for each in classes])):
            first = classes[each.members[0]]
            judgement = judge(shape, first)
            if judgement.merit is None:
                continue
            merits = judge.merits_of(shape, first, judgement, each.group, each.rows, Budget())
            if merits is None:
                continue
            assert len(merits) == len(each.members)
            covered += len(merits)
            some = random.sample(range(len(merits)), min(3, len(merits)))
            found: Any = _full_replays(judge, PodShape(shape.pod), [classes[each.members[i]] for i in some])
            assert [found[1][classes[each.members[i]].id].merit for i in some] == [merits[i] for i in some]
    has_columns = kind.policy != "best-effort" and not kind.in_doubt and "full-pcpus-only" not in kind.cpu_options
    assert bool(covered) == has_columns


def test_rows_of_classes_that_have_gone_are_free_again() -> None:
    table = ClassTable()
    for kind in (TYPES[1], TYPES[2], TYPES[1]):
        classes = held(table, kind)
        assert len({each.place for each in classes}) == len(classes)
        for each in classes:
            table.drop(each)
        assert not table.free._groups


def test_memory_that_only_several_idle_numa_nodes_have_is_told_apart() -> None:
    kind, table = OTHERS[0], ClassTable()
    states = [PossibleStates((initial_state(_kubelet(kind), {}),)), *states_of(kind)[:3]]
    classes = [table.hold(_kubelet(kind), each, frozenset(), stale=False) for each in states]
    shape = PodShape(replace(pod_from_json(pod_of(4, "300Gi")), uid=SHAPE_UID))  # a NUMA node has 256 GiB
    found = [each.members.tolist() for each in alike(table.free, shape, np.array([each.place for each in classes]))]
    assert found == [[0]], "whole cores decide on the others"


def test_groups_of_a_few_nodes_and_pods_of_many_containers_are_left_to_single_judgements() -> None:
    """Each group goes through its rows once for each container: with many of both a call would stop the event loop."""
    table = ClassTable()
    kinds = [replace(TYPES[0], cores_per_node=TYPES[0].cores_per_node - i) for i in range(3)]
    classes = [each for kind in kinds for each in held(table, kind)]
    places = np.array([each.place for each in classes])

    def found(containers: int, at: Int64s = places) -> int:
        document = pod_of(1, "1Mi")
        (own,) = document["spec"]["containers"]
        document["spec"]["containers"] = [{**own, "name": f"c{i}"} for i in range(containers)]
        shape = PodShape(replace(pod_from_json(document), uid=SHAPE_UID))
        return sum(len(each.members) for each in alike(table.free, shape, at))

    assert found(1) == len(classes)
    assert found(1, places[: WORTH - 1]) == 0
    assert found(MAX_MERGES // 2) <= 2 * NODES
    assert found(MAX_MERGES + 1) == 0
