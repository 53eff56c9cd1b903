"""The machine as the kubelet discovers it, from the same files.

Rules of this file
- It mirrors cadvisor, not the hardware: utils/sysinfo/sysinfo.go (GetNodesInfo, getCoresInfo, addCacheInfo),
  utils/sysfs/sysfs.go and machine/machine.go (GetTopology, GetSockets). Where cadvisor stops, skips or falls back, so
  does this, because the kubelet allocates what cadvisor found.
- Every path is below a given root, so that any recorded tree can be read.
- A missing or malformed file never raises. The result is the same as cadvisor's, with a Problem if facts are lost.
- A file that exists and cannot be read (not a regular file, or too large) counts as missing, with a Problem.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.files import describe, list_names, read_file, read_text
from node_exporter.report import Cpu, NumaNode, Problem, ReportedMachine

NODES = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"
CPUINFO = "proc/cpuinfo"
SOURCE = "sysfs"
LARGEST_NODE_CACHE_IGNORED = 2
"""Caches up to this level belong to a core, not to a group of cores."""
MAX_ATTRIBUTE_BYTES = 64 << 10
"""Limit for a file of /sys, which the kernel keeps below one memory page (4 KiB, on some machines 64 KiB)."""
MAX_CPUINFO_BYTES = 4 << 20
"""Limit for /proc/cpuinfo. About 1.5 kB for each logical CPU: more than 2,500 of them."""
MAX_ENTRIES = 16_384
"""Limit for one directory of /sys. The largest Linux has 8,192 CPUs."""
DEVICES = "sys/devices"
MAX_PCIE_ROOTS = 512
_PCIE_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)
_PCI_DEVICE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Files:
    """Reads below a root, and collects problems with existing files that cannot be read."""

    root: Path
    problems: list[Problem] = field(default_factory=list)

    def text(self, path: Path) -> str | None:
        try:
            return read_text(path, MAX_ATTRIBUTE_BYTES)
        except (OSError, ValueError) as error:
            self._complain(path, error)
            return None

    def number(self, path: Path) -> int | None:
        text = self.text(path)
        try:
            return None if text is None else _parse_int(text)
        except ValueError:
            return None

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(list_names(directory, MAX_ENTRIES))
        except (OSError, ValueError) as error:
            self._complain(directory, error)
            return []

    def complain(self, path: Path, reason: str) -> None:
        self.problems.append(Problem(source=SOURCE, path=f"/{path.relative_to(self.root)}", reason=reason))

    def _complain(self, path: Path, error: Exception) -> None:
        if not isinstance(error, OSError):
            self.complain(path, f"not readable: {describe(error)}")


@dataclass(frozen=True, slots=True)
class _Core:
    """A core in cadvisor's sense: the threads of one node that share core and package id, in listing order."""

    core_id: int
    socket: int
    threads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Cache:
    id: int
    level: int
    sharing_cpus: int


def read_machine(root: Path) -> tuple[ReportedMachine, tuple[Problem, ...]]:
    """Discover the machine whose /sys and /proc are below `root`.

    Returns empty lists, and a Problem of severity error, if no CPU is found. Raises nothing.
    """
    files = _Files(root)
    online = _online_cpus(files)
    rows: list[Cpu] = []
    numa: list[NumaNode] = []
    num_cores = 0
    for node_id, node_dir, cpu_dirs in _node_groups(files):
        cores = _cores(files, cpu_dirs, online)
        uncore = _uncore_caches(files, cores)
        rows += [(cpu, core.core_id, core.socket, node_id, uncore.get(core)) for core in cores for cpu in core.threads]
        num_cores += len(cores)
        numa.append(_numa_node(files, node_id, node_dir))
    cpus = {row[0]: row for row in rows}
    repeated = len(cpus) < len(rows)
    if repeated:
        _complain_of_repeated(files, rows, cpus)
    if not cpus:
        files.problems.append(Problem(source=SOURCE, path=f"/{CPUS}", reason="no online CPU found", severity="error"))
    machine = ReportedMachine(
        cpus=tuple(cpus[cpu] for cpu in sorted(cpus)),
        numa=tuple(sorted(numa, key=lambda node: node.id)),
        num_sockets=_count_sockets(files),
        num_cpus=len(rows) if repeated else None,
        num_cores=num_cores if repeated else None,
    )
    return machine, tuple(files.problems)


