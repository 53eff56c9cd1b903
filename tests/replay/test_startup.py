"""Configurations: which kubelets start, which refuse, and which field is to blame."""

from typing import Any

import pytest

from extender.kubelet.admission import admit, is_indifferent
from extender.kubelet.errors import KubeletConfigError, UnknownVersionError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.resolve import resolve
from extender.kubelet.rules import Rules, parse_minor
from extender.kubelet.sets import format_list
from extender.kubelet.startup import initial_state, start
from extender.kubelet.verdict import Certainty, Reason, Rejected, When
from extender.replay.pod import Pod
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import kubelet_config_from_json, machine_from_json

TWO_SOCKETS = {
    "cpus": [[c + 8 * t, c, c // 4, c // 4, None] for c in range(8) for t in range(2)],
    "numa": [
        {"id": i, "memory": 1 << 34, "hugepages": {"2Mi": 64}, "distances": [10, 21] if i == 0 else [21, 10]}
        for i in range(2)
    ],
}
STATIC = {"cpuManagerPolicy": "static", "reservation": {"cpu": "2"}}


def _start(version: str = "1.36", machine: dict[str, Any] | None = None, **kubelet: Any) -> Kubelet:
    return start(machine_from_json(machine or TWO_SOCKETS), kubelet_config_from_json(version, {**STATIC, **kubelet}))


def _pod(**requests: str) -> Pod:
    requests = {"memory": "1Gi", **requests}
    resources = {"requests": requests, "limits": requests}
    return pod_from_json({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})


@pytest.mark.parametrize(
    ("text", "minor"),
    [("1.27", 27), ("v1.33.4", 33), ("v1.33.4-eks-1-33", 33), ("v1.30.1+k3s1", 30), ("v1.35.0-rc.1", 35), ("1.99", 99)],
)
def test_versions_of_every_form(text: str, minor: int) -> None:
    assert parse_minor(text) == minor


@pytest.mark.parametrize("text", ["", "1", "2.30", "v1.x", "1.26.9", "v1.33.4\n-", "1." + "3" * 300])
def test_versions_that_are_none(text: str) -> None:
    with pytest.raises(UnknownVersionError):
        parse_minor(text)


def test_a_newer_kubelet_gets_the_newest_rules_and_says_so() -> None:
    kubelet = _start("v1.41.2-gke.7")
    verdict = admit(kubelet, initial_state(kubelet, {}), resolve(_pod(cpu="2"), kubelet.rules)).verdict

    assert verdict.certainty is Certainty.ASSUMED
    assert verdict.caveats == ("kubelet v1.41.2-gke.7 is newer than 1.37, the newest known: replayed with its rules",)
    assert _start("1.37").caveats == ()


def test_gates_and_overrides_switch_rules() -> None:
    assert not Rules.of("1.36", {}, {}).pod_level_managers
    assert Rules.of("1.36", {"PodLevelResourceManagers": True}, {}).pod_level_managers
    assert not Rules.of("1.35", {"PodLevelResourceManagers": True}, {}).pod_level_managers
    assert not Rules.of("1.36", {"PodLevelResourceManagers": True, "PodLevelResources": False}, {}).pod_level_managers
    assert Rules.of("1.35", {}, {"device_numa_narrowing": True}).device_numa_narrowing
    with pytest.raises(KeyError):
        Rules.of("1.35", {}, {"no_such_rule": True})


@pytest.mark.parametrize(
    ("kubelet", "field", "words"),
    [
        ({"cpuManagerPolicy": "dynamic"}, "cpuManagerPolicy", "one of none, static"),
        ({"topologyManagerPolicy": "strict"}, "topologyManagerPolicy", "single-numa-node"),
        ({"topologyManagerScope": "node"}, "topologyManagerScope", "container, pod"),
        ({"memoryManagerPolicy": "BestEffort"}, "memoryManagerPolicy", "None, Static"),
        ({"reservation": {}}, "reservation", "greater than zero"),
        ({"reservation": {"cpu": "99"}}, "reservation", "unable to reserve 99 CPUs"),
        ({"reservedSystemCPUs": "0,77"}, "reservedSystemCPUs", "CPUs 77 do not exist"),
        ({"cpuManagerPolicyOptions": {"turbo": "true"}}, "cpuManagerPolicyOptions", "unknown"),
        ({"cpuManagerPolicyOptions": {"full-pcpus-only": "yes"}}, "cpuManagerPolicyOptions", "not a boolean"),
        (
            {"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
            "cpuManagerPolicyOptions",
            "policy none",
        ),
        ({"cpuManagerPolicyOptions": {"align-by-socket": "true"}}, "cpuManagerPolicyOptions", "Alpha-level"),
        (
            {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "4"}},
            "topologyManagerPolicyOptions",
            "minimum value",
        ),
        (
            {"topologyManagerPolicy": "restricted", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "x"}},
            "topologyManagerPolicyOptions",
            "integer",
        ),
        ({"memoryManagerPolicy": "Static"}, "reservedMemory", "greater than zero"),
        (
            {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 7, "limits": {"memory": "1Gi"}}]},
            "reservedMemory[0].numaNode",
            "does not exist",
        ),
        (
            {
                "memoryManagerPolicy": "Static",
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
                "reservation": {"cpu": "1", "memory": "2Gi"},
            },
            "reservedMemory",
            "not equal",
        ),
    ],
)
def test_configurations_that_no_kubelet_starts_with(kubelet: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(KubeletConfigError, match=words) as caught:
        _start(**kubelet)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("version", "option", "level"),
    [
        ("1.30", "distribute-cpus-across-cores", None),
        ("1.31", "distribute-cpus-across-cores", "alpha"),
        ("1.31", "strict-cpu-reservation", None),
        ("1.32", "strict-cpu-reservation", "alpha"),
        ("1.33", "strict-cpu-reservation", "beta"),
        ("1.31", "prefer-align-cpus-by-uncorecache", None),
        ("1.34", "prefer-align-cpus-by-uncorecache", "beta"),
        ("1.32", "distribute-cpus-across-numa", "alpha"),
        ("1.33", "distribute-cpus-across-numa", "beta"),
        ("1.27", "full-pcpus-only", "beta"),
    ],
)
def test_option_levels_by_version(version: str, option: str, level: str | None) -> None:
    options = {"cpuManagerPolicyOptions": {option: "true"}}
    gates = {"alpha": {"CPUManagerPolicyAlphaOptions": True}, "beta": {}}

    if level is None:
        with pytest.raises(KubeletConfigError, match="unknown"):
            _start(version, **options, featureGates={"CPUManagerPolicyAlphaOptions": True})
        return
    assert _start(version, **options, featureGates=gates[level]).cpu_static
    if level == "alpha":
        with pytest.raises(KubeletConfigError, match="Alpha-level"):
            _start(version, **options)
    else:
        with pytest.raises(KubeletConfigError, match="Beta-level"):
            _start(version, **options, featureGates={"CPUManagerPolicyBetaOptions": False})


