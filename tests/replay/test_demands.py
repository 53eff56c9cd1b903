"""Demands for alignment: which placements meet them. The expected answers are restated here from CPU and NUMA ids."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted
from extender.replay.alignment import Alignment, alignment_of_outcome
from extender.replay.alignment_demand import NO_DEMAND, AlignmentDemand, Demand, DemandScope, MemoryDemand
from extender.replay.demands import NOTHING_HELD, Breach, Held, broken_by, broken_by_outcome, is_always_met
from extender.replay.possible_states import admit_in_all
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, sample

QUAD = Hardware(sockets=2, numa_per_socket=2, cores_per_numa=4, threads=2, memory_gib=16)
"""Sockets 0 and 1 have NUMA nodes 0, 1 and 2, 3; each NUMA node has 8 CPUs and 16 GiB."""
ONE_NODE = Demand(AlignmentDemand.SINGLE_NUMA_NODE)
ONE_SOCKET = Demand(AlignmentDemand.SAME_SOCKET)
LOCAL = Demand(memory=MemoryDemand.NO_REMOTE_MEMORY)
GPU = "vendor.example/gpu"
BEST_EFFORT = {"topologyManagerPolicy": "best-effort"}
NO_POLICY = {"topologyManagerPolicy": "none", "memoryManagerPolicy": "None"}


def _node(**options: Any) -> SampleNode:
    return sample(hardware=QUAD, **options)


def _pod(*amounts: tuple[int | str, str], gpus: int = 0) -> dict[str, Any]:
    pod = pod_of()
    pod["spec"]["containers"] = [
        {
            "name": f"c{i}",
            "resources": {"limits": {"cpu": str(cpu), "memory": memory, GPU: str(gpus)}},
        }
        for i, (cpu, memory) in enumerate(amounts)
    ]
    return pod


def _breach(node: SampleNode, pod: dict[str, Any], demand: Demand) -> Breach | None:
    request = resolve(pod_from_json(pod), node.kubelet.rules)
    outcome = admit(node.kubelet, node.state, request)
    assert isinstance(outcome.verdict, Admitted)
    broken = broken_by_outcome(demand, node.kubelet, request, outcome)
    return None if broken is None else broken.breach


@pytest.mark.parametrize(
    ("options", "cpus", "demand", "breach"),
    [
        (BEST_EFFORT, 6, ONE_NODE, None),
        (BEST_EFFORT, 12, ONE_NODE, Breach.NUMA_NODES),
        (BEST_EFFORT, 12, ONE_SOCKET, None),
        (BEST_EFFORT, 20, ONE_SOCKET, Breach.SOCKETS),
        (BEST_EFFORT, 12, LOCAL, None),
        (NO_POLICY, 6, ONE_NODE, None),
        (NO_POLICY, 12, ONE_NODE, Breach.NUMA_NODES),
        (NO_POLICY, 6, LOCAL, Breach.REMOTE_MEMORY),
        (NO_POLICY, "500m", ONE_NODE, Breach.NOT_PLACED),
        ({**NO_POLICY, "cpuManagerPolicy": "none"}, 6, ONE_NODE, Breach.NOT_PLACED),
        (NO_POLICY, 20, NO_DEMAND, None),
        (NO_POLICY, 20, Demand(AlignmentDemand.PREFERRED), None),
        (NO_POLICY, 20, Demand(AlignmentDemand.NONE, memory=MemoryDemand.NONE), None),
    ],
)
def test_the_predicted_placement_decides_whatever_the_policy(
    options: dict[str, Any], cpus: int | str, demand: Demand, breach: Breach | None
) -> None:
    assert _breach(_node(**options), _pod((cpus, "1Gi")), demand) is breach


def test_scope_pod_needs_one_node_for_all_containers() -> None:
    node, pod = _node(**BEST_EFFORT), _pod((6, "1Gi"), (6, "1Gi"))

    assert _breach(node, pod, ONE_NODE) is None
    assert _breach(node, pod, ONE_NODE._replace(scope=DemandScope.CONTAINER)) is None
    assert _breach(node, pod, ONE_NODE._replace(scope=DemandScope.POD)) is Breach.NUMA_NODES
    assert _breach(node, pod, ONE_SOCKET._replace(scope=DemandScope.POD)) is None
    assert _breach(node, _pod((2, "1Gi"), (2, "1Gi")), ONE_NODE._replace(scope=DemandScope.POD)) is None


def test_containers_of_the_shared_pool_beside_others_do_not_count() -> None:
    assert _breach(_node(**BEST_EFFORT), _pod((4, "1Gi"), ("100m", "1Gi")), ONE_NODE) is None
    assert _breach(_node(**BEST_EFFORT), _pod((4, "1Gi"), ("100m", "1Gi")), LOCAL) is None


def test_devices_count_where_their_numa_node_is_known() -> None:
    node = _node(**NO_POLICY, devices={GPU: [3]})

    assert _breach(node, _pod((4, "1Gi"), gpus=1), ONE_NODE) is Breach.NUMA_NODES
    assert _breach(node, _pod((4, "1Gi"), gpus=1), ONE_SOCKET) is Breach.SOCKETS
    assert _breach(_node(**BEST_EFFORT, devices={GPU: [3]}), _pod((4, "1Gi"), gpus=1), ONE_NODE) is None


def test_on_a_machine_with_one_numa_node_every_placement_is_aligned() -> None:
    one = sample(
        hardware=Hardware(sockets=1, numa_per_socket=1, cores_per_numa=8, threads=2, memory_gib=32),
        cpuManagerPolicy="none",
        memoryManagerPolicy="None",
        topologyManagerPolicy="none",
    )

    for demand in (ONE_NODE, ONE_SOCKET, LOCAL):
        assert is_always_met(demand, one.kubelet.machine)
        assert _breach(one, _pod(("500m", "1Gi")), demand) is None
        assert not is_always_met(demand, _node().kubelet.machine)
    assert not is_always_met(Demand(fault="not understood"), one.kubelet.machine)


def test_memory_of_a_numa_node_without_cpus_is_remote_and_on_no_socket() -> None:
    node = _node()
    request = resolve(pod_from_json(_pod((4, "1Gi"))), node.kubelet.rules)
    held = {"c0": Held(0b01, 0b01, memory=(1 << 9,))}

    for demand, breach in ((LOCAL, Breach.REMOTE_MEMORY), (ONE_SOCKET, Breach.SOCKETS), (ONE_NODE, Breach.NUMA_NODES)):
        found = broken_by(demand, node.kubelet.machine, request, held, NOTHING_HELD)
        assert found is not None
        assert found.breach is breach


@given(
    cpus=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    taken=st.integers(0, 7),
    policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    scope=st.sampled_from(["container", "pod"]),
    demand=st.sampled_from([ONE_NODE, ONE_SOCKET, LOCAL]),
    demand_scope=st.sampled_from(DemandScope),
)
def test_the_law_holds_for_cpu_and_memory_ids(
    cpus: list[int], taken: int, policy: str, scope: str, demand: Demand, demand_scope: DemandScope
) -> None:
    """The demand is met exactly if the ids of CPUs and memory blocks say so."""
    node = _node(
        topologyManagerPolicy=policy,
        topologyManagerScope=scope,
        workloads=[Workload(name="w", resources={"cpu": taken, "memory": "1Gi"})] if taken else [],
    )
    demand = demand._replace(scope=demand_scope)
    request = resolve(pod_from_json(_pod(*((each, "1Gi") for each in cpus))), node.kubelet.rules)
    for outcome in admit_in_all(node.kubelet, (node.state,), request):
        if not isinstance(outcome.verdict, Admitted):
            continue
        is_broken = broken_by_outcome(demand, node.kubelet, request, outcome) is not None
        assert is_broken is not _is_met(demand, node, outcome.verdict)
        if demand == ONE_NODE._replace(scope=DemandScope.CONTAINER) and policy == "none":
            alignment = alignment_of_outcome(node.kubelet, outcome)
            assert alignment is not None
            assert is_broken is (alignment.alignment is not Alignment.ALIGNED), "the word of what-if agrees"


def _is_met(demand: Demand, node: SampleNode, verdict: Admitted) -> bool:
    """Restated: from the ids of each container, by sets."""
    node_of = {cpu.cpu: cpu.numa for cpu in node.kubelet.machine.cpus}
    groups = []
    for placement in verdict.placements.values():
        cpu_nodes = {node_of[i] for i in range(64) if placement.cpus >> i & 1}
        memory_nodes = {i for block in placement.memory for i in range(64) if block.mask >> i & 1}
        if demand.memory is not None and memory_nodes != cpu_nodes:
            return False
        groups.append(cpu_nodes | memory_nodes)
    if demand.scope is DemandScope.POD:
        groups = [set.union(*groups)]
    if demand.alignment is AlignmentDemand.SINGLE_NUMA_NODE:
        return all(len(group) == 1 for group in groups)
    if demand.alignment is AlignmentDemand.SAME_SOCKET:
        return all(len({each // 2 for each in group}) == 1 for group in groups)
    return True