def read_pcie_roots(root: Path) -> Mapping[str, int]:
    """The NUMA node of each PCIe root, such as `{"pci0000:3a": 0}`. Raises nothing.

    Left out are roots without a NUMA node, and those whose devices name several.
    """
    files, found = _Files(root), dict[str, int]()
    roots = filter(_PCIE_ROOT.fullmatch, files.names(root / DEVICES))
    for name in islice(roots, MAX_PCIE_ROOTS):
        directory = root / DEVICES / name
        devices = filter(_PCI_DEVICE.fullmatch, files.names(directory))
        nodes = {files.number(directory / each / "numa_node") for each in devices} - {None}
        if len(nodes) == 1 and (node := nodes.pop()) is not None and node >= 0:
            found[name] = node
    return found


def _complain_of_repeated(files: _Files, rows: list[Cpu], cpus: Mapping[int, Cpu]) -> None:
    """Report the CPUs that sysfs lists under several NUMA nodes.

    The kubelet keeps the node that it reads last, and its counts of CPUs and cores include each listing.
    Source: cm/cpumanager/topology/topology.go, Discover; cadvisor utils/sysinfo/sysinfo.go, GetNodesInfo.
    """
    repeated = sorted({row[0] for row in rows if row is not cpus[row[0]]})
    files.complain(
        files.root / NODES,
        f"{len(repeated)} CPUs, the first of them {repeated[0]}, are listed under several NUMA nodes: "
        "the kubelet uses the last of these",
    )


def mem_total(text: str) -> int | None:
    """MemTotal of a meminfo file of the kernel, in bytes. None if it has none."""
    match = re.search(r"MemTotal:\s+(\d{1,15}) kB", text)
    return int(match[1]) * 1024 if match else None


def format_page_size(kilobytes: int) -> str:
    """Name a page size as the kubelet does: the canonical binary quantity ("64Ki", "2Mi", "1Gi")."""
    for unit in ("Ki", "Mi", "Gi", "Ti"):
        if kilobytes % 1024 or unit == "Ti":
            return f"{kilobytes}{unit}"
        kilobytes //= 1024
    raise AssertionError("unreachable: the last unit takes everything")


def _node_groups(files: _Files) -> Iterator[tuple[int, Path | None, list[Path]]]:
    """Each NUMA node with its directory and CPU directories; without node directories each package is a node."""
    node_dirs = _numbered(files, files.root / NODES, "node")
    for node_id, node_dir in node_dirs:
        yield node_id, node_dir, [path for _, path in _numbered(files, node_dir, "cpu")]
    if node_dirs:
        return
    packages: dict[int, list[Path]] = {}
    for _, cpu_dir in _numbered(files, files.root / CPUS, "cpu"):
        package = files.number(cpu_dir / "topology/physical_package_id")
        if package is not None:
            packages.setdefault(package, []).append(cpu_dir)
    for package, cpu_dirs in packages.items():
        yield package, None, cpu_dirs


def _numbered(files: _Files, directory: Path, prefix: str) -> list[tuple[int, Path]]:
    """Entries `prefix`N of a directory, in the glob order that cadvisor sees (cpu0, cpu1, cpu10, cpu2)."""
    pattern = re.compile(rf"{prefix}(\d{{1,9}})")
    names = files.names(directory)
    return [(int(match[1]), directory / name) for name in names if (match := pattern.fullmatch(name))]


def _online_cpus(files: _Files) -> frozenset[int] | None:
    """The online CPUs. None if the kernel has no such file, which counts as all CPUs."""
    path = files.root / CPUS / "online"
    text = files.text(path)
    if text is None:
        return None
    try:
        return parse_cpu_list(text)
    except ValueError as error:
        files.complain(path, f"not a CPU list: {describe(error)}")
        return None


def _cores(files: _Files, cpu_dirs: list[Path], online: frozenset[int] | None) -> list[_Core]:
    threads: dict[tuple[int, int], list[int]] = {}
    for cpu_dir in cpu_dirs:
        cpu = int(cpu_dir.name.removeprefix("cpu"))
        if online is not None and cpu not in online:
            continue
        core_id = files.number(cpu_dir / "topology/core_id")
        package = files.number(cpu_dir / "topology/physical_package_id")
        if core_id is None or package is None:
            path = files.root / CPUS / cpu_dir.name / "topology"
            files.complain(path, "no core or package id: the CPU is ignored")
            continue
        threads.setdefault((core_id, package), []).append(cpu)
    return [_Core(core_id, package, tuple(cpus)) for (core_id, package), cpus in threads.items()]


