"""From a report to what the cluster keeps of a node."""

import hashlib
from sys import intern

from extender.cluster.ledger import NO_PODS
from extender.cluster.node import Observation
from extender.wire.report_facts import report_facts
from extender.wire.reports import ReadReport


def observation_of(report: ReadReport, body: bytes) -> Observation:
    """The observation that a report makes; *body* is the JSON it was read from."""
    holders = NO_PODS if report.state is None else report.state.pod_uids
    same = {uid: uid for uid in holders}  # equal UIDs are one object
    pods = [(same.get(pod.uid, pod.uid), pod) for pod in report.pods or () if pod.uid is not None]
    listed = frozenset(uid for uid, pod in pods if pod.counted or (pod.counted is None and pod.containers))
    left = report.not_counted
    is_whole = report.pods is not None and len(pods) == len(report.pods) and not report.is_starting
    served = report.podresources
    pod_uids = None if report.pods is None else frozenset(uid for uid, _ in pods)
    return Observation(
        node_name=report.node_name,
        boot_id=intern(report.boot_id),
        sequence=report.sequence,
        digest=hashlib.sha256(body).hexdigest(),
        observed_at=report.observed_at,
        kubelet=report.kubelet,
        state=report.state,
        hidden=report.hidden,
        contradictory=report.contradictory,
        pod_uids=pod_uids,
        listed=pod_uids if pod_uids == listed else listed or NO_PODS,
        left=left or NO_PODS,
        unlisted=(is_whole and holders - listed - left) or NO_PODS,
        version_from_node=report.version_from_node,
        kubelet_listens=served.available if served else None,
        kubelet_seconds=max(0.0, report.observed_at - served.since) if served else None,
        kubelet_digest=report.kubelet_digest,
        nri_config=None if report.nri is None else report.nri.config,
        facts=report_facts(report),
    )
