"""The machine as the NRI topology-aware policy discovers it, from the same files.

Rules of this file
- It mirrors the plugin, not the hardware: `pkg/sysfs/system.go` of containers/nri-plugins (discoverCPUs, discoverNodes,
  discoverCache). Where the plugin stops, `DiscoveryError` says so: such a plugin manages no container.
- Facts only. What the policy concludes (types of memory, core kinds, symmetric distances) is left to the reader.
- Every path is below a given root, and every read is limited (`files`).
"""

import re
from collections.abc import Iterator
from pathlib import Path

from node_exporter.cpu_lists import format_ids, parse_cpu_list
from node_exporter.files import describe, is_there, list_names, read_text
from node_exporter.report import ReportedNriCache, ReportedNriCpu, ReportedNriMachine, ReportedNriNode
from node_exporter.sysfs import CPUS, MAX_ATTRIBUTE_BYTES, MAX_ENTRIES, NODES, mem_total

KNOWN_EPP = ("performance", "balance_performance", "balance_power", "power")
CACHE_TYPES = ("Data", "Instruction", "Unified")


class DiscoveryError(Exception):
    """The plugin does not start on this machine. The text names the file and the reason."""


def read_nri_machine(root: Path) -> ReportedNriMachine:
    """Discover the machine whose /sys and /proc are below *root*.

    Raises:
        DiscoveryError: the plugin's own discovery fails, or a file that it reads cannot be read here.
    """
    return _Discovery(root).machine()


class _Discovery:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._caches: dict[tuple[int, str, int], int] = {}
        self._cache_rows: list[ReportedNriCache] = []

    def machine(self) -> ReportedNriMachine:
        cpus = self._root / CPUS
        online = self._cpus(cpus / "online", default="")
        nodes = self._nodes()
        present = dict(self._numbered(cpus, "cpu"))
        rows = tuple(self._cpu(id_, path, nodes) for id_, path in present.items() if id_ in online)
        if not rows:
            raise DiscoveryError(f"/{CPUS}: no CPU is known to be online")
        return ReportedNriMachine(
            cpus=tuple(sorted(rows)),
            caches=tuple(self._cache_rows),
            nodes=nodes,
            present=format_ids(frozenset(present)),
            isolated=self._list(cpus / "isolated"),
            performance=self._optional_list(self._root / "sys/devices/cpu_core/cpus"),
            efficient=self._optional_list(self._root / "sys/devices/cpu_atom/cpus"),
            memory_total=self._memory(self._root / "proc/meminfo"),
        )

    def _cpu(self, id_: int, path: Path, nodes: tuple[ReportedNriNode, ...]) -> ReportedNriCpu:
        topology = path / "topology"
        threads = topology / "core_cpus_list"
        if not is_there(threads):
            threads = topology / "thread_siblings_list"
        self._number(topology / "core_id")
        links = [number for number, _ in self._numbered(path, "node")]
        node = links[0] if len(links) == 1 else 0
        if nodes and all(node != known.id for known in nodes):
            raise DiscoveryError(f"{self._name(path)}: its NUMA node {node} is not there")
        epp = self._text(path / "cpufreq/energy_performance_preference", default="")
        return (
            id_,
            self._number(topology / "physical_package_id"),
            self._number(topology / "die_id", default=0),
            self._number(topology / "cluster_id", default=0),
            node if nodes else 0,
            self._list(threads),
            max(0, self._number(path / "cpufreq/base_frequency", default=0)),
            epp if epp in KNOWN_EPP else "",
            tuple(self._cache(index) for _, index in sorted(self._numbered(path / "cache", "index"))),
        )

    def _cache(self, path: Path) -> int:
        """The position of a cache in the table. Caches of equal level, type and id are one, with the first's CPUs."""
        id_, level = self._number(path / "id"), self._number(path / "level")
        cpus, kind = self._list(path / "shared_cpu_list"), self._text(path / "type")
        if kind not in CACHE_TYPES or not re.fullmatch(r"\d+.", self._text(path / "size")):
            raise DiscoveryError(f"{self._name(path)}: type or size is malformed")
        known = self._caches.setdefault((level, kind, id_), len(self._cache_rows))
        if known == len(self._cache_rows):
            self._cache_rows.append((level, id_, cpus))
        return known

    def _nodes(self) -> tuple[ReportedNriNode, ...]:
        """The NUMA nodes. None if the kernel has no support for NUMA."""
        directory = self._root / NODES
        found = sorted(self._numbered(directory, "node"))
        if not found:
            return ()
        normal = self._cpus(directory / "has_normal_memory")
        memory = self._cpus(directory / "has_memory")
        online = self._cpus(directory / "online")
        return tuple(
            ReportedNriNode(
                id=id_,
                cpus=self._list(path / "cpulist"),
                memory=self._memory(path / "meminfo"),
                has_memory=id_ in memory,
                has_normal_memory=id_ in normal,
                is_online=id_ in online,
                distances=self._distances(path / "distance"),
            )
            for id_, path in found
        )

    def _distances(self, path: Path) -> tuple[int, ...]:
        words = self._text(path).split()
        if not all(re.fullmatch(r"-?\d{1,18}", word) for word in words):
            raise DiscoveryError(f"{self._name(path)}: not a list of distances")
        return tuple(map(int, words))

    def _numbered(self, directory: Path, prefix: str) -> Iterator[tuple[int, Path]]:
        """Entries `prefix`N in the order of their names, as a shell sorts them."""
        try:
            names = sorted(list_names(directory, MAX_ENTRIES))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise DiscoveryError(f"{self._name(directory)}: {describe(error)}") from None
        for name in names:
            match = re.fullmatch(rf"{prefix}(\d{{1,6}})", name)
            if match:
                yield int(match[1]), directory / name

    def _text(self, path: Path, default: str | None = None) -> str:
        try:
            return read_text(path, MAX_ATTRIBUTE_BYTES).strip()
        except (OSError, ValueError) as error:
            if default is not None:
                return default
            raise DiscoveryError(f"{self._name(path)}: {describe(error)}") from None

    def _number(self, path: Path, default: int | None = None) -> int:
        text = self._text(path, None if default is None else "")
        if re.fullmatch(r"-?\d{1,18}", text):
            return int(text)
        if default is not None:
            return default
        raise DiscoveryError(f"{self._name(path)}: not a number")

    def _memory(self, path: Path) -> int:
        total = mem_total(self._text(path))
        if total is None:
            raise DiscoveryError(f"{self._name(path)}: no MemTotal")
        return total

    def _cpus(self, path: Path, default: str | None = None) -> frozenset[int]:
        text = self._text(path, default)
        try:
            return parse_cpu_list(text)
        except ValueError:
            raise DiscoveryError(f"{self._name(path)}: not a list of ids") from None

    def _list(self, path: Path) -> str:
        """A list in its shortest form; "" if a list of all CPUs is missing, as the plugin takes it."""
        is_optional = path.parent.name == "cpu"
        return format_ids(self._cpus(path, "" if is_optional else None))

    def _optional_list(self, path: Path) -> str | None:
        return self._list(path) if is_there(path) else None

    def _name(self, path: Path) -> str:
        return f"/{path.relative_to(self._root)}"
