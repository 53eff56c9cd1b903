"""The feature gates with which a kubelet does not start, against a real kubelet 1.36, where there is one.

The kubelet gets a configuration with the gate and with an invalid `maxPods`, so that it ends in any case.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from extender.wire.known_fields import KNOWN_GATES, start_fault
from tests.live.binaries import MissingError, find

FAULT = re.compile(
    r"cannot set feature gate \w+ to \w+, feature is locked to \w+|unrecognized feature gate: \w+|depends on"
)
NOT_KNOWN = {"CPUCFSQuotaPeriod", "RuntimeClassInImageCriAPI"}
"""Gates of other versions of which we do not know when they came and went."""
NOT_ALONE = {
    "APIServerIdentity", "AtomicFIFO", "ClusterTrustBundleProjection", "DRAWorkloadResourceClaims", "GangScheduling",
    "MatchLabelKeysInPodTopologySpread", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption",
    "WorkloadWithJob",
}  # fmt: skip
"""Gates of other programs, and some that need others that are off by default: we say nothing of these."""


def _kubelet() -> Path | None:
    try:
        (program,) = find(kubelet=True).kubelets
    except MissingError:
        return None
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return program if "v1.36." in told else None


def _said(program: Path, config: Path, gate: str, *, is_on: bool) -> str | None:
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: -1\n"
        f"featureGates: {{{gate}: {str(is_on).lower()}}}\n"
    )
    done = subprocess.run([program, f"--config={config}"], capture_output=True, text=True, check=False, timeout=60)
    found = FAULT.search(done.stderr)
    assert found or "maxPods" in done.stderr, done.stderr
    return None if found is None else found[0]


def _asked(others: int) -> Iterator[tuple[str, bool]]:
    """Every gate with which no kubelet 1.36 starts, as we say, and some of the others."""
    pairs = [(gate, is_on) for gate in sorted(KNOWN_GATES - NOT_KNOWN - NOT_ALONE) for is_on in (False, True)]
    faulty = {pair for pair in pairs if start_fault(pair[0], 36, {pair[0]: pair[1]})}
    yield from sorted(faulty)
    yield from Random(7).sample([pair for pair in pairs if pair not in faulty], others)


def test_a_real_kubelet_starts_with_a_gate_where_we_say_so(tmp_path: Path) -> None:
    """Seen red: 68 gates that 1.36 has locked, and gates that others need, passed in silence."""
    program = _kubelet()
    if program is None:
        pytest.skip("no kubelet 1.36 in KUBEBUILDER_ASSETS or on PATH")
    wrong, faults = dict[tuple[str, bool], str | None](), 0
    for gate, is_on in _asked(40):
        said, ours = _said(program, tmp_path / "kubelet.yaml", gate, is_on=is_on), start_fault(gate, 36, {gate: is_on})
        faults += said is not None
        if (said or "") not in (ours or "") or bool(said) != bool(ours):
            wrong[gate, is_on] = said

    assert wrong == {}
    assert faults > 60