def _uncore_caches(files: _Files, cores: list[_Core]) -> dict[_Core, int]:
    """The uncore cache of each core that has one, by cadvisor's addCacheInfo.

    Only the first thread of a core is checked. A cache above level 2 is an uncore cache. But if it is shared by as many
    CPUs as the node's cores times the threads of this core, it is a cache of the node. An unreadable file ends the scan
    of this node, and the remaining cores have no uncore cache.
    """
    found: dict[_Core, int] = {}
    for core in cores:
        caches = _caches(files, files.root / CPUS / f"cpu{core.threads[0]}/cache")
        if caches is None:
            break
        cpus_of_node = len(cores) * len(core.threads)
        uncore = [c.id for c in caches if c.level > LARGEST_NODE_CACHE_IGNORED and c.sharing_cpus != cpus_of_node]
        if uncore:
            found[core] = uncore[0]
    return found


def _caches(files: _Files, cache_dir: Path) -> list[_Cache] | None:
    """All caches of a CPU. None if a file that cadvisor reads is missing or malformed."""
    try:
        names = sorted(name for name in list_names(cache_dir, MAX_ENTRIES) if name.startswith("index"))
        return [_cache(files, cache_dir / name) for name in names]
    except (OSError, ValueError):
        return None


def _cache(files: _Files, index_dir: Path) -> _Cache:
    names = ("id", "size", "level", "type", "shared_cpu_map")
    texts = {name: (files.text(index_dir / name) or "").strip() for name in names}
    if not re.match(r"\d+K", texts["size"]) or texts["type"] not in {"Data", "Instruction", "Unified"}:
        raise ValueError("not a cache that cadvisor understands")
    shared = int(texts["shared_cpu_map"].replace(",", ""), 16)
    return _Cache(_parse_int(texts["id"]), _parse_int(texts["level"]), shared.bit_count())


def _numa_node(files: _Files, node_id: int, node_dir: Path | None) -> NumaNode:
    if node_dir is None:
        return NumaNode(id=node_id, memory=0, hugepages={}, distances=None)
    distances = files.text(node_dir / "distance")
    try:
        row = None if distances is None else tuple(_parse_int(word) for word in distances.split())
    except ValueError:
        row = None
        files.complain(node_dir / "distance", f"not a list of numbers: {distances!r:.60}")
    return NumaNode(id=node_id, memory=_memory(files, node_dir), hugepages=_hugepages(files, node_dir), distances=row)


def _memory(files: _Files, node_dir: Path) -> int:
    text = files.text(node_dir / "meminfo")
    if text is None:
        return 0
    total = mem_total(text)
    if total is None:
        files.complain(node_dir / "meminfo", "no MemTotal: the node's memory counts as 0")
    return total or 0


def _hugepages(files: _Files, node_dir: Path) -> dict[str, int]:
    pages: dict[int, int] = {}
    for name in files.names(node_dir / "hugepages"):
        match = re.fullmatch(r"hugepages-(\d{1,12})kB", name)
        count = files.number(node_dir / "hugepages" / name / "nr_hugepages") if match else None
        if match and count is not None:
            pages[int(match[1])] = count
    return {format_page_size(kilobytes): pages[kilobytes] for kilobytes in sorted(pages)}


def _count_sockets(files: _Files) -> int:
    """Number of different `physical id` lines in /proc/cpuinfo. If it has none (arm64), of package ids in /sys."""
    path = files.root / CPUINFO
    try:
        content = read_file(path, MAX_CPUINFO_BYTES)
    except (OSError, ValueError) as error:
        files.complain(path, f"not readable ({describe(error)}): sockets counted from /sys")
        content = b""
    ids = set(re.findall(rb"^physical id\s*:\s*(\d+)", content, re.MULTILINE))
    if ids:
        return len(ids)
    directories = _numbered(files, files.root / CPUS, "cpu")
    packages = (files.number(directory / "topology/physical_package_id") for _, directory in directories)
    return len({package for package in packages if package is not None})


def _parse_int(text: str) -> int:
    """A number of at most 32 bits, as all ids and counts of the kernel. Raises ValueError."""
    number = int(text.strip()[:40])
    if not -(1 << 31) <= number < 1 << 32:
        raise ValueError(f"too large: {text.strip():.40}")
    return number
