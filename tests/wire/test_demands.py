"""The keys of demands: which are read, and what is a fault."""

import pytest

from extender.cluster.pods import with_default
from extender.replay.alignment_demand import NO_DEMAND, AlignmentDemand, ContainerDemand, Demand, MemoryDemand
from extender.wire.pods import demand_from_json, pod_from_json, understood, unknown_keys
from tests.reports import pod_of

P = "numa-extender.io/"
ONE_NODE = AlignmentDemand.SINGLE_NUMA_NODE


@pytest.mark.parametrize(
    ("texts", "demand"),
    [
        (None, NO_DEMAND),
        ({"other": "x", 3: "x"}, NO_DEMAND),
        ({f"{P}alignment-resources": "memory, cpu,cpu"}, Demand(resources=("cpu", "memory"))),
        ({f"{P}alignment-resources": "cpu_memory"}, Demand(resources=("cpu", "memory"))),
        ({f"{P}alignment-resources": "a.example/x_y"}, Demand(resources=("a.example/x_y",))),
        (
            {f"{P}alignment.b": "none", f"{P}memory.a": "no-remote-memory", f"{P}alignment-resources.a": "cpu"},
            Demand(
                containers=(
                    ("a", ContainerDemand(None, MemoryDemand.NO_REMOTE_MEMORY, ("cpu",))),
                    ("b", ContainerDemand(AlignmentDemand.NONE)),
                )
            ),
        ),
    ],
)
def test_keys_that_are_understood(texts: object, demand: Demand) -> None:
    assert demand_from_json(texts) == demand
    if isinstance(texts, dict):
        assert set(understood(texts)) == {key for key in texts if str(key).startswith(P)}


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("alignment-resources", "", "unknown value ''"),
        ("alignment-resources", "cpus", "unknown value 'cpus'; use resources, such as cpu,memory"),
        ("alignment-resources", "cpu,", "unknown value"),
        ("alignment-resources", 3, "unknown value"),
        ("alignment-resources", ",".join(f"x.example/{i}" for i in range(17)), "unknown value"),
        ("alignment.app", "best", "alignment.app has the unknown value 'best'"),
        ("alignment.ap", "none", "names no container of the pod: it has 'app'"),
    ],
)
def test_faults_name_the_key_and_the_value(key: str, text: object, words: str) -> None:
    demand = demand_from_json({P + key: text}, containers=["app"])

    assert words in demand.fault
    assert demand.is_required
    assert understood({P + key: text}) == ([P + key] if "names no container" in words else [])


@pytest.mark.parametrize("key", ["alignment.", "alignment-scope.app", "alignments.app", "alignment_resources"])
def test_other_keys_of_ours_have_no_meaning(key: str) -> None:
    assert unknown_keys({P + key: "none", f"{P}alignment.app": "none", f"{P}group": "g"}) == [P + key]
    assert demand_from_json({P + key: "none"}) == NO_DEMAND


def test_keys_of_a_namespace_count_for_containers_that_the_pod_has() -> None:
    pod = pod_of(4)
    pod["metadata"]["annotations"] = {f"{P}alignment": "same-socket", f"{P}memory.app": "none"}
    labels = {
        f"{P}alignment": "single-numa-node",
        f"{P}alignment-resources": "cpu_memory",
        f"{P}memory.app": "no-remote-memory",
        f"{P}alignment.app": "none",
        f"{P}alignment.other": "single-numa-node",
    }
    demand = with_default(pod_from_json(pod), {"default": demand_from_json(labels)}).demand

    assert demand == Demand(
        AlignmentDemand.SAME_SOCKET,
        resources=("cpu", "memory"),
        containers=(("app", ContainerDemand(AlignmentDemand.NONE, MemoryDemand.NONE)),),
    )
    assert demand.of("app") == ContainerDemand(AlignmentDemand.NONE, MemoryDemand.NONE, ("cpu", "memory"))
    assert demand.of("new") == ContainerDemand(AlignmentDemand.SAME_SOCKET, None, ("cpu", "memory"))


def test_preferences_of_containers_are_not_required() -> None:
    demand = demand_from_json({f"{P}alignment.app": "preferred"})

    assert not demand.is_required
    assert demand.with_preferences().of("app").alignment is ONE_NODE
