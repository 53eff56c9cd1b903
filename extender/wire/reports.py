"""Reads and checks NodeReports, and converts them to replay values.

Rules of this file
- A report with a value that none of its kind can have is refused as a whole (`WireError`), so that the last good one
  stays. What its state files hold is never a reason to refuse it (`state_files`).
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

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError, KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.startup import start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider
from extender.replay.creation import NriRuntime
from extender.wire.errors import CapError, WireError, shown
from extender.wire.nri_nodes import UnknownPolicyError, policy_and_grants
from extender.wire.nri_reports import NriFacts, read_nri
from extender.wire.parsing import NO_SWITCHES, check_switches, decoded
from extender.wire.report_parts import MAX_PROBLEMS, NRI, ReportParts, problem
from extender.wire.scenarios import devices_of, kubelet_config_of, machine_of
from extender.wire.state_files import NOTHING_HIDDEN, observed_state
from node_exporter.report import Heartbeat, NodeReport, PodResourcesService, Problem, ReportedPod, Zone

_NODE_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z", re.ASCII)
FIRST_STEPS: Final = 500_000
"""Steps for the choice of the reserved CPUs."""
MAX_PODS: Final = 10_000
"""Limit on the pods of one node. Kubelets are designed for a few hundred."""
FIRST_LIST_SECONDS: Final = 10.0
"""How long after its start a kubelet may lack its first list of pods. Until then podresources lists none of them,
though they run. The list arrives within a second or two unless the API server is slow."""
REPORT, HEARTBEAT = NodeReport, Heartbeat
"""The bodies that exporters send."""
_HEARTBEAT: Final = msgspec.json.Decoder(Heartbeat)


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
    parts = ReportParts(body)
    unknown_nri = parts.leave_out_unknown_nri()
    facts = parts.facts()
    _check_envelope(facts)
    version_from_node = None if facts.kubelet_version else version_of(facts.node_name)
    is_starting = _is_starting(facts)
    facts = replace(
        facts,
        kubelet_version=version_from_node or facts.kubelet_version,
        rules={**switches, **facts.rules},
        pods=_in_doubt(facts.pods) if is_starting else facts.pods,
    )
    problems = _problems(facts, version_from_node, unknown_nri, parts.left_out)
    node = _read_node(facts, parts, problems, known, starts=starts)
    if unknown_nri or any(field == NRI for field, _ in parts.left_out):
        node = node._replace(hidden=node.hidden | {Provider.RUNTIME})
    return ReadReport(
        node_name=facts.node_name,
        boot_id=facts.boot_id,
        sequence=facts.sequence,
        observed_at=facts.observed_at,
        kubelet_version=facts.kubelet_version,
        pods=None if facts.pods is None else tuple(facts.pods),
        zones=tuple(facts.zones),
        problems=tuple(problems),
        version_from_node=version_from_node,
        podresources=facts.podresources,
        is_starting=is_starting,
        **node._asdict(),
    )


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
    parts: ReportParts,
    problems: list[Problem],
    known: Callable[[str], Kubelet | None],
    *,
    starts: bool,
) -> _ReplayFacts:
    """The kubelet, its state, and the facts of the NRI policy; adds to *problems*. Raises WireError."""
    nri: NriFacts | None = None
    try:
        _check_sizes(facts)
        digest = parts.kubelet_digest(facts.kubelet_version or "", facts.rules)
        same = known(digest)
        if same is None and not starts:
            raise NewKubeletError
        if facts.nri is not None:
            runtime = same.runtime if same and isinstance(same.runtime, NriRuntime) else None
            nri, nri_problems = read_nri(facts.nri, runtime)
            problems += nri_problems
        devices = devices_of(facts.devices or {})
        kubelet = same or _read_kubelet(facts, parts, problems)
        if kubelet is None:
            return _ReplayFacts(nri=nri)
        if left_out_counts(parts.left_out):
            problems.append(problem("", "a part of the report is too large: no verdict is possible", "error"))
            return _ReplayFacts(nri=nri)
        observed = observed_state(facts, kubelet, devices, problems)
    except CapError as cap:
        problems.append(problem(cap.field, f"too large for a node: {cap.reason}: no verdict is possible", "error"))
        return _ReplayFacts(nri=nri)
    node = _ReplayFacts(kubelet, digest, *observed, nri)
    return node if facts.nri is None else _with_policy(node, problems)


def _read_kubelet(facts: NodeReport, parts: ReportParts, problems: list[Problem]) -> Kubelet | None:
    """The running kubelet. None if parts are missing or no kubelet runs with them.

    Every available part is read, so that a missing part never hides an error in another.
    """
    check_switches(facts.rules)
    reported, configured = parts.machine(), parts.kubelet()
    version = facts.kubelet_version or ""
    machine = machine_of(reported) if reported.cpus or reported.numa else None
    config = None if configured is None else kubelet_config_of(version, configured, rules=facts.rules)
    if machine is None or config is None or not version:
        for name, part in (("machine", machine), ("kubelet", config), ("kubelet_version", version)):
            if not part:
                problems.append(problem(name, "unknown: no verdict is possible"))
        return None
    try:
        return start(machine, config, Budget(FIRST_STEPS))
    except KubeletConfigError as error:
        problems.append(problem(f"kubelet.{error.field}", f"no kubelet starts with this: {error.reason}"))
    except BudgetError as error:
        problems.append(problem("kubelet.reservation", f"the choice of the reserved CPUs: {error}", "error"))
    return None


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


def _problems(
    facts: NodeReport, version_from_node: str | None, unknown_nri: str, left_out: list[tuple[str, str]]
) -> list[Problem]:
    """The first `MAX_PROBLEMS` problems of the report, and what was left out of it. Adds to *left_out*.

    *unknown_nri*: why the section of the NRI policy was left out; "": it was not.
    """
    problems = list(facts.problems)
    if version_from_node:
        problems.append(problem("kubelet_version", f"{version_from_node} is from the Node object", "info"))
    if len(problems) > MAX_PROBLEMS:
        left_out.append(
            ("problems", f"{len(problems)} problems; {len(problems) - MAX_PROBLEMS} of them are not listed")
        )
        del problems[MAX_PROBLEMS:]
    problems += [problem(field, f"too large for a node: {reason}", "error") for field, reason in left_out]
    return [*problems, problem(NRI, f"left out: {unknown_nri}")] if unknown_nri else problems


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
    return decoded(_HEARTBEAT, body)


def left_out_counts(left_out: Sequence[tuple[str, str]]) -> bool:
    """Whether something is left out on which verdicts depend."""
    return any(field not in ("problems", "zones", NRI) for field, _ in left_out)


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
