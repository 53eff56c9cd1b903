"""What the plugin of the NRI topology-aware policy leaves on a node: grants in its state file, and signs that it runs.

The plugin writes `/var/lib/nri-resource-policy/cache` after every decision and replaces it by a rename, so a read
sees one moment (`pkg/resmgr/cache/cache.go` Save, Snapshot; `policy/cache.go` cachedGrant). The format is not
documented. A file of another version, or of another policy, is refused and not guessed at. Later decisions also depend
on the pods of the grants: their QoS classes, their labels, and whether a container requests CPU. The plugin's own
record of them is taken, from the same file (`pkg/resmgr/cache/{pod,container}.go`).

Rules of this file
- A plugin that starts first writes a file without grants, and then waits for its configuration and for the runtime.
  Until it has placed the containers that run, what they hold is not known.
- The plugin's state file, its status in a TopologyAwarePolicy and its NodeResourceTopology object all stay when the
  plugin is removed. None of them shows that it runs.
- The plugin connects to the runtime's NRI socket. Without the socket there is no plugin.
- The plugin writes its state file at each start of itself and of the runtime, and for every pod and container that the
  runtime creates (`pkg/resmgr/nri.go` Synchronize, RunPodSandbox, CreateContainer; `pkg/resmgr/cache/cache.go` Save).
  A file that is older than such an event was not written by a running plugin.
- A sign that the plugin is gone is a doubt after `DOUBTED_SECONDS`, and counts after `SETTLED_SECONDS`. An update of
  the plugin and the start of a runtime look the same for a short time.
- What cannot be seen proves nothing.
"""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from node_exporter.cpu_lists import format_ids, parse_cpu_list
from node_exporter.files import list_names, mapping, parse_json, read_file, read_text
from node_exporter.kubelet_flags import running_programs
from node_exporter.pods import MAX_POD_LOGS
from node_exporter.report import ReportedNriGrant

STATE_FILE = "var/lib/nri-resource-policy/cache"
POLICY = "topology-aware"
KNOWN_VERSIONS = ("1",)
MAX_GRANT_FIELDS = 32
MAX_STATE_BYTES = 8 << 20
"""Size limit of the file. A container takes 2 to 6 kB."""
MAX_GRANTS = 2_000
MAX_LABELS = 256
"""Limit on the labels of one pod or container. A file with more is refused."""
CPU_TYPES = ("normal", "reserved", "preserve")
QOS_CLASSES = ("Guaranteed", "Burstable", "BestEffort")
MEMORY_TYPES = {"DRAM": 1, "PMEM": 2, "HBM": 4}
PRESERVED_MEMORY = 8
MAX_NODE_MASK = 2**64
RUNNING = (1, 2, 3)
"""States of a container that is created, paused or running (`ContainerState` of the runtime's NRI)."""


class OtherPolicyError(ValueError):
    """The file is of another NRI policy: `policy` is its name."""

    def __init__(self, policy: str) -> None:
        super().__init__(f"written by policy {policy!r}")
        self.policy = policy


class StateFile(NamedTuple):
    """What the plugin's state file has. `grant_fields`: the names of the fields of a grant; they differ by release.

    Empty: there is no grant.
    """

    grants: tuple[ReportedNriGrant, ...]
    grant_fields: tuple[str, ...] = ()


