"""The kubelet's effective configuration: configuration file, drop-in directory and command line, with its defaults.

Rules of this file
- Precedence is the kubelet's: command line over drop-ins (in name order) over the file over the defaults
  (cmd/kubelet/app/server.go, mergeKubeletConfigurations; pkg/kubelet/apis/config/v1beta1/defaults.go).
- A malformed value is named in a Problem and left out. A default never silently replaces a value that was set.
- /configz is read in the same way. Its document is the configuration in use, with all defaults applied.
"""

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.files import describe, is_directory, parse_yaml, read_file, under
from node_exporter.kubelet_flags import Document, Flags, last_value, overlay_flags
from node_exporter.quantity import format_milli, parse_milli, parse_units
from node_exporter.report import Problem, ReportedKubeletConfig, ReportedReservedMemory

SOURCE = "kubelet configuration"
DEFAULT_CONFIG_FILE = "/var/lib/kubelet/config.yaml"
DEFAULT_HARD_EVICTION = "100Mi"
MAX_CONFIG_BYTES = 256 << 10
"""Limit for one file. A kubelet's configuration has 1 to 5 kB."""
MAX_DROP_INS = 100
MAX_DROP_IN_ENTRIES = 1_000
"""Limit on files and directories below the drop-in directory, whatever their names."""


def load_documents(root: Path, flags: Flags | None) -> tuple[Document | None, tuple[Problem, ...]]:
    """Read the configuration file and its drop-ins, and apply the command line.

    `flags` None: no kubelet process was found. Then the file is read from its usual place, and a Problem says that the
    flags are unknown. Returns None, and a Problem, if the configuration in use cannot be read.
    """
    problems: list[Problem] = []
    path = DEFAULT_CONFIG_FILE if flags is None else last_value(flags, "config")
    document = {} if path is None else _load(root, path, problems)
    if document is None:
        return None, tuple(problems)
    if flags is None:
        reason = "no kubelet process found: flags that override the configuration file are unknown"
        problems.append(Problem(source=SOURCE, path="command line", reason=reason))
    if directory := last_value(flags, "config-dir"):
        for drop_in in _drop_ins(root, directory, problems):
            document = merge_patch(document, _load(root, drop_in, problems) or {})
    try:
        document = overlay_flags(document, flags or {})
    except ValueError as error:
        problems.append(Problem(source=SOURCE, path="command line", reason=str(error), severity="error"))
    return document, tuple(problems)


