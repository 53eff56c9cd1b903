"""Reads and checks NodeReports, and converts them to replay values.

Rules of this file
- A report with a value that none of its kind can have is refused as a whole (`WireError`), so that the last good one
  stays. What its state files hold is never a reason to refuse it (`reported_state`).
- A report with missing parts is accepted, and nothing is guessed. Without a machine, a kubelet configuration or a known
  kubelet version no verdict is possible (`kubelet` None). A manager whose state file is missing, or was written under a
  policy other than the configured one, is `hidden`: only pods that need nothing from it get a verdict. Each gap is
  listed in `problems`.
- A report larger than that of any real node is read as far as possible. The node is then unknown, and `problems` says
  what was too large.
- A version that is missing in the report is taken from the Node object, which the kubelet itself writes.
- Resources of pods that the kubelet does not count stay in `state`. Whether those pods are gone is decided where the
  pod watch is known (`cluster.pod_tracker`).
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec
import orjson
from pydantic import TypeAdapter

from extender.kubelet.budget import Budget, BudgetError
from extender.kubelet.config import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.startup import start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider
from extender.replay.creation import NriRuntime
from extender.wire.errors import CapError, WireError, shown
from extender.wire.large_reports import MAX_PROBLEMS, cut_down
from extender.wire.nri_nodes import UnknownPolicyError, policy_and_grants
from extender.wire.nri_reports import FIELD as NRI_FIELD
from extender.wire.nri_reports import NriFacts, read_nri, without_unknown_version
from extender.wire.problems import problem
from extender.wire.reported_state import NOTHING_HIDDEN, observed_state
from extender.wire.scenarios import Devices, devices_from_json, kubelet_config_from_json, machine_from_json
from extender.wire.switches import check_switches
from extender.wire.validation import Document, load_json, parse_json, parse_object, parsed
from node_exporter.report import (
    SCHEMA_VERSION,
    Heartbeat,
    NodeReport,
    PodResourcesService,
    Problem,
    ReportedPod,
    Zone,
)

_NODE_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z", re.ASCII)
FIRST_STEPS: Final = 500_000
"""Steps for the choice of the reserved CPUs."""
MAX_PODS: Final = 10_000
"""Limit on the pods of one node. Kubelets are designed for a few hundred."""
FIRST_LIST_SECONDS: Final = 10.0
"""How long after its start a kubelet may lack its first list of pods. Until then podresources lists none of them,
though they run. The list arrives within a second or two unless the API server is slow."""
NO_SWITCHES: Final[Mapping[str, bool]] = {}


class _Header(Document):
    schema_version: int


_HEADER: Final = TypeAdapter(_Header)
REPORT: Final = TypeAdapter(NodeReport)
"""Validates the published contract, starting with the types."""
_QUICK: Final = msgspec.json.Decoder(NodeReport)
"""Reads reports as `REPORT` does, in a fifth of the time. It may refuse some that `REPORT` takes."""
HEARTBEAT: Final = TypeAdapter(Heartbeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """A consistent report.

    `pods` None: the node could not list them. `version_from_node`: the kubelet version in the Node object, "" if
    unknown; None if the report has the version. `podresources`: whether the kubelet listened, and since when by the
    node's clock (see the contract); None: unknown. `is_starting`: the list of pods is incomplete, because the kubelet
    started less than `FIRST_LIST_SECONDS` before. `kubelet_digest`: the digest of all that describes the kubelet, ""
    without one. `nri`: None if the node does not run the NRI topology-aware policy. See the rules of this file for the
    other fields.
    """

    node_name: str
    boot_id: str
    sequence: int
    observed_at: float
    kubelet_version: str | None
    kubelet: Kubelet | None
    state: ManagerState | None
    hidden: frozenset[Provider]
    contradictory: bool
    pods: tuple[ReportedPod, ...] | None
    zones: tuple[Zone, ...]
    problems: tuple[Problem, ...]
    version_from_node: str | None = None
    podresources: PodResourcesService | None = None
    is_starting: bool = False
    kubelet_digest: str = ""
    nri: NriFacts | None = None

    @property
    def not_counted(self) -> frozenset[str]:
        """UIDs of the pods that the kubelet certainly does not count."""
        return frozenset(pod.uid for pod in self.pods or () if pod.counted is False and pod.uid is not None)


_NRI_PARTS: Final = ("machine", "config", "config_status", "policy", "release", "grant_fields", "doubts")
"""The parts of the section `nri` from which the policy is made."""


class NewKubeletError(Exception):
    """No earlier report has described the kubelet."""


def read_report(
    body: bytes,
    version_of: Callable[[str], str] = lambda _name: "",
    *,
    known: Callable[[str], Kubelet | None] = lambda _digest: None,
    switches: Mapping[str, bool] = NO_SWITCHES,
    starts: bool = True,
) -> ReadReport:
    """Read and check the body of a report.

    *version_of* returns the kubelet version in a node's API object, "" if unknown. It is used if the report has no
    version. *known*: the kubelet of an earlier report by its digest; it saves work, and changes nothing. *switches*:
    rules of the replay for every node of the cluster; the report's own `rules` take precedence. *starts*: whether to
    start a kubelet that *known* does not have, which takes long.

    Raises:
        NewKubeletError: *starts* is False, and *known* does not have the kubelet.
        WireError: not JSON, an unknown schema version, a wrong type, a quantity that does not parse, or parts that
            contradict each other.
    """
    body, left_out = cut_down(body)
    document = load_json(body)
    version = parse_object(_HEADER, document, "").schema_version
    if version != SCHEMA_VERSION:
        raise WireError("schema_version", f"{version} is unknown; this extender reads version {SCHEMA_VERSION}")
    body, unknown_nri = without_unknown_version(document, body)
    facts = facts_of(body)
    assert isinstance(document, dict)
    _check_envelope(facts)
    version_from_node = None if facts.kubelet_version else version_of(facts.node_name)
    if version_from_node:
        facts = replace(facts, kubelet_version=version_from_node)
    if switches:
        facts = replace(facts, rules={**switches, **facts.rules})
    problems = _problems(facts, version_from_node, left_out)
    if unknown_nri:
        problems.append(problem(NRI_FIELD, f"left out: {unknown_nri}"))
    is_starting = _is_starting(facts)
    if is_starting:
        facts = replace(facts, pods=_in_doubt(facts.pods))
    node = _read_node(facts, document, problems, known, is_whole=not left_out_counts(left_out), starts=starts)
    if unknown_nri or any(field == NRI_FIELD for field, _ in left_out):
        node = node._replace(hidden=node.hidden | {Provider.RUNTIME})
    return ReadReport(
        node_name=facts.node_name,
        boot_id=facts.boot_id,
        sequence=facts.sequence,
        observed_at=facts.observed_at,
        kubelet_version=facts.kubelet_version,
        kubelet=node.kubelet,
        state=node.state,
        hidden=node.hidden,
        contradictory=node.contradictory,
        pods=None if facts.pods is None else tuple(facts.pods),
        zones=tuple(facts.zones),
        problems=tuple(problems),
        version_from_node=version_from_node,
        podresources=facts.podresources,
        is_starting=is_starting,
        kubelet_digest=node.kubelet_digest,
        nri=node.nri,
    )


def facts_of(body: bytes) -> NodeReport:
    """The values of a report, where `load_json` has accepted the text. Raises WireError, which names the field.

    They are not made from what `load_json` returns: it has integers beyond 64 bits as floats.
    """
    try:
        return _QUICK.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return parsed(REPORT, body)


class _ReplayFacts(NamedTuple):
    """What a replay needs of the report. `kubelet` and `state` None: no verdict is possible."""

    kubelet: Kubelet | None = None
    kubelet_digest: str = ""
    state: ManagerState | None = None
    hidden: frozenset[Provider] = NOTHING_HIDDEN
    contradictory: bool = False
    nri: NriFacts | None = None


def _read_node(
    facts: NodeReport,
    document: Mapping[str, object],
    problems: list[Problem],
    known: Callable[[str], Kubelet | None],
    *,
    is_whole: bool,
    starts: bool,
) -> _ReplayFacts:
    """The kubelet, its state, and the facts of the NRI policy; adds to *problems*.

    *is_whole*: no part was left out that a verdict rests on. Raises WireError.
    """
    nri: NriFacts | None = None
    try:
        _check_sizes(facts)
        digest = _kubelet_digest(facts, document)
        same = known(digest) if digest else None
        if digest and same is None and not starts:
            raise NewKubeletError
        if facts.nri is not None:
            nri, nri_problems = read_nri(facts.nri)
            problems += nri_problems
        kubelet, devices = _read_fixed(facts, document, problems, same)
        if kubelet is None:
            return _ReplayFacts(nri=nri)
        if not is_whole:
            problems.append(problem("", "a part of the report is too large: no verdict is possible", "error"))
            return _ReplayFacts(nri=nri)
        observed = observed_state(facts, kubelet, devices, problems)
    except CapError as cap:
        problems.append(problem(cap.field, f"too large for a node: {cap.reason}: no verdict is possible", "error"))
        return _ReplayFacts(nri=nri)
    node = _ReplayFacts(kubelet, digest, *observed, nri)
    return node if facts.nri is None else _with_policy(node, problems)


def _with_policy(node: _ReplayFacts, problems: list[Problem]) -> _ReplayFacts:
    """*node* with the NRI policy and its grants; the policy is hidden if a part of that is not known."""
    assert node.kubelet is not None
    assert node.state is not None
    if node.nri is None:
        return node._replace(hidden=node.hidden | {Provider.RUNTIME})
    known = node.kubelet.runtime if isinstance(node.kubelet.runtime, NriRuntime) else None
    try:
        policy, granted = policy_and_grants(node.nri, known)
    except UnknownPolicyError as unknown:
        problems.append(problem(unknown.path, f"{unknown.reason}: no verdict of the NRI policy"))
        return node._replace(hidden=node.hidden | {Provider.RUNTIME})
    return node._replace(kubelet=replace(node.kubelet, runtime=policy), state=replace(node.state, runtime=granted))


def _problems(facts: NodeReport, version_from_node: str | None, left_out: list[tuple[str, str]]) -> list[Problem]:
    """The first `MAX_PROBLEMS` problems of the report, and what was left out of it. Adds to *left_out*."""
    problems = list(facts.problems)
    if version_from_node:
        problems.append(problem("kubelet_version", f"{version_from_node} is from the Node object", "info"))
    if len(problems) > MAX_PROBLEMS:
        left_out.append(
            ("problems", f"{len(problems)} problems; {len(problems) - MAX_PROBLEMS} of them are not listed")
        )
        del problems[MAX_PROBLEMS:]
    return problems + [problem(field, f"too large for a node: {reason}", "error") for field, reason in left_out]


def _is_starting(facts: NodeReport) -> bool:
    """Whether the kubelet may not have had its first list of pods when the report was made."""
    served = facts.podresources
    return served is not None and served.available and facts.observed_at - served.since < FIRST_LIST_SECONDS


def _in_doubt(pods: Sequence[ReportedPod] | None) -> list[ReportedPod] | None:
    """Pods of a starting kubelet: an unlisted one may still run, and is admitted again with the first list."""
    if pods is None:
        return None
    return [replace(pod, counted=None) if pod.counted is False else pod for pod in pods]


def read_heartbeat(body: bytes) -> Heartbeat:
    """Read the body of a heartbeat. Raises WireError."""
    return parse_json(HEARTBEAT, body)


def left_out_counts(left_out: Sequence[tuple[str, str]]) -> bool:
    """Whether something is left out on which verdicts depend."""
    return any(field not in ("problems", "zones", NRI_FIELD) for field, _ in left_out)


def _check_sizes(facts: NodeReport) -> None:
    if facts.pods is not None and len(facts.pods) > MAX_PODS:
        raise CapError("pods", f"{len(facts.pods)} pods, more than {MAX_PODS}")


def _check_envelope(facts: NodeReport) -> None:
    if not _NODE_NAME.match(facts.node_name):
        raise WireError("node_name", f"{shown(facts.node_name)} is not a name that a Kubernetes node can have")
    if not 0 <= facts.sequence < 2**63:
        raise WireError("sequence", f"{facts.sequence} is outside 0..2^63-1")
    if not 0 <= facts.observed_at < 2**53:
        raise WireError("observed_at", f"{facts.observed_at} is not a time in Unix seconds")
    if facts.podresources is not None and not 0 <= facts.podresources.since < 2**53:
        raise WireError("podresources.since", f"{facts.podresources.since} is not a time in Unix seconds")


def _kubelet_digest(facts: NodeReport, document: Mapping[str, object]) -> str:
    """SHA-256 of everything from which `_read_fixed` builds a kubelet. "" if a part of it is missing."""
    if not ((facts.machine.cpus or facts.machine.numa) and facts.kubelet and facts.kubelet_version):
        return ""
    section = document.get(NRI_FIELD)
    nri = [section.get(name) for name in _NRI_PARTS] if isinstance(section, dict) else None
    try:
        parts = orjson.dumps([facts.kubelet_version, dict(facts.rules), document["machine"], document["kubelet"], nri])
    except orjson.JSONEncodeError:  # unknown fields can be nested too deep to be written
        return ""
    return hashlib.sha256(parts).hexdigest()


def _read_fixed(
    facts: NodeReport, document: Mapping[str, object], problems: list[Problem], known: Kubelet | None
) -> tuple[Kubelet | None, Devices]:
    """The running kubelet, and the devices. None if parts are missing or no kubelet runs with them.

    Every available part is read, so that a missing part never hides an error in another. *known*: the kubelet that the
    same parts described before.
    """
    if known is not None:
        return known, devices_from_json(document["devices"], "devices") if facts.devices else {}
    has_machine = bool(facts.machine.cpus or facts.machine.numa)
    machine = machine_from_json(document["machine"], "machine") if has_machine else None
    version = facts.kubelet_version or ""
    check_switches(facts.rules)
    config = (
        kubelet_config_from_json(version, document["kubelet"], "kubelet", rules=dict(facts.rules))
        if facts.kubelet
        else None
    )
    devices = devices_from_json(document["devices"], "devices") if facts.devices else {}
    if machine is None or config is None or not version:
        for name, part in (("machine", machine), ("kubelet", config), ("kubelet_version", version)):
            if not part:
                problems.append(problem(name, "unknown: no verdict is possible"))
        return None, devices
    try:
        return start(machine, config, Budget(FIRST_STEPS)), devices
    except KubeletConfigError as error:
        problems.append(problem(f"kubelet.{error.field}", f"no kubelet starts with this: {error.reason}"))
        return None, devices
    except BudgetError as error:
        problems.append(problem("kubelet.reservation", f"the choice of the reserved CPUs: {error}", "error"))
        return None, devices
