"""Demands against truth that is not the product's code path: see `demand_truth`."""

from typing import Any

import pytest

from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted
from extender.replay.demands import Breach, broken_by_outcome
from extender.samples.machines import Hardware
from extender.wire.pods import pod_from_json
from tests.replay.demand_truth import PREFIX, compare
from tests.reports import pod_of, sample

CASES = 4000


def test_demands_are_met_exactly_where_trying_every_place_says_so() -> None:
    met = sum(compare(seed) for seed in range(CASES))

    assert CASES / 4 < met < 3 * CASES / 4, "both answers are frequent"


WIDE = Hardware(sockets=1, numa_per_socket=2, cores_per_numa=16, threads=2, memory_gib=16)


def _breach(annotations: dict[str, str], *containers: tuple[str, str], **options: Any) -> Breach | None:
    """On a machine with two NUMA nodes of 32 CPUs, each with 16 GiB."""
    pod = pod_of()
    pod["metadata"]["annotations"] = {PREFIX + key: text for key, text in annotations.items()}
    pod["spec"]["containers"] = [
        {"name": f"c{i}", "resources": {"limits": {"cpu": cpu, "memory": memory}}}
        for i, (cpu, memory) in enumerate(containers)
    ]
    node = sample(hardware=WIDE, topologyManagerPolicy="none", **options)
    parsed = pod_from_json(pod)
    request = resolve(parsed, node.kubelet.rules)
    outcome = admit(node.kubelet, node.state, request)
    assert isinstance(outcome.verdict, Admitted)
    broken = broken_by_outcome(parsed.demand, node.kubelet, request, outcome)
    return None if broken is None else broken.breach


def test_cpus_without_memory_beside_them_are_remote() -> None:
    """The memory manager finds one NUMA node for the memory; the CPUs are on two."""
    assert _breach({"memory": "no-remote-memory"}, ("40", "1Gi")) is Breach.REMOTE_MEMORY
    assert _breach({"memory": "no-remote-memory"}, ("20", "1Gi")) is None


def test_pinned_memory_without_exclusive_cpus_is_local() -> None:
    assert _breach({"memory": "no-remote-memory"}, ("1500m", "1Gi")) is None
    unpinned = _breach({"memory": "no-remote-memory"}, ("1500m", "1Gi"), memoryManagerPolicy="None")
    assert unpinned is Breach.NOT_PLACED


@pytest.mark.parametrize(
    ("annotations", "breach"),
    [
        ({"alignment-resources": "cpu"}, Breach.NUMA_NODES),
        ({"alignment-resources": "memory"}, None),
        ({"alignment-resources": "cpu", "alignment": "same-socket"}, None),
        ({"alignment-resources": "cpu", "alignment": "none"}, None),
        ({"alignment": "single-numa-node", "alignment.c0": "none"}, None),
        ({"alignment.c0": "single-numa-node"}, Breach.NUMA_NODES),
        ({"alignment.c1": "single-numa-node"}, None),
        ({"memory.c0": "no-remote-memory"}, Breach.REMOTE_MEMORY),
        ({"memory.c1": "no-remote-memory"}, None),
    ],
)
def test_which_resources_and_which_containers(annotations: dict[str, str], breach: Breach | None) -> None:
    """c0 is on two NUMA nodes, and its memory on one; c1 is on one."""
    assert _breach(annotations, ("40", "1Gi"), ("2", "1Gi")) is breach


def test_named_memory_has_to_be_pinned() -> None:
    assert _breach({"alignment-resources": "cpu,memory"}, ("8", "1Gi")) is None
    unpinned = _breach({"alignment-resources": "cpu,memory"}, ("8", "1Gi"), memoryManagerPolicy="None")
    assert unpinned is Breach.REMOTE_MEMORY
    assert _breach({"alignment": "single-numa-node"}, ("8", "1Gi"), memoryManagerPolicy="None") is None
