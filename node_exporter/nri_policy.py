"""The NRI topology-aware policy of a node: whether it runs, its configuration, its machine and its grants.

Rules of this file
- The policy runs if there is its state file, a configuration file, or an object of the API server that the plugin has
  confirmed for this node, unless something shows that the plugin is gone (`nri_plugin`). Only an object named `default`
  proves nothing: it is also for nodes without the plugin.
- Each part is optional. An unreadable part costs its own field and a Problem.
- The plugin runs with the configuration that it has confirmed last, by generation. It goes on with that one
  while it has not confirmed a newer generation, and after it has refused one (`pkg/agent/agent.go`,
  `pkg/resmgr/resource-manager.go` reconfigure).
- The machine changes rarely: it is read again every `MACHINE_SECONDS`. Grants are read at each look.
- A configuration is read again at a regular look, whenever the plugin has written its state file since, and while the
  plugin has not confirmed an edit. It is not watched: the status of one object names every node, so that a watch on
  each of n nodes would send n * n objects for one edit.
"""

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import orjson

from node_exporter import nri_plugin
from node_exporter.bounded_http import Connection
from node_exporter.files import (
    check_depth,
    describe,
    identity,
    is_there,
    mapping,
    objects,
    parse_json,
    parse_yaml,
    read_file,
)
from node_exporter.nri_machine import DiscoveryError, read_nri_machine
from node_exporter.report import JsonObject, Problem, ReportedNriMachine, ReportedNriPolicy

SOURCE: Final = "nri"
MACHINE_SECONDS: Final = 600.0
CONFIG_SECONDS: Final = 20.0
"""The time between two regular requests for a configuration."""
SOON_SECONDS: Final = 2.0
"""The time between two requests while the configuration may have changed."""
UNCONFIRMED_SECONDS: Final = 60.0
"""After this time an edit that the plugin has not confirmed is asked for at regular looks only."""
MAX_CONFIG_BYTES: Final = 256 << 10
MAX_CONFIG_DEPTH: Final = 16
GROUP_LABELS: Final = ("config.nri/group", "group.config.nri", "resource-policy.nri.io/group")
"""Labels of a Node that name its group, the newest first (`pkg/agent/agent.go` groupConfigName)."""
DEFAULT_ON: Final = ("pinCPU", "pinMemory", "preferIsolatedCPUs")
"""Settings that an API server turns on where an object leaves them out."""
SPEED_SELECT: Final = "sys/class/misc/isst_interface"
"""The kernel's interface of Intel Speed Select, from which the plugin takes CPU priorities (`pkg/sysfs/system.go`)."""
ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 0.02
"""Pause between two reads of an incomplete state file. The plugin replaces it; a copy made by others may be torn."""
IMAGE: Final = re.compile(r"nri-resource-policy-topology-aware:([\w.-]{1,64})(?:@|$)")
"""The plugin's image in `status.images` of a Node, with its tag."""
POLICIES: Final = "/apis/config.nri/v1alpha1/namespaces/{namespace}/topologyawarepolicies/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NriConfig:
    """The spec of a TopologyAwarePolicy, where it was found, and the plugin's last status of it; see the report.

    `doubts`: reasons, for people, why the plugin may run with another configuration. `notes`: what else people should
    know of it. `is_used` False: the plugin has not confirmed the object for this node, and may not run here at all.
    `release`: the plugin's release, if the node has one image of it; "" if not.
    """

    spec: JsonObject
    source: str
    status: str = ""
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_used: bool = True
    release: str = ""


ReadNriConfig = Callable[[], NriConfig | None]
"""The configuration that applies to the node; None if there is none. Raises OSError, ValueError."""


def config_from_file(path: Path) -> ReadNriConfig:
    """Reads the plugin's own configuration file, YAML or JSON: a TopologyAwarePolicy, or its spec alone.

    The plugin reads such a file without the defaults that an API server fills in (`pkg/agent/config-interface.go`
    Unmarshal): what the file leaves out is off.
    """

    def read() -> NriConfig | None:
        spec = _spec(parse_yaml(read_file(path, MAX_CONFIG_BYTES)))
        missing = [name for name in DEFAULT_ON if name not in spec]
        note = f"{', '.join(missing)} not set: off for a file, and on for an object of the API server"
        return NriConfig(spec=spec, source=str(path), notes=(note,) if missing else ())

    return read