def read_state_file(root: Path) -> StateFile | None:
    """The state file of the plugin on the node whose files are below *root*; None if there is no such file.

    Raises:
        OSError: the file may not be read.
        OtherPolicyError: it is the state file of another policy.
        ValueError: it is not a state file that this program knows.
    """
    try:
        content = read_file(root / STATE_FILE, MAX_STATE_BYTES)
    except FileNotFoundError:
        return None
    document = parse_json(content)
    if not isinstance(document, Mapping):
        raise ValueError("not a JSON object")  # noqa: TRY004 - what came is a wrong value of another's
    version, policy = document.get("Version"), document.get("PolicyName")
    if version not in KNOWN_VERSIONS:
        raise ValueError(f"version {version!r:.40} is not known")
    if policy != POLICY:
        raise OtherPolicyError(str(policy)[:64])
    entries = document.get("PolicyJSON")
    text = entries.get("allocations") if isinstance(entries, Mapping) else None
    if text is None:
        records = mapping(document.get("Containers")).values()
        if any(mapping(mapping(record).get("Ctr")).get("state") in RUNNING for record in records):
            raise ValueError("the plugin has started, and has not yet placed the containers that run")
        return StateFile(())
    if not isinstance(text, str):
        raise ValueError("allocations: a JSON text is expected")  # noqa: TRY004
    grants = parse_json(text.encode())
    if not isinstance(grants, Mapping) or len(grants) > MAX_GRANTS:
        raise ValueError(f"allocations: an object of up to {MAX_GRANTS} grants is expected")
    pods, containers = mapping(document.get("Pods")), mapping(document.get("Containers"))
    found = tuple(_grant(id_, value, pods, containers) for id_, value in sorted(grants.items()))
    fields = sorted(str(name)[:64] for name in next(iter(grants.values()), ()))
    return StateFile(found, tuple(fields[:MAX_GRANT_FIELDS]))


def _grant(id_: str, value: object, pods: Mapping[str, object], containers: Mapping[str, object]) -> ReportedNriGrant:
    if not isinstance(value, Mapping):
        raise ValueError(f"grant {id_[:80]!r}: not an object")  # noqa: TRY004
    name = _text(id_, value, "PrettyName").split("/")
    cpu_type = _number(id_, value, "CPUType", len(CPU_TYPES))
    if len(name) != 3:
        raise ValueError(f"grant {id_[:80]!r}: PrettyName is not NAMESPACE/POD/CONTAINER")
    record = mapping(containers.get(id_))
    container = mapping(record.get("Ctr"))
    pod_record = mapping(pods.get(str(container.get("pod_sandbox_id"))))
    pod, qos = mapping(pod_record.get("Pod")), pod_record.get("QOSClass")
    return ReportedNriGrant(
        container_id=id_[:256],
        pod_uid=_short(pod.get("uid")),
        qos=qos if qos in QOS_CLASSES else "",
        requests_cpu=_requests_cpu(record),
        pod_labels=_labels(id_, pod),
        labels=_labels(id_, container),
        namespace=name[0],
        pod=name[1],
        container=name[2],
        pool=_text(id_, value, "Pool"),
        cpu_type=CPU_TYPES[cpu_type],  # type: ignore[arg-type]
        exclusive=format_ids(parse_cpu_list(_text(id_, value, "Exclusive"))),
        millicpu=_number(id_, value, "Part", 2**31),
        memory_nodes=_number(id_, value, "MemoryPool", MAX_NODE_MASK),
        memory_types=_memory_types(id_, value),
        memory_bytes=_number(id_, value, "MemSize", 2**62),
    )


def _requests_cpu(record: Mapping[str, object]) -> bool:
    """Whether the container requests CPU; a resize replaces what it requested at its creation."""
    updates = record.get("ResourceUpdates")
    requirements = mapping(record.get("Requirements") if updates is None else updates)
    return mapping(requirements.get("requests")).get("cpu") not in (None, "0")


def _memory_types(id_: str, grant: Mapping[str, object]) -> int:
    """The bits of the types of memory: the plugin writes their names, and none for memory that it leaves alone."""
    value = grant.get("MemType")
    if type(value) is int:
        return _number(id_, grant, "MemType", 2 * PRESERVED_MEMORY)
    names = value.split(",") if isinstance(value, str) and value else []
    if not isinstance(value, str) or not all(name in MEMORY_TYPES for name in names):
        raise ValueError(f"grant {id_[:80]!r}: MemType {value!r:.40} is not known")
    return sum(MEMORY_TYPES[name] for name in dict.fromkeys(names)) or PRESERVED_MEMORY


def _labels(id_: str, owner: Mapping[str, object]) -> dict[str, str]:
    labels = mapping(owner.get("labels"))
    if len(labels) > MAX_LABELS:
        raise ValueError(f"grant {id_[:80]!r}: {len(labels)} labels, more than {MAX_LABELS}")
    return {str(key)[:512]: _short(value) for key, value in labels.items()}


def _short(value: object) -> str:
    return value[:512] if isinstance(value, str) else ""


