"""In-place resize by kubelet version, policy and gate, as docs/kubernetes-versions.md tells it."""

from dataclasses import replace

import pytest

from extender.kubelet.admission import admit
from extender.kubelet.resize import ResizeResult, resize
from extender.kubelet.resolve import resolve
from extender.replay.pod import Pod
from extender.samples.nodes import SampleNode
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, sample

FITS, DEFERRED, INFEASIBLE, NOT_SUPPORTED = (
    ResizeResult.FITS,
    ResizeResult.DEFERRED,
    ResizeResult.INFEASIBLE,
    ResizeResult.NOT_SUPPORTED,
)
SCALING = {"InPlacePodVerticalScaling": True}
ALPHA = {
    "InPlacePodVerticalScaling": True,
    "InPlacePodVerticalScalingExclusiveCPUs": True,
    "InPlacePodVerticalScalingExclusiveMemory": True,
}


def _outcome(node: SampleNode, before: Pod, cpu: int, memory: str, qos: str = "Guaranteed") -> ResizeResult:
    request = resolve(before, node.kubelet.rules)
    state = admit(node.kubelet, node.state, request).state
    document = pod_of(cpu, memory)
    document["status"]["qosClass"] = qos
    return resize(node.kubelet, state, before, replace(pod_from_json(document), uid=before.uid)).result


@pytest.mark.parametrize(
    ("version", "gates", "policies", "cpu", "memory", "expected"),
    [
        ("v1.31.0", {}, ("static", "Static"), 6, "1Gi", NOT_SUPPORTED),
        ("v1.31.0", SCALING, ("none", "None"), 6, "1Gi", FITS),
        ("v1.32.0", SCALING, ("static", "None"), 4, "2Gi", INFEASIBLE),
        ("v1.33.0", {}, ("none", "None"), 6, "1Gi", FITS),
        ("v1.33.0", {}, ("static", "None"), 4, "2Gi", INFEASIBLE),
        ("v1.33.0", {}, ("none", "Static"), 6, "1Gi", INFEASIBLE),
        ("v1.34.0", {}, ("static", "None"), 4, "2Gi", FITS),
        ("v1.34.0", {}, ("static", "None"), 6, "1Gi", INFEASIBLE),
        ("v1.36.0", {}, ("none", "Static"), 6, "1Gi", FITS),
        ("v1.36.0", {}, ("none", "Static"), 4, "2Gi", INFEASIBLE),
        ("v1.36.0", ALPHA, ("static", "Static"), 6, "1Gi", DEFERRED),
        ("v1.37.0", {}, ("static", "Static"), 6, "1Gi", INFEASIBLE),
        ("v1.37.0", ALPHA, ("static", "Static"), 6, "1Gi", FITS),
    ],
)
def test_a_guaranteed_pod(
    version: str, gates: dict[str, bool], policies: tuple[str, str], cpu: int, memory: str, expected: ResizeResult
) -> None:
    node = sample(
        version=version,
        featureGates=gates,
        cpuManagerPolicy=policies[0],
        memoryManagerPolicy=policies[1],
    )
    assert _outcome(node, pod_from_json(pod_of(4, "1Gi")), cpu, memory) is expected


def test_a_burstable_pod_is_resized_under_any_policy() -> None:
    document = pod_of(4, "1Gi")
    document["status"]["qosClass"] = "Burstable"
    assert _outcome(sample(version="v1.34.0"), pod_from_json(document), 6, "2Gi", "Burstable") is FITS