def merge_patch(document: Document, patch: Mapping[str, object]) -> Document:
    """Apply a drop-in to a document as a JSON merge patch: maps are merged, null removes, other values replace."""
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merge_patch(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


def effective_config(
    document: Mapping[str, object], *, memory_capacity: int, is_running_config: bool
) -> tuple[ReportedKubeletConfig, tuple[Problem, ...]]:
    """Reduce a KubeletConfiguration to what admission depends on.

    `memory_capacity` is the machine's memory in bytes, for eviction thresholds in percent. `is_running_config`: the
    document is from /configz, where a missing `evictionHard` means none instead of the default.
    """
    reader = _Reader(document)
    config = ReportedKubeletConfig(
        cpuManagerPolicy=reader.text("cpuManagerPolicy", "none"),
        cpuManagerPolicyOptions=reader.text_map("cpuManagerPolicyOptions"),
        memoryManagerPolicy=reader.text("memoryManagerPolicy", "None"),
        reservedMemory=reader.reserved_memory(),
        topologyManagerPolicy=reader.text("topologyManagerPolicy", "none"),
        topologyManagerScope=reader.text("topologyManagerScope", "container"),
        topologyManagerPolicyOptions=reader.text_map("topologyManagerPolicyOptions"),
        reservedSystemCPUs=reader.text("reservedSystemCPUs", ""),
        featureGates=reader.feature_gates(),
        reservation=reader.reservation(memory_capacity, is_running_config=is_running_config),
    )
    return config, tuple(reader.problems)


class _Reader:
    """Reads typed fields from a document and collects errors in them."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self._document = document
        self.problems: list[Problem] = []

    def text(self, key: str, default: str) -> str:
        value = self._document.get(key)
        if value is None or value == "":
            return default
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
        self._complain(key, f"not a text: {value!r:.60}")
        return default

    def text_map(self, key: str) -> dict[str, str]:
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self._map(key, self._document.get(key)).items()
        }

    def feature_gates(self) -> dict[str, bool]:
        gates: dict[str, bool] = {}
        for name, value in self._map("featureGates", self._document.get("featureGates")).items():
            if isinstance(value, bool):
                gates[name] = value
            else:
                self._complain(f"featureGates.{name}", f"not true or false: {value!r:.60}")
        return gates

    def reserved_memory(self) -> tuple[ReportedReservedMemory, ...]:
        entries = self._document.get("reservedMemory") or ()
        if not isinstance(entries, list | tuple):
            self._complain("reservedMemory", f"not a list: {entries!r:.60}")
            return ()
        found: list[ReportedReservedMemory] = []
        for index, entry in enumerate(entries):
            path = f"reservedMemory[{index}]"
            node = entry.get("numaNode", 0) if isinstance(entry, dict) else None
            if isinstance(node, int) and not isinstance(node, bool) and 0 <= node < 1 << 31:
                limits = self._map(f"{path}.limits", entry.get("limits"))
                found.append(
                    ReportedReservedMemory(numaNode=node, limits={name: str(value) for name, value in limits.items()})
                )
            else:
                self._complain(path, f"not a valid NUMA node: {entry!r:.60}")
        return tuple(found)

    def reservation(self, memory_capacity: int, *, is_running_config: bool) -> dict[str, str]:
        """What is subtracted from capacity (CM getNodeAllocatableReservation), summed by resource, without zeros."""
        milli: dict[str, int] = {}
        for key in ("systemReserved", "kubeReserved"):
            for resource, text in self.text_map(key).items():
                milli[resource] = milli.get(resource, 0) + self._quantity(parse_milli, f"{key}.{resource}", text)
        if listed := self.text("reservedSystemCPUs", ""):
            milli["cpu"] = self._quantity(lambda text: len(parse_cpu_list(text)) * 1000, "reservedSystemCPUs", listed)
        eviction = self._hard_eviction_bytes(memory_capacity, is_running_config=is_running_config)
        milli["memory"] = milli.get("memory", 0) + eviction * 1000
        return {resource: format_milli(amount) for resource, amount in sorted(milli.items()) if amount}

    def _hard_eviction_bytes(self, memory_capacity: int, *, is_running_config: bool) -> int:
        thresholds = self._document.get("evictionHard")
        set_by_hand = self.text_map("evictionHard")
        merged = self._document.get("mergeDefaultEvictionSettings") is True
        is_default = (thresholds is None and not is_running_config) or (
            merged and "memory.available" not in set_by_hand
        )
        text = DEFAULT_HARD_EVICTION if is_default else set_by_hand.get("memory.available", "0")
        return self._quantity(lambda value: _threshold_bytes(value, memory_capacity), "evictionHard", text)

    def _quantity(self, parse: Callable[[str], int], key: str, text: str) -> int:
        try:
            return parse(text)
        except ValueError as error:
            self._complain(key, str(error))
            return 0

    def _map(self, key: str, value: object) -> dict[str, object]:
        if value is None:
            return {}
        if isinstance(value, dict):
            return {str(name): below for name, below in value.items()}
        self._complain(key, f"not a map: {value!r:.60}")
        return {}

    def _complain(self, key: str, reason: str) -> None:
        self.problems.append(Problem(source=SOURCE, path=key, reason=reason, severity="error"))


def _threshold_bytes(text: str, capacity: int) -> int:
    """An eviction threshold in bytes. Percentages are computed in single precision, as in the kubelet.

    0% and 100% disable a threshold (eviction/helpers.go parseThresholdStatement, api GetThresholdQuantity).
    """
    if not text.endswith("%"):
        return parse_units(text)
    percentage = _single(_single(float(text.rstrip("%"))) / 100)
    return int(capacity * percentage) if 0 < percentage < 1 else 0


def _single(number: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError as error:
        raise ValueError(f"not a percentage: {number}") from error
    return rounded


def _load(root: Path, path: str, problems: list[Problem]) -> Document | None:
    """Parse one YAML or JSON file. None, and a Problem, if it is missing, too large, malformed or not a map."""
    try:
        document = parse_yaml(read_file(under(root, path), MAX_CONFIG_BYTES))
    except (OSError, ValueError) as error:
        problems.append(Problem(source=SOURCE, path=path, reason=describe(error), severity="error"))
        return None
    if not isinstance(document, dict):
        problems.append(Problem(source=SOURCE, path=path, reason="not a map of settings", severity="error"))
        return None
    return {str(key): value for key, value in document.items()}


def _drop_ins(root: Path, directory: str, problems: list[Problem]) -> list[str]:
    """The drop-in files of a directory and its subdirectories, in the order in which the kubelet reads them."""
    base = under(root, directory)
    if not is_directory(base):
        problems.append(Problem(source=SOURCE, path=directory, reason="no such drop-in directory", severity="error"))
        return []
    found: list[Path] = []
    entries = 0
    for below, directories, names in os.walk(base):
        entries += len(directories) + len(names)
        found += [Path(below) / name for name in names if name.endswith(".conf")]
        if entries > MAX_DROP_IN_ENTRIES or len(found) > MAX_DROP_INS:
            reason = f"more than {MAX_DROP_INS} drop-ins or {MAX_DROP_IN_ENTRIES} entries: none is read"
            problems.append(Problem(source=SOURCE, path=directory, reason=reason, severity="error"))
            return []
    return [f"{directory}/{path.relative_to(base)}" for path in sorted(found)]
