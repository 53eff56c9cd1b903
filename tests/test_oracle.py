"""The naive kubelet answers as the real code did: recorded scenarios, and examples worked by hand."""

import json
import lzma
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.oracle import NaiveKubelet, NaiveKubeletError, topology_manager
from tests.oracle.hints import Hint, Hints, masks_over
from tests.oracle.vectors import compare, differences

RECORDED = sorted((Path(__file__).parent / "vectors").glob("kubelet-*.jsonl.xz"))
SAMPLE = 10


@pytest.mark.skipif(not RECORDED, reason="no recorded vectors here")
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_every_tenth_recorded_scenario_is_reproduced(path: Path) -> None:
    wrong = {}
    with lzma.open(path, "rt") as lines:
        for number, line in enumerate(lines):
            if number % SAMPLE == 0:
                scenario = json.loads(line)
                found = differences(scenario)
                if found:
                    wrong[scenario["id"]] = found
    assert not wrong


def two_nodes() -> dict[str, Any]:
    """Two sockets, each one NUMA node of 4 cores with 2 threads: 0-3,8-11 and 4-7,12-15."""
    cpus = [[cpu, cpu % 8, cpu % 8 // 4, cpu % 8 // 4, None] for cpu in range(16)]
    distances = {0: [10, 21], 1: [21, 10]}
    numa = [{"id": n, "memory": 16 << 30, "hugepages": {"2Mi": 0}, "distances": distances[n]} for n in (0, 1)]
    return {"cpus": cpus, "numa": numa}


def pod(name: str, *cpus: int, init: int = 0) -> dict[str, Any]:
    def container(container_name: str, count: int) -> dict[str, Any]:
        amounts = {"cpu": str(count), "memory": "1Gi"}
        return {"name": container_name, "resources": {"requests": amounts, "limits": amounts}}

    spec: dict[str, Any] = {"containers": [container(f"c{number}", count) for number, count in enumerate(cpus)]}
    if init:
        spec["initContainers"] = [container("i0", init)]
    return {"metadata": {"name": name, "uid": name}, "spec": spec}


def kubelet(policy: str = "none", reserve: str = "2", **options: str) -> NaiveKubelet:
    configuration = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {name.replace("_", "-"): value for name, value in options.items()},
        "topologyManagerPolicy": policy,
        "reservation": {"cpu": reserve},
        "featureGates": {"CPUManagerPolicyAlphaOptions": True},
    }
    return NaiveKubelet(two_nodes(), configuration, {}, "v1.36.2")


@pytest.mark.parametrize(
    ("options", "reserve", "requests", "expected"),
    [
        ({}, "2", [3], ["1-2,9"]),
        ({}, "2", [1, 3], ["1", "2,9-10"]),
        ({}, "2", [9], ["1,4-7,12-15"]),
        ({"distribute_cpus_across_numa": "true"}, "2", [10], ["1-6,9-10,12-13"]),
        ({"distribute_cpus_across_numa": "true"}, "2", [9], ["1-2,4-6,9-10,12-13"]),
        ({"distribute_cpus_across_cores": "true"}, "2", [4], ["2-3,8-9"]),
        ({}, "1", [1], ["8"]),
    ],
)
def test_cpus_by_hand(options: dict[str, str], reserve: str, requests: list[int], expected: list[str]) -> None:
    node = kubelet(reserve=reserve, **options)
    placed = [node.admit(pod(f"p{number}", count)) for number, count in enumerate(requests)]
    assert [verdict["containers"]["c0"]["cpus"] for verdict in placed] == expected


def test_an_init_container_leaves_its_cpus_to_the_app_container_and_keeps_the_rest() -> None:
    node = kubelet("restricted")
    first = node.admit(pod("p0", 2, init=4))["containers"]
    assert (first["i0"]["cpus"], first["c0"]["cpus"]) == ("1-2,9-10", "1,9")
    assert node.admit(pod("p1", 4))["containers"]["c0"]["cpus"] == "4-5,12-13"


def test_a_pod_admitted_again_is_refused_for_want_of_free_cores() -> None:
    node = kubelet(full_pcpus_only="true")
    assert node.admit(pod("p0", 10))["admit"]
    again = node.admit(pod("p0", 10))
    assert (again["reason"], "available physical CPUs = 4" in again["message"]) == ("SMTAlignmentError", True)


def test_what_is_removed_is_free_again() -> None:
    node = kubelet("single-numa-node")
    assert node.admit(pod("p0", 6))["admit"]
    assert node.admit(pod("p1", 8))["admit"]
    assert node.admit(pod("p2", 6))["reason"] == "TopologyAffinityError"
    node.remove("p0")
    assert node.admit(pod("p3", 6))["containers"]["c0"] == {"affinity": [0], "preferred": True, "cpus": "1-3,9-11"}


def test_a_kubelet_that_would_not_start_says_so() -> None:
    with pytest.raises(NaiveKubeletError, match="can not be used at the same time"):
        kubelet(full_pcpus_only="true", distribute_cpus_across_cores="true")


def test_large_cross_products_are_folded_to_the_same_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(1)
    masks = list(masks_over([0, 1]))
    for _ in range(400):
        manager = kubelet(rng.choice(["best-effort", "restricted", "single-numa-node"])).topology
        hints = [[Hint(rng.choice([None, *masks]), rng.random() < 0.5) for _ in range(3)] for _ in range(3)]
        answers: list[Hints | None] = [{"a": list(hints[0]), "b": list(hints[1])}, {"c": list(hints[2])}]
        walked = manager.merge(answers)
        with monkeypatch.context() as patch:
            patch.setattr(topology_manager, "WALK_CAP", 0)
            assert manager.merge(answers) == walked


def test_the_comparison_sees_what_differs_and_ignores_what_varies() -> None:
    want = {"admit": True, "containers": {"c0": {"cpus": "1", "devices": {}}}}
    got = {"admit": True, "containers": {"c0": {"cpus": "2", "devices": {"gpu": ["a"]}}}}
    assert len(compare(got, want, set())) == 2
    assert compare(got, want, {"containers.c0.devices.gpu", "containers.c0.cpus"}) == []
