"""From a report to what the cluster keeps of a node."""

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from sys import intern
from typing import Final

import msgspec
import orjson

from extender.cluster.ledger import NO_PODS
from extender.cluster.node import Observation
from extender.wire.reports import ReadReport

_ENCODER: Final = msgspec.json.Encoder()
"""msgspec's encoder takes a third of orjson's time, and a tenth of pydantic's."""
_ZLIB: Final = (1, zlib.DEFLATED, 12, 5)
"""The fastest level, whose result has a fifth of the size. With the default window of 32 kB and its tables, to allocate
them takes 50 microseconds for each report, five times as long as to compress 24 pods."""


class PackedFacts(Mapping[str, object]):
    """Facts whose long lists are compressed JSON: a few hundred bytes for a node instead of a few thousand.

    Each access to `pods` or `zones` parses them again, in about ten microseconds.
    """

    __slots__ = ("_packed", "_plain")
    _PACKED: Final = ("pods", "zones")

    def __init__(self, plain: Mapping[str, object], pods: bytes, zones: bytes) -> None:
        """*pods*, *zones*: JSON."""
        self._plain: Final = plain
        packer = zlib.compressobj(*_ZLIB)
        self._packed: Final = packer.compress(b"[%b,%b]" % (pods, zones)) + packer.flush()

    def __getitem__(self, key: str) -> object:
        if key not in self._PACKED:
            return self._plain[key]
        parts: list[object] = orjson.loads(zlib.decompress(self._packed))
        return parts[self._PACKED.index(key)]

    def __iter__(self) -> Iterator[str]:
        yield from self._plain
        yield from self._PACKED

    def __len__(self) -> int:
        return len(self._plain) + len(self._PACKED)


def report_facts(report: ReadReport) -> Mapping[str, object]:
    """The facts in *report*, as JSON. `pod_count`: how many `pods` there are, None if the node could not list them.

    `resource_policy`: the name of the NRI policy; None if the node has none, or it is not known. `pcie_roots`,
    `claimed_cpus`: JSON.
    """
    facts = report.facts
    return PackedFacts(
        {
            "kubelet_version": facts.kubelet_version and intern(facts.kubelet_version),
            "resource_policy": None if report.nri is None else intern(report.nri.policy),
            "pcie_roots": intern(_ENCODER.encode(facts.pcie_roots).decode()),
            "claimed_cpus": _ENCODER.encode(facts.claimed_cpus).decode(),
            "pod_count": None if facts.pods is None else len(facts.pods),
            "problems": msgspec.to_builtins(list(report.problems)),
        },
        _ENCODER.encode(facts.pods),
        _ENCODER.encode(facts.zones),
    )


def observation_of(report: ReadReport, body: bytes) -> Observation:
    """The observation in a report. *body*: the JSON that the report was read from."""
    facts = report.facts
    holders = NO_PODS if report.state is None else report.state.pod_uids
    same = {uid: uid for uid in holders}  # equal UIDs are one object
    pods = [(same.get(pod.uid, pod.uid), pod) for pod in facts.pods or () if pod.uid is not None]
    listed = frozenset(uid for uid, pod in pods if pod.counted or (pod.counted is None and pod.containers))
    left = report.not_counted
    is_whole = facts.pods is not None and len(pods) == len(facts.pods) and not report.is_starting
    served = facts.podresources
    pod_uids = None if facts.pods is None else frozenset(uid for uid, _ in pods)
    return Observation(
        node_name=facts.node_name,
        boot_id=intern(facts.boot_id),
        sequence=facts.sequence,
        digest=hashlib.sha256(body).hexdigest(),
        observed_at=facts.observed_at,
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
        kubelet_seconds=max(0.0, facts.observed_at - served.since) if served else None,
        kubelet_certain=served is not None and served.certain,
        kubelet_digest=report.kubelet_digest,
        nri_config=None if report.nri is None else report.nri.config,
        facts=report_facts(report),
    )