@pytest.mark.parametrize(
    ("options", "reserved"),
    [({}, "0,8"), ({"distribute-cpus-across-cores": "true"}, "0-1"), ({"strict-cpu-reservation": "true"}, "0,8")],
)
def test_reserved_cpus_follow_the_options(options: dict[str, str], reserved: str) -> None:
    kubelet = _start(cpuManagerPolicyOptions=options, featureGates={"CPUManagerPolicyAlphaOptions": True})

    assert format_list(kubelet.reserved_cpus) == reserved
    pool = initial_state(kubelet, {}).cpu.default
    assert bool(pool & kubelet.reserved_cpus) == ("strict-cpu-reservation" not in options)


def _gpu_memory_machine(nodes: int) -> dict[str, Any]:
    """Two NUMA nodes with CPUs and many without, as machines with GPU memory nodes have."""
    numa = [{"id": i, "memory": 1 << 34, "hugepages": {}, "distances": []} for i in range(nodes)]
    return {**TWO_SOCKETS, "numa": numa}


def test_a_machine_with_34_numa_nodes_is_answered() -> None:
    many = {"max-allowable-numa-nodes": "64"}
    kubelet = _start(
        machine=_gpu_memory_machine(34), topologyManagerPolicy="restricted", topologyManagerPolicyOptions=many
    )
    state = initial_state(kubelet, {})

    assert not isinstance(admit(kubelet, state, resolve(_pod(cpu="4"), kubelet.rules)).verdict, Rejected)


