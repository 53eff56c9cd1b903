"""The quick proof of too few CPUs is never wrong: what it excludes, the replay refuses."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.features.preemption.plan import CPUBound
from extender.kubelet.admission import admit, release_pods
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.verdict import Rejected
from extender.samples.nodes import SampleNode, Workload
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import scenario_from_json
from tests.replay.strategies import Json, scenarios
from tests.reports import pod_of, sample


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios(), st.data())
def test_what_is_excluded_is_refused(document: Json, data: st.DataObject) -> None:
    scenario = scenario_from_json(document)
    try:
        kubelet = start(scenario.machine, scenario.config)
    except KubeletConfigError:
        return
    state = initial_state(kubelet, scenario.devices)
    for step in scenario.steps:
        if step.pod is None:
            continue
        request = resolve(step.pod, kubelet.rules)
        gone = [uid for uid in sorted(state.pod_uids) if data.draw(st.booleans())]
        if CPUBound(kubelet, [state], request).excludes(gone):
            outcome = admit(kubelet, release_pods(state, gone), request)
            assert all(isinstance(o.verdict, Rejected) for o in (outcome, *outcome.alternatives))
        state = admit(kubelet, state, request).state


def test_it_counts_by_numa_node_and_policy() -> None:
    """14 and 16 CPUs are free."""
    for policy, most in (("single-numa-node", 16), ("restricted", 30), ("best-effort", 30), ("none", 30)):
        node = sample(topologyManagerPolicy=policy, memoryManagerPolicy="None")
        excluded = [cpu for cpu in range(1, 32) if _excludes(node, cpu)]

        assert excluded == [cpu for cpu in range(1, 32) if cpu > most], policy
    assert not _excludes(sample(topologyManagerPolicy="restricted", cpuManagerPolicy="none"), 31)


def test_with_scope_pod_the_span_is_that_of_the_pod() -> None:
    """14 CPUs are free on each NUMA node once one pod has left. 15 and 5 CPUs get both nodes, 15 alone only one."""
    there = [Workload(name=name, resources={"cpu": cpus, "memory": "1Gi"}) for name, cpus in (("a", 13), ("b", 2))]
    node = sample(
        workloads=there, topologyManagerPolicy="restricted", topologyManagerScope="pod", memoryManagerPolicy="None"
    )
    gone = [node.pods[0]["metadata"]["uid"]]
    left = release_pods(node.state, gone)
    for others, is_admitted in ((5, True), (0, False)):
        pod = pod_of(15)
        if others:
            pod["spec"]["containers"] += [{**pod_of(others)["spec"]["containers"][0], "name": "other"}]
        request = resolve(pod_from_json(pod), node.kubelet.rules)

        assert isinstance(admit(node.kubelet, left, request).verdict, Rejected) is not is_admitted
        assert CPUBound(node.kubelet, [node.state], request).excludes(gone) is not is_admitted


def _excludes(node: SampleNode, cpu: int) -> bool:
    request = resolve(pod_from_json(pod_of(cpu)), node.kubelet.rules)
    return CPUBound(node.kubelet, [node.state], request).excludes([])
