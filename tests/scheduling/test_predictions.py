"""What the audit compares, and how it says it."""

from dataclasses import replace

import pytest

from extender.cluster.events import AdmissionResult, SettledPod
from extender.kubelet.admission import admit, release_pods
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted
from extender.scheduling.records.predictions import MAX_RECENT, Audit, Result
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, sample

GPU = "vendor.example/gpu"
NODE = sample(devices={GPU: [0, 1, 1]})


def _settled(*, complete: bool) -> SettledPod:
    """A pod that was predicted on an empty node, and that its kubelet placed beside another one."""
    pod, other = (pod_from_json(pod_of(4, "2Gi", name=name, devices={GPU: 1})) for name in ("p", "other"))
    requests = [resolve(each, NODE.kubelet.rules) for each in (other, pod)]
    verdict = admit(NODE.kubelet, NODE.state, requests[1]).verdict
    state = NODE.state
    for request in requests:
        state = admit(NODE.kubelet, state, request).state
    return SettledPod(
        node_name="n",
        pod=pod,
        kubelet=NODE.kubelet,
        result=AdmissionResult.ADMITTED,
        verdicts=(verdict,),
        complete=complete,
        state=release_pods(state, (other.uid,)),
    )


def test_a_disagreement_is_told_in_words() -> None:
    audit = Audit(clock=lambda: 0.0, window=20, distrust_after=0)

    assert audit.take(_settled(complete=True)).result is Result.PLACEMENT

    (told,) = audit.recent
    assert told.predicted == f"app: CPUs 1-2,17-18, 2 GiB memory on NUMA 0, 1 {GPU} on NUMA 0"
    assert told.reported == f"app: CPUs 8-9,24-25, 2 GiB memory on NUMA 1, 1 {GPU} on NUMA 1"


def test_a_placement_is_no_evidence_where_not_all_ways_were_followed() -> None:
    audit = Audit(clock=lambda: 0.0, window=20, distrust_after=0)

    assert audit.take(_settled(complete=False)).result is Result.UNSETTLED
    assert not audit.recent


@pytest.mark.parametrize("complete", [True, False])
def test_a_placement_as_predicted_agrees(complete: bool) -> None:  # noqa: FBT001
    settled = _settled(complete=complete)
    request = resolve(settled.pod, NODE.kubelet.rules)
    outcome = admit(NODE.kubelet, NODE.state, request)
    assert isinstance(outcome.verdict, Admitted)
    audit = Audit(clock=lambda: 0.0, window=20, distrust_after=0)

    assert audit.take(replace(settled, state=outcome.state)).result is Result.AGREED


def test_disagreements_of_one_namespace_displace_none_of_others() -> None:
    audit = Audit(clock=lambda: 0.0, window=20, distrust_after=0)
    settled = _settled(complete=True)
    audit.take(replace(settled, pod=replace(settled.pod, namespace="quiet")))

    for _ in range(MAX_RECENT + 5):
        audit.take(replace(settled, pod=replace(settled.pod, namespace="loud")))

    assert len(audit.recent) == MAX_RECENT
    assert audit.recent[0].namespace == "quiet"