def config_from_api(connection: Connection, node_name: str, namespace: str) -> ReadNriConfig:
    """Reads the configuration from the API server: that of the node, else of its group, else the default.

    Needs `get` on topologyawarepolicies (config.nri) in the plugin's namespace, and on the Node for its group.
    """

    def get(path: str) -> Mapping[str, object] | None:
        answer = connection.send("GET", path)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ValueError(f"{path}: the API server answered {answer.status}")
        document = parse_json(answer.content)
        if not isinstance(document, Mapping):
            raise ValueError(f"{path}: not an object")  # noqa: TRY004 - what came is a wrong value of another's
        return document

    confirmed: NriConfig | None = None

    def read() -> NriConfig | None:
        nonlocal confirmed
        node = get(f"/api/v1/nodes/{quote(node_name, safe='')}") or {}
        labels = mapping(mapping(node.get("metadata")).get("labels"))
        group = next((str(labels[label]) for label in GROUP_LABELS if labels.get(label)), "")
        for name in (f"node.{node_name}", f"group.{group}" if group else "", "default"):
            path = POLICIES.format(namespace=quote(namespace, safe=""), name=quote(name, safe=""))
            found = get(path) if name else None
            if found is not None:
                config = _as_confirmed(found, name, node_name, confirmed)
                if config.status == "Success" and not config.doubts:
                    confirmed = config
                return replace(config, release=_release(node))
        return None

    return read


def _as_confirmed(found: Mapping[str, object], name: str, node_name: str, confirmed: NriConfig | None) -> NriConfig:
    """The configuration that the plugin runs with, according to the status of the object *found*.

    *confirmed*: the last one that it has confirmed; None if none was seen.
    """
    told = mapping(mapping(mapping(found.get("status")).get("nodes")).get(node_name))
    status, seen = str(told.get("status") or "")[:64], told.get("generation")
    generation = mapping(found.get("metadata")).get("generation")
    if not status:
        doubt = f"the plugin has not confirmed {name} for this node"
        return NriConfig(spec=_spec(found), source=name, doubts=(doubt,), is_used=False)
    if type(seen) is int and type(generation) is int and seen < generation:
        doubt = f"the plugin has confirmed generation {seen} of {name} for this node, and not yet {generation}"
        return replace(confirmed or NriConfig(spec=_spec(found), source=name, status=status), doubts=(doubt,), notes=())
    if status == "Failure" and confirmed is not None:
        note = (
            f"the plugin has refused generation {generation} of {name}, and goes on with {confirmed.source} as before"
        )
        return replace(confirmed, notes=(note,))
    return NriConfig(spec=_spec(found), source=name, status=status)


def _release(node: Mapping[str, object]) -> str:
    """The tag of the plugin's image on a node; "" if it has none, or several with different tags."""
    images = objects(mapping(node.get("status")).get("images"))
    names = [name for image in images for name in objects(mapping(image).get("names"))]
    tags = {match[1] for name in names if isinstance(name, str) and (match := IMAGE.search(name))}
    return tags.pop() if len(tags) == 1 else ""


def _spec(document: object) -> JsonObject:
    """The spec of a TopologyAwarePolicy; a document without `kind` is the spec itself. Raises ValueError."""
    if not isinstance(document, Mapping):
        raise ValueError("a TopologyAwarePolicy is expected")  # noqa: TRY004
    spec = document.get("spec") if "kind" in document or "spec" in document else document
    if not isinstance(spec, Mapping) or document.get("kind", "TopologyAwarePolicy") != "TopologyAwarePolicy":
        raise ValueError("a TopologyAwarePolicy with a spec is expected")
    check_depth(dict(spec), MAX_CONFIG_DEPTH)
    try:
        return dict(mapping(orjson.loads(orjson.dumps(spec))))  # a YAML file can have values that JSON cannot express
    except TypeError as error:
        raise ValueError(f"not JSON: {describe(error)}") from None


