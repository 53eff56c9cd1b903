"""From a report to what the cluster keeps of a node.

A profile stands for nodes of a kind until the first node of that kind reports. It is a file with the labels that such
nodes have and the report of one of them: `{"labels": {LABEL: VALUE}, "report": {…}}`, as JSON or YAML.
`numa-node-exporter report` prints such a report.
"""

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Final

import msgspec
import orjson

from extender.cluster.ledger import NO_PODS
from extender.cluster.node import Observation
from extender.wire.documents import read_documents
from extender.wire.errors import WireError
from extender.wire.parsing import object_at, text_at
from extender.wire.reports import ReadReport, read_report

_ENCODER: Final = msgspec.json.Encoder()
"""msgspec's encoder takes a third of orjson's time, and a tenth of pydantic's."""
_LEVEL: Final = 1
"""The fastest level of zlib: the result has a fifth of the size."""


class PackedFacts(Mapping[str, object]):
    """Facts whose long lists are compressed JSON: a few hundred bytes for a node instead of a few thousand.

    Each access to `pods` or `zones` parses them again, in about ten microseconds.
    """

    __slots__ = ("_packed", "_plain")
    _PACKED: Final = ("pods", "zones")

    def __init__(self, plain: Mapping[str, object], pods: bytes, zones: bytes) -> None:
        """*pods*, *zones*: JSON."""
        self._plain: Final = plain
        self._packed: Final = zlib.compress(b"[%b,%b]" % (pods, zones), _LEVEL)

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

    `resource_policy`: the name of the NRI policy; None if the node has none, or it is not known. `pcie_roots`: JSON.
    """
    facts = report.facts
    return PackedFacts(
        {
            "kubelet_version": facts.kubelet_version and intern(facts.kubelet_version),
            "resource_policy": None if report.nri is None else intern(report.nri.policy),
            "pcie_roots": intern(_ENCODER.encode(facts.pcie_roots).decode()),
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
        kubelet_digest=report.kubelet_digest,
        nri_config=None if report.nri is None else report.nri.config,
        facts=report_facts(report),
    )


SUFFIXES: Final = frozenset({".json", ".yaml", ".yml"})
MAX_PROFILES: Final = 100
MAX_BYTES: Final = 4 * 1024 * 1024


class ProfileError(ValueError):
    """A profile cannot be used. The message names the file, the field and the reason."""


@dataclass(frozen=True, slots=True)
class NodeProfile:
    """`labels`: a node needs all of them. `observed`: has a kubelet and a state."""

    name: str
    labels: Mapping[str, str]
    observed: Observation


def read_profiles(directory: Path) -> tuple[NodeProfile, ...]:
    """The profiles in *directory*, in the order of their file names. Files that start with a dot are skipped.

    Raises:
        ProfileError: the directory or a profile cannot be used.
    """
    try:
        paths = sorted(p for p in directory.iterdir() if p.suffix in SUFFIXES and not p.name.startswith("."))
        if len(paths) > MAX_PROFILES:
            raise ProfileError(f"{directory}: more than {MAX_PROFILES} profiles")
        return tuple(_read(path) for path in paths)
    except OSError as error:
        raise ProfileError(f"{error.filename}: {error.strerror}") from error


def _read(path: Path) -> NodeProfile:
    if path.stat().st_size > MAX_BYTES:
        raise ProfileError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    try:
        documents = read_documents(path.read_bytes(), "")
        if len(documents) != 1:
            raise ProfileError(f"{path}: {len(documents)} documents, expected one")
        document = object_at(documents[0], "profile")
        labels = {
            name: text_at(value, f"labels.{name}")
            for name, value in object_at(document.get("labels"), "labels").items()
        }
        body = orjson.dumps(object_at(document.get("report"), "report"))
    except WireError as error:
        raise ProfileError(f"{path}: {error}") from error
    if not labels:
        raise ProfileError(f"{path}: labels: a profile without labels would stand for every node")
    return NodeProfile(path.name, labels, _observed(path, body))


def _observed(path: Path, body: bytes) -> Observation:
    """What the report of a profile says. *body*: the report, as JSON."""
    try:
        report = read_report(body)
    except WireError as error:
        raise ProfileError(f"{path}: {error.below('report')}") from error
    observed = observation_of(report, body)
    if observed.kubelet is not None and observed.kubelet.runtime is not None:
        raise ProfileError(f"{path}: report: a node with the NRI topology-aware policy is no model for others")
    if not observed.is_replayable:
        first = next((each for each in report.problems if each.severity != "info"), None)
        why = "" if first is None else f": {first.path}: {first.reason}"
        raise ProfileError(f"{path}: report: it is not enough for a verdict{why}")
    return observed
