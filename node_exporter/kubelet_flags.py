"""Finds the kubelet's command line in /proc, and applies it to a configuration document as the kubelet does.

Mirrors cmd/kubelet/app/options (flag names) and app/server.go: flags override the configuration file. A map flag
replaces the file's whole map, except feature gates, which are merged gate by gate.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from node_exporter.files import list_names, read_beginning, read_file

Document = dict[str, object]
"""A KubeletConfiguration as parsed YAML or JSON."""

MAX_CMDLINE_BYTES = 128 << 10
"""Limit for the kubelet's command line, which has up to 4 kB."""
PROGRAM_BYTES = 4096
"""How many bytes of each command line are read: enough for the program and its first argument."""
MAX_PROCESSES = 1 << 18
"""Limit on processes checked. Linux allows 4 million ids, and a node has up to about 10,000 processes."""

_TEXT_FLAGS = {
    "cpu-manager-policy": "cpuManagerPolicy",
    "memory-manager-policy": "memoryManagerPolicy",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
    "reserved-cpus": "reservedSystemCPUs",
}
_MAP_FLAGS = {
    "cpu-manager-policy-options": ("cpuManagerPolicyOptions", "="),
    "topology-manager-policy-options": ("topologyManagerPolicyOptions", "="),
    "system-reserved": ("systemReserved", "="),
    "kube-reserved": ("kubeReserved", "="),
    "eviction-hard": ("evictionHard", "<"),
}

Flags = Mapping[str, tuple[str, ...]]
"""Flag name without dashes -> its values in order of appearance."""


def find_command_line(root: Path) -> tuple[str, ...] | None:
    """The arguments of the running kubelet whose /proc is under `root`. None if none is found.

    A process counts if its program, or the program's first argument, is called "kubelet" (hyperkube kubelet). Of
    several, the one with the lowest process id is taken.
    """
    for path, words in _processes(root):
        for position, word in enumerate(words):
            if word.rpartition("/")[2] == "kubelet":
                try:
                    return tuple(_words(read_file(path, MAX_CMDLINE_BYTES))[position + 1 :])
                except (OSError, ValueError):
                    break
    return None


def running_programs(root: Path) -> Iterator[tuple[str, ...]]:
    """Program and first argument of each process whose /proc is under `root`. Empty if they cannot be seen."""
    for _, words in _processes(root):
        yield words


def _processes(root: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Of each process, the lowest id first: its `cmdline`, and its program and first argument."""
    try:
        pids = sorted(int(name) for name in list_names(root / "proc", MAX_PROCESSES) if name.isdecimal())
    except (OSError, ValueError):
        return
    for pid in pids:
        path = root / "proc" / str(pid) / "cmdline"
        with suppress(OSError, ValueError):
            yield path, tuple(_words(read_beginning(path, PROGRAM_BYTES))[:2])


def _words(cmdline: bytes) -> list[str]:
    return cmdline.decode(errors="replace").rstrip("\0").split("\0")


def parse_flags(arguments: tuple[str, ...]) -> Flags:
    """Split arguments into flags: "--a=b", "--a b", "-a=b".

    Underscores count as dashes. A flag without a value is "".
    """
    flags: dict[str, tuple[str, ...]] = {}
    position = 0
    while position < len(arguments):
        match = re.fullmatch(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", arguments[position], re.DOTALL)
        position += 1
        if match is None:
            continue
        name, value = match[1].replace("_", "-"), match[2]
        if value is None and position < len(arguments) and not arguments[position].startswith("-"):
            value = arguments[position]
            position += 1
        flags[name] = (*flags.get(name, ()), value or "")
    return flags


def last_value(flags: Flags | None, name: str) -> str | None:
    """The last value of a flag, which is the effective one. None if it is not given, or empty."""
    return (flags[name][-1] or None) if flags and name in flags else None


def overlay_flags(document: Document, flags: Flags) -> Document:
    """Return the document with every flag applied that matters to admission. Raises ValueError naming the flag."""
    result = dict(document)
    for flag, key in _TEXT_FLAGS.items():
        if flag in flags:
            result[key] = flags[flag][-1]
    for flag, (key, separator) in _MAP_FLAGS.items():
        if flag in flags:
            result[key] = _pairs(flag, flags[flag], separator)
    if "reserved-memory" in flags:
        result["reservedMemory"] = _reserved_memory("reserved-memory", flags["reserved-memory"])
    if "feature-gates" in flags:
        gates = _pairs("feature-gates", flags["feature-gates"], "=")
        merged = dict(file_gates) if isinstance(file_gates := result.get("featureGates"), dict) else {}
        merged.update({gate: value.lower() in {"1", "t", "true"} for gate, value in gates.items()})
        result["featureGates"] = merged
    return result


def _pairs(flag: str, values: tuple[str, ...], separator: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in ",".join(values).split(","):
        if item.strip():
            key, found, value = item.partition(separator)
            if not found:
                raise ValueError(f"--{flag}: {item!r:.60} is not KEY{separator}VALUE")
            pairs[key.strip()] = value.strip()
    return pairs


def _reserved_memory(flag: str, values: tuple[str, ...]) -> list[Document]:
    """Read "0:memory=1Gi,hugepages-2Mi=1Gi;1:memory=1Gi"; the flag may be repeated."""
    entries: list[Document] = []
    for item in ";".join(values).split(";"):
        if item.strip():
            node, _, limits = item.partition(":")
            if not node.strip().isdecimal():
                raise ValueError(f"--{flag}: {item!r:.60} is not NUMA:TYPE=QUANTITY")
            entries.append({"numaNode": int(node), "limits": _pairs(flag, (limits,), "=")})
    return entries