def _text(id_: str, grant: Mapping[str, object], field: str) -> str:
    value = grant.get(field)
    if not isinstance(value, str) or len(value) > 8192:
        raise ValueError(f"grant {id_[:80]!r}: {field} is not a text")
    return value


def _number(id_: str, grant: Mapping[str, object], field: str, end: int) -> int:
    value = grant.get(field)
    if type(value) is not int or not 0 <= value < end:
        raise ValueError(f"grant {id_[:80]!r}: {field} is not a number from 0 to {end - 1}")
    return value


DOUBTED_SECONDS: Final = 10.0
"""A time in which a running plugin certainly writes its state file after an event."""
SETTLED_SECONDS: Final = 300.0
"""Longer than the runtime and the kubelet wait for a plugin, and longer than an update of the plugin usually takes."""
NRI_SOCKETS: Final = ("run/nri/nri.sock", "var/run/nri/nri.sock")
POD_LOGS: Final = "var/log/pods"
PROGRAM: Final = "topology-aware"
"""Part of the name of the plugin's program, which is `nri-resource-policy-topology-aware`, sometimes after an index."""
NEWER_PODS: Final = 2
"""The number of pods with containers newer than the state file that shows that the plugin does not run.

One such pod proves nothing: the creation of its container may have failed before the plugin was asked.
"""
MAX_CONTAINERS: Final = 1000


class PluginWatch:
    """Tells from the files below *root* whether the plugin is gone, and why. *now*: Unix seconds, as file times."""

    def __init__(self, root: Path, now: Callable[[], float] = time.time) -> None:
        self._root = root
        self._now = now
        self._process_at = now()

    def absence(self, seconds: float = SETTLED_SECONDS) -> str:
        """What shows for *seconds* that the plugin is gone, for people; "" if nothing does."""
        before = self._now() - seconds
        return self._no_socket(before) or self._no_process(before) or self._old_state_file(before)

    def _no_socket(self, before: float) -> str:
        for path in (self._root / name for name in NRI_SOCKETS):
            since = _modified(path.parent)
            if since is not None:
                gone = _modified(path) is None and since < before
                return f"the runtime has no NRI socket in /{path.parent.relative_to(self._root)}" if gone else ""
        return ""

    def _no_process(self, before: float) -> str:
        """Whether the plugin has no process. Counts only where the exporter sees the kubelet's process."""
        programs = [word.rpartition("/")[2] for words in running_programs(self._root) for word in words]
        if "kubelet" not in programs or any(PROGRAM in program for program in programs):
            self._process_at = self._now()
        return "no process of the plugin runs" if self._process_at < before else ""

    def _old_state_file(self, before: float) -> str:
        written = _modified(self._root / STATE_FILE)
        if written is None:
            return ""
        starts = (("node", self._boot_time()), ("runtime", self._runtime_start()))
        for what, since in starts:
            if since is not None and written < since < before:
                return f"the {what} has started since the plugin last wrote its state file"
        return self._newer_pods(written, before)

    def _runtime_start(self) -> float | None:
        """The runtime creates its NRI socket when it starts."""
        found = [since for name in NRI_SOCKETS if (since := _modified(self._root / name)) is not None]
        return found[0] if found else None

    def _boot_time(self) -> float | None:
        try:
            match = re.match(r"(\d{1,12})(?:\.\d+)? ", read_text(self._root / "proc/uptime", 256))
        except (OSError, ValueError):
            return None
        return self._now() - float(match[1]) if match else None

    def _newer_pods(self, written: float, before: float) -> str:
        """The kubelet adds a directory to the pod's log directory just before it creates a container."""
        directory = self._root / POD_LOGS
        try:
            pods = list_names(directory, MAX_POD_LOGS)
        except (OSError, ValueError):
            return ""
        newer = 0
        for name in pods:
            since = _modified(directory / name)
            if since is not None and written < since < before and _has_entries(directory / name):
                newer += 1
                if newer == NEWER_PODS:
                    return "containers have been created since the plugin last wrote its state file"
        return ""


def _has_entries(directory: Path) -> bool:
    try:
        return bool(list_names(directory, MAX_CONTAINERS))
    except (OSError, ValueError):
        return False


def _modified(path: Path) -> float | None:
    """When a file was written, or a directory changed. None: it is not there, or cannot be seen."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
