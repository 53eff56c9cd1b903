"""Reads the two bodies that exporters send: reports, which become replay values, and heartbeats.

Rules of this file
- A report with a value that none of its kind can have is refused as a whole (`WireError`), so that the last good one
  stays. What its state files hold is never a reason to refuse it (`state_files`).
- A report with missing parts is accepted, and nothing is guessed. Without a machine, a kubelet configuration or a known
  kubelet version no verdict is possible (`kubelet` None). A manager is `hidden` if its state file is missing, or was
  written under another policy than the configured one: then only pods that need nothing from it get a verdict. Each gap
  is listed in `problems`.
- A report larger than that of any real node is read as far as possible. The node is then unknown, and `problems` says
  what was too large.
- A version that is missing in the report is taken from the Node object, which the kubelet itself writes.
- Resources of pods that the kubelet does not count stay in `state`. Whether those pods are gone is decided where the
  pod watch is known (`cluster.pod_tracker`).
- The body is split into its fields before anything creates objects from them. A parser creates an object for every
  value, and holds the interpreter's lock meanwhile: two seconds for 16 MiB of `[]`. Here unknown fields are skipped and
  known ones stay bytes: 50 milliseconds at most. A part larger than that of any real node is left out, and `left_out`
  says so. The parts that describe the kubelet are read only if they differ from those of an earlier report.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final, get_type_hints

import msgspec
import orjson

from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError, KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.startup import start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider
from extender.replay.creation import NriRuntime
from extender.wire.errors import CapError, WireError, problem, shown
from extender.wire.machines import devices_of, kubelet_config_of, machine_of
from extender.wire.nri_reports import NRI, NriFacts, UnknownPolicyError, nri_policy, nri_state, read_nri
from extender.wire.parsing import NO_SWITCHES, check_switches, decoded, list_at
from extender.wire.state_files import NOTHING_HIDDEN, observed_state
from node_exporter import report

ROOTS: Final = "pcie_roots"
CLAIMED_CPUS: Final = "claimed_cpus"
NRI_VERSION: Final = 1
MAX_PROBLEMS: Final = 200
"""How many problems of one report are kept."""

_MIB: Final = 1 << 20
MAX_BYTES: Final[Mapping[str, int]] = {
    "machine": _MIB // 2,
    "kubelet": _MIB // 8,
    "devices": 3 * _MIB // 2,
    "state": _MIB,
    "pods": _MIB,
    "zones": _MIB,
    "problems": _MIB,
    "rules": _MIB // 8,
    NRI: _MIB,
    ROOTS: _MIB // 16,
    CLAIMED_CPUS: _MIB // 4,
}
"""8,192 CPUs are 200 kB, 16,384 devices 1 MB, a state file with 1,000 pods 300 kB. Any other field: `_MAX_OTHER`."""
_MAX_OTHER: Final = 64 << 10
_EMPTY: Final[Mapping[str, bytes]] = {
    "machine": b'{"cpus":[],"numa":[],"num_sockets":0}',
    "kubelet": b"null",
    "devices": b"null",
    "state": b"{}",
    "pods": b"null",
    "zones": b"[]",
    "problems": b"[]",
    "rules": b"{}",
    NRI: b"null",
    ROOTS: b"{}",
    CLAIMED_CPUS: b"{}",
}
_NRI_FIXED: Final = ("machine", "config", "config_status", "policy", "release", "grant_fields", "doubts")
"""The parts of the section `nri` from which the policy is made."""
_READ_LATER: Final = frozenset({"machine", "kubelet"})
_NO_MACHINE: Final = report.ReportedMachine(cpus=(), numa=(), num_sockets=0)


def _raw(name: str, names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(msgspec.defstruct(name, [(each, msgspec.Raw, msgspec.Raw()) for each in names]))


_FIELDS: Final = {field.name: field for field in fields(report.NodeReport)}
_DECODERS: Final = {name: msgspec.json.Decoder(kind) for name, kind in get_type_hints(report.NodeReport).items()}
_SPLIT: Final = _raw("ReportFields", tuple(_FIELDS))
_SPLIT_NRI: Final = _raw("NriFields", ("version", *_NRI_FIXED))


class ReportParts:
    """The fields of a report as JSON. `left_out`: (field, reason) of what is too large."""

    def __init__(self, body: bytes) -> None:
        """Split *body*.

        Raises:
            WireError: not JSON, not an object, or a field that identifies the report is too large.
        """
        self.left_out: Final[list[tuple[str, str]]] = []
        found = decoded(_SPLIT, body)
        self._parts: Final = {
            name: self._limited(name, value) for name in _FIELDS if (value := bytes(getattr(found, name)))
        }

    def _limited(self, name: str, value: bytes) -> bytes:
        """The part, or what stands for it if it is too large."""
        if len(value) <= MAX_BYTES.get(name, _MAX_OTHER):
            return value
        reason = f"{len(value)} bytes, more than {MAX_BYTES.get(name, _MAX_OTHER)}"
        if name not in _EMPTY:
            raise WireError(name, reason)
        self.left_out.append((name, reason))
        return _EMPTY[name]

    def read(self, name: str) -> Any:  # noqa: ANN401 - the type of the field in NodeReport
        """The value of one field. Raises WireError."""
        if name in self._parts:
            return decoded(_DECODERS[name], self._parts[name], name)
        field = _FIELDS[name]
        if field.default_factory is not MISSING:
            return field.default_factory()
        if field.default is MISSING or name == "schema_version":  # the exporter's default says nothing about a report
            raise WireError(name, "missing")
        return field.default

    def leave_out_unknown_nri(self) -> str:
        """Leave out a section of the NRI policy whose version is unknown. Returns why; "" if it is not left out."""
        try:
            version = bytes(_SPLIT_NRI.decode(self._parts.get(NRI, b"{}")).version) or b"%d" % NRI_VERSION
        except msgspec.DecodeError:
            return ""
        if version == b"%d" % NRI_VERSION:
            return ""
        del self._parts[NRI]
        return f"version {version.decode():.40} is not known; this extender reads version {NRI_VERSION}"

    def facts(self) -> report.NodeReport:
        """The report without `machine` and `kubelet`. Raises WireError, also if its schema version is unknown."""
        if (version := self.read("schema_version")) != report.SCHEMA_VERSION:
            raise WireError(
                "schema_version", f"{version} is unknown; this extender reads version {report.SCHEMA_VERSION}"
            )
        values = {name: self.read(name) for name in _FIELDS if name not in _READ_LATER}
        return report.NodeReport(machine=_NO_MACHINE, kubelet=None, **values)

    def kubelet_digest(self, version: str, rules: Mapping[str, bool]) -> str:
        """SHA-256 of all that describes the kubelet, with its *version* and its *rules*."""
        nri = self._parts.get(NRI, b"null")
        if nri.startswith(b"{"):
            section = decoded(_SPLIT_NRI, nri, NRI)
            nri = b"[%b]" % b",".join(bytes(getattr(section, name)) or b"null" for name in _NRI_FIXED)
        fixed = (self._parts.get(name, b"null") for name in ("machine", "kubelet"))
        return hashlib.sha256(b",".join((orjson.dumps([version, dict(rules)]), *fixed, nri))).hexdigest()


_NODE_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z", re.ASCII)
FIRST_STEPS: Final = 500_000
"""Steps for the choice of the reserved CPUs."""
MAX_PODS: Final = 10_000
"""Limit on the pods of one node. Kubelets are designed for a few hundred."""
FIRST_LIST_SECONDS: Final = 10.0
"""How long after its start a kubelet may lack its first list of pods. Until then podresources lists none of them,
though they run. The list arrives within a second or two unless the API server is slow."""
REPORT, HEARTBEAT = report.NodeReport, report.Heartbeat
"""The bodies that exporters send."""
_HEARTBEAT: Final = msgspec.json.Decoder(report.Heartbeat)


@dataclass(slots=True, kw_only=True)
class ReadReport:
    """A consistent report. `kubelet` and `state` None: no verdict is possible.

    `facts`: what it says, without the parts that describe the kubelet. Its version can be from the Node object, its
    rules are also those of the cluster, and the pods of a starting kubelet are in doubt. `version_from_node`: the
    kubelet version in the Node object, "" if unknown; None if the report has the version. `is_starting`: the list of
    pods is incomplete, because the kubelet started less than `FIRST_LIST_SECONDS` before. `kubelet_digest`: the digest
    of all that describes the kubelet, "" without one. `nri`: None if the node does not run the NRI topology-aware
    policy. See the rules of this file for the other fields.
    """

    facts: report.NodeReport
    problems: list[report.Problem]
    version_from_node: str | None = None
    is_starting: bool = False
    kubelet: Kubelet | None = None
    kubelet_digest: str = ""
    state: ManagerState | None = None
    hidden: frozenset[Provider] = NOTHING_HIDDEN
    contradictory: bool = False
    nri: NriFacts | None = None

    @property
    def not_counted(self) -> frozenset[str]:
        """UIDs of the pods that the kubelet certainly does not count."""
        return frozenset(pod.uid for pod in self.facts.pods or () if pod.counted is False and pod.uid is not None)


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
    served = facts.podresources
    is_starting = served is not None and served.available and facts.observed_at - served.since < FIRST_LIST_SECONDS
    facts = replace(
        facts,
        kubelet_version=version_from_node or facts.kubelet_version,
        rules={**switches, **facts.rules},
        pods=_in_doubt(facts.pods) if is_starting else facts.pods,
    )
    problems = _problems(facts, version_from_node, unknown_nri, parts.left_out)
    read = ReadReport(facts=facts, problems=problems, version_from_node=version_from_node, is_starting=is_starting)
    _read_kubelet_and_state(read, parts, known, starts=starts)
    if unknown_nri or any(field == NRI for field, _ in parts.left_out):
        read.hidden |= {Provider.RUNTIME}
    return read


def _read_kubelet_and_state(
    read: ReadReport, parts: ReportParts, known: Callable[[str], Kubelet | None], *, starts: bool
) -> None:
    """Set the kubelet, its state, and the facts of the NRI policy. Raises WireError."""
    facts, problems = read.facts, read.problems
    try:
        list_at(facts.pods, "pods", MAX_PODS)
        digest = parts.kubelet_digest(facts.kubelet_version or "", facts.rules)
        same = known(digest)
        if same is None and not starts:
            raise NewKubeletError
        if facts.nri is not None:
            runtime = same.runtime if same and isinstance(same.runtime, NriRuntime) else None
            read.nri, nri_problems = read_nri(facts.nri, runtime)
            problems += nri_problems
        devices = devices_of(facts.devices or {})
        kubelet = same or _read_kubelet(facts, parts, problems)
        if kubelet is None:
            return
        if any(field not in ("problems", "zones", NRI, ROOTS, CLAIMED_CPUS) for field, _ in parts.left_out):
            problems.append(problem("", "a part of the report is too large: no verdict is possible", "error"))
            return
        observed = observed_state(facts, kubelet, devices, problems)
    except CapError as cap:
        problems.append(problem(cap.field, f"too large for a node: {cap.reason}: no verdict is possible", "error"))
        return
    read.state, read.hidden, read.contradictory = observed.state, observed.hidden, observed.contradictory
    read.kubelet, read.kubelet_digest = kubelet, digest
    if facts.nri is not None:
        _read_policy(read, kubelet, observed.state)


def _read_kubelet(facts: report.NodeReport, parts: ReportParts, problems: list[report.Problem]) -> Kubelet | None:
    """The running kubelet. None if parts are missing or no kubelet runs with them.

    Every available part is read, so that a missing part never hides an error in another.
    """
    check_switches(facts.rules)
    reported: report.ReportedMachine = parts.read("machine")
    configured: report.ReportedKubeletConfig | None = parts.read("kubelet")
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


def _read_policy(read: ReadReport, kubelet: Kubelet, state: ManagerState) -> None:
    """Set the NRI policy and its grants. The policy is hidden if a part of that is not known."""
    if read.nri is None:
        read.hidden |= {Provider.RUNTIME}
        return
    known = kubelet.runtime if isinstance(kubelet.runtime, NriRuntime) else None
    try:
        policy = known or nri_policy(read.nri)
        read.state = replace(state, runtime=nri_state(policy, read.nri.grants))
        read.kubelet = replace(kubelet, runtime=policy)
    except UnknownPolicyError as unknown:
        read.problems.append(problem(unknown.field, f"{unknown.reason}: no verdict of the NRI policy"))
        read.hidden |= {Provider.RUNTIME}


def _problems(
    facts: report.NodeReport, version_from_node: str | None, unknown_nri: str, left_out: list[tuple[str, str]]
) -> list[report.Problem]:
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


def _in_doubt(pods: Sequence[report.ReportedPod] | None) -> list[report.ReportedPod] | None:
    """Pods of a starting kubelet: an unlisted one may still run, and is admitted again with the first list."""
    if pods is None:
        return None
    return [replace(pod, counted=None) if pod.counted is False else pod for pod in pods]


def read_heartbeat(body: bytes) -> report.Heartbeat:
    """Read the body of a heartbeat. Raises WireError."""
    return decoded(_HEARTBEAT, body)


def _check_envelope(facts: report.NodeReport) -> None:
    if not _NODE_NAME.match(facts.node_name):
        raise WireError("node_name", f"{shown(facts.node_name)} is not a name that a Kubernetes node can have")
    if not 0 <= facts.sequence < 2**63:
        raise WireError("sequence", f"{facts.sequence} is outside 0..2^63-1")
    if not 0 <= facts.observed_at < 2**53:
        raise WireError("observed_at", f"{facts.observed_at} is not a time in Unix seconds")
    if facts.podresources is not None and not 0 <= facts.podresources.since < 2**53:
        raise WireError("podresources.since", f"{facts.podresources.since} is not a time in Unix seconds")