class NriObserver:
    """Observes the policy of one node, and caches what changes rarely.

    *release*: the plugin's release, from an option.
    """

    def __init__(self, root: Path, read_config: ReadNriConfig | None, release: str = "") -> None:
        self._root = root
        self._read_config = read_config
        self._release = release
        self._machine: ReportedNriMachine | None = None
        self._machine_problems: tuple[Problem, ...] = ()
        self._machine_at = float("-inf")
        self._config: NriConfig | None = None
        self._config_problems: tuple[Problem, ...] = ()
        self._config_at = self._settled_at = float("-inf")
        self._written = self._written_at_config = identity(root / nri_plugin.STATE_FILE)
        self._plugin = nri_plugin.PluginWatch(root)
        self._absence = self._doubt = ""

    @property
    def seconds_to_next_look(self) -> float:
        """Until the configuration is read again; infinite if the next regular look is enough."""
        if self._read_config is None or self._config_problems or not self._may_have_changed:
            return math.inf
        return max(0.0, SOON_SECONDS - (time.monotonic() - self._config_at))

    @property
    def _may_have_changed(self) -> bool:
        """Whether the plugin has written its state file since the configuration was read, or an edit is pending."""
        config = self._config
        is_new = time.monotonic() - self._settled_at < UNCONFIRMED_SECONDS
        is_pending = is_new and config is not None and config.is_used and bool(config.doubts)
        return is_pending or self._written != self._written_at_config

    def look(self, *, is_tick: bool) -> tuple[ReportedNriPolicy | None, tuple[Problem, ...]]:
        """The section of the report; None if the policy does not run. A regular look renews the configuration."""
        self._written = identity(self._root / nri_plugin.STATE_FILE)
        try:
            state, problems = self._state()
        except nri_plugin.OtherPolicyError as other:
            self._written_at_config = self._written
            reason = f"the node runs the NRI policy {other.policy}, which this program does not know"
            problems = (Problem(source=SOURCE, path=f"/{nri_plugin.STATE_FILE}", reason=reason),)
            return ReportedNriPolicy(machine=None, config=None, policy=other.policy), problems
        if self._read_config is not None and self._is_config_due(is_tick=is_tick):
            self._renew_config(self._read_config)
        is_used = self._config is not None and self._config.is_used
        if state is None and not problems and not is_used:
            return None, self._config_problems
        if is_tick:
            self._doubt = self._plugin.absence(nri_plugin.DOUBTED_SECONDS)
            self._absence = self._plugin.absence() if self._doubt else ""
        if self._absence:
            reason = f"{self._absence}: the plugin is gone, and what it left behind does not count"
            return None, (Problem(source=SOURCE, path=f"/{nri_plugin.STATE_FILE}", reason=reason),)
        if time.monotonic() - self._machine_at > MACHINE_SECONDS:
            self._renew_machine()
        config = self._config
        doubts = config.doubts if config else ()
        if self._doubt:
            doubts = (*doubts, f"{self._doubt}: the plugin may be gone")
        remarks = (*doubts, *(config.notes if config else ()))
        problems = (*problems, *(Problem(source=SOURCE, path="config", reason=remark) for remark in remarks))
        if config is None and not self._config_problems:
            reason = "no TopologyAwarePolicy found: neither a file nor a namespace is configured, or they have none"
            problems = (*problems, Problem(source=SOURCE, path="config", reason=reason))
        policy = ReportedNriPolicy(
            machine=self._machine,
            config=None if config is None else config.spec,
            config_source="" if config is None else config.source,
            config_status="" if config is None else config.status,
            grants=None if state is None else state.grants,
            policy=nri_plugin.POLICY,
            release=self._release or (config.release if config else ""),
            grant_fields=() if state is None else state.grant_fields,
            doubts=doubts,
        )
        return policy, (*problems, *self._machine_problems, *self._config_problems)

    def _state(self) -> tuple[nri_plugin.StateFile | None, tuple[Problem, ...]]:
        """What the plugin's state file has. Raises OtherPolicyError."""
        for attempt in range(ATTEMPTS):
            try:
                return nri_plugin.read_state_file(self._root), ()
            except nri_plugin.OtherPolicyError:
                raise
            except OSError as error:
                fault = describe(error)
                break
            except ValueError as error:
                fault = describe(error)
            if attempt < ATTEMPTS - 1:
                time.sleep(PAUSE_SECONDS)
        return None, (Problem(source=SOURCE, path=f"/{nri_plugin.STATE_FILE}", reason=fault),)

    def _renew_machine(self) -> None:
        self._machine_at = time.monotonic()
        self._machine, self._machine_problems = None, ()
        try:
            self._machine = read_nri_machine(self._root)
            if is_there(self._root / SPEED_SELECT):
                reason = "CPU priorities may come from Intel Speed Select, whose state is not read"
                self._machine_problems = (Problem(source=SOURCE, path="machine", reason=reason),)
        except DiscoveryError as error:
            reason = f"the plugin does not start here, so containers are not managed: {describe(error)}"
            self._machine_problems = (Problem(source=SOURCE, path="machine", reason=reason, severity="error"),)

    def _is_config_due(self, *, is_tick: bool) -> bool:
        age = time.monotonic() - self._config_at
        if not is_tick:
            return self.seconds_to_next_look == 0 or math.isinf(age)
        return age > CONFIG_SECONDS or (self._config is not None and bool(self._config.doubts))

    def _renew_config(self, read: ReadNriConfig) -> None:
        self._config_at, self._written_at_config = time.monotonic(), self._written
        try:
            self._config, self._config_problems = read(), ()
            if self._config is None or not self._config.doubts:
                self._settled_at = self._config_at
        except (OSError, ValueError) as error:
            reason = f"{describe(error)}: the last known configuration is kept"
            self._config_problems = (Problem(source=SOURCE, path="config", reason=reason),)