def test_a_walk_that_never_ends_is_an_explicit_verdict() -> None:
    kubelet = _start(
        machine=_gpu_memory_machine(34),
        topologyManagerPolicy="restricted",
        topologyManagerPolicyOptions={"max-allowable-numa-nodes": "64"},
        memoryManagerPolicy="Static",
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        reservation={"cpu": "1", "memory": "1Gi"},
    )

    verdict = admit(kubelet, initial_state(kubelet, {}), resolve(_pod(cpu="4"), kubelet.rules)).verdict

    assert isinstance(verdict, Rejected)
    assert verdict.reason is Reason.KUBELET_HANG
    assert verdict.message == "the memory manager would walk 2^34 sets of NUMA nodes"


def test_reserved_memory_of_one_numa_node_is_summed() -> None:
    """As convertReserved in cm/memorymanager/memory_manager.go does."""
    limits = [(0, "512Mi"), (0, "512Mi"), (1, "1Gi")]
    reserved = [{"numaNode": node, "limits": {"memory": amount}} for node, amount in limits]
    kubelet = _start(memoryManagerPolicy="Static", reservedMemory=reserved, reservation={"cpu": "2", "memory": "2Gi"})
    assert [dict(node.amounts)["memory"].system_reserved for node in kubelet.memory_nodes] == [1 << 30, 1 << 30]


def test_more_numa_nodes_than_allowed() -> None:
    with pytest.raises(KubeletConfigError, match="more than 8 NUMA"):
        _start(machine=_gpu_memory_machine(9), topologyManagerPolicy="restricted")
    assert _start(machine=_gpu_memory_machine(9), topologyManagerPolicy="none").cpu_static


def test_never_and_now() -> None:
    kubelet = _start(topologyManagerPolicy="restricted", cpuManagerPolicyOptions={"full-pcpus-only": "true"})
    state = initial_state(kubelet, {})

    def when(cpu: str) -> When | None:
        verdict = admit(kubelet, state, resolve(_pod(cpu=cpu), kubelet.rules)).verdict
        return verdict.when if isinstance(verdict, Rejected) else None

    assert when("3") is When.NEVER  # half a core
    assert when("8") is None  # a whole NUMA node: the one without reserved CPUs
    assert when("20") is When.NEVER
    filled = admit(kubelet, state, resolve(_pod(cpu="8"), kubelet.rules)).state
    verdict = admit(kubelet, filled, resolve(_pod(cpu="8"), kubelet.rules)).verdict
    assert isinstance(verdict, Rejected)
    assert verdict.when is When.NOW


def test_pods_that_no_manager_aligns() -> None:
    kubelet = _start()

    assert is_indifferent(kubelet, resolve(_pod(cpu="1500m"), kubelet.rules))
    assert not is_indifferent(kubelet, resolve(_pod(cpu="2"), kubelet.rules))
    assert not is_indifferent(kubelet, resolve(_pod(cpu="1500m", **{"a.example/gpu": "1"}), kubelet.rules))
    assert is_indifferent(_start(cpuManagerPolicy="none"), resolve(_pod(cpu="2"), kubelet.rules))
