"""The machine as the kubelet discovers it, from the same files.

Laws of this file
- It mirrors cadvisor, not the hardware: utils/sysinfo/sysinfo.go (GetNodesInfo, getCoresInfo, addCacheInfo),
  utils/sysfs/sysfs.go and machine/machine.go (GetTopology, GetSockets). Where cadvisor stops, skips or falls back, so
  does this, because the kubelet allocates by what cadvisor found.
- Every path lies under a given root, so that any recorded tree can be read.
- A missing or garbled file never raises: it yields what cadvisor makes of it, and a Problem where facts are lost.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from node_exporter.report import Cpu, Machine, NumaNode, Problem

NODES = "sys/devices/system/node"
CPUS = "sys/devices/system/cpu"
CPUINFO = "proc/cpuinfo"
SOURCE = "sysfs"
LARGEST_NODE_CACHE_IGNORED = 2
"""Caches up to this level belong to a core, not to a group of cores."""


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


def read_machine(root: Path) -> tuple[Machine, tuple[Problem, ...]]:
    """Discover the machine whose /sys and /proc lie under `root`.

    Returns empty lists, and a Problem of severity error, if there is no CPU to be found. Raises nothing.
    """
    problems: list[Problem] = []
    online = _online_cpus(root, problems)
    cpus: list[Cpu] = []
    numa: list[NumaNode] = []
    for node_id, node_dir, cpu_dirs in _node_groups(root):
        cores = _cores(cpu_dirs, online, problems)
        uncore = _uncore_caches(root, cores)
        cpus += [(cpu, core.core_id, core.socket, node_id, uncore.get(core)) for core in cores for cpu in core.threads]
        numa.append(_numa_node(node_id, node_dir, problems))
    if not cpus:
        problems.append(Problem(source=SOURCE, path=f"/{CPUS}", reason="no online CPU found", severity="error"))
    machine = Machine(
        cpus=tuple(sorted(cpus)),
        numa=tuple(sorted(numa, key=lambda node: node.id)),
        num_sockets=_count_sockets(root, problems),
    )
    return machine, tuple(problems)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Read the kernel's list format ("0-3,8"); the empty text is the empty set. Raises ValueError if garbled."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, dash, last = part.partition("-")
            cpus.update(_id_range(int(first), int(last if dash else first)))
    return frozenset(cpus)


def format_page_size(kilobytes: int) -> str:
    """Name a page size as the kubelet does: the canonical binary quantity ("64Ki", "2Mi", "1Gi")."""
    for unit in ("Ki", "Mi", "Gi", "Ti"):
        if kilobytes % 1024 or unit == "Ti":
            return f"{kilobytes}{unit}"
        kilobytes //= 1024
    raise AssertionError("unreachable: the last unit takes everything")


def _id_range(first: int, last: int) -> range:
    if not 0 <= first <= last < 1 << 20:
        raise ValueError(f"not a range of CPU ids: {first}-{last}")
    return range(first, last + 1)


def _node_groups(root: Path) -> Iterator[tuple[int, Path | None, list[Path]]]:
    """Each NUMA node with its directory and CPU directories; without node directories each package is a node."""
    node_dirs = _numbered(root / NODES, "node")
    for node_id, node_dir in node_dirs:
        yield node_id, node_dir, [path for _, path in _numbered(node_dir, "cpu")]
    if node_dirs:
        return
    packages: dict[int, list[Path]] = {}
    for _, cpu_dir in _numbered(root / CPUS, "cpu"):
        package = _read_int(cpu_dir / "topology/physical_package_id")
        if package is not None:
            packages.setdefault(package, []).append(cpu_dir)
    for package, cpu_dirs in packages.items():
        yield package, None, cpu_dirs


def _numbered(directory: Path, prefix: str) -> list[tuple[int, Path]]:
    """Entries `prefix`N of a directory, in the glob order that cadvisor sees (cpu0, cpu1, cpu10, cpu2)."""
    pattern = re.compile(rf"{prefix}(\d{{1,9}})")
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError:
        return []
    return [(int(match[1]), directory / name) for name in names if (match := pattern.fullmatch(name))]


def _online_cpus(root: Path, problems: list[Problem]) -> frozenset[int] | None:
    """The CPUs that are online; None if the kernel does not say, which counts as all of them."""
    path = root / CPUS / "online"
    text = _read_text(path)
    if text is None:
        return None
    try:
        return parse_cpu_list(text)
    except ValueError as error:
        problems.append(Problem(source=SOURCE, path=f"/{CPUS}/online", reason=f"not a CPU list: {error}"))
        return None


def _cores(cpu_dirs: list[Path], online: frozenset[int] | None, problems: list[Problem]) -> list[_Core]:
    threads: dict[tuple[int, int], list[int]] = {}
    for cpu_dir in cpu_dirs:
        cpu = int(cpu_dir.name.removeprefix("cpu"))
        if online is not None and cpu not in online:
            continue
        core_id = _read_int(cpu_dir / "topology/core_id")
        package = _read_int(cpu_dir / "topology/physical_package_id")
        if core_id is None or package is None:
            path = f"/{CPUS}/{cpu_dir.name}/topology"
            problems.append(Problem(source=SOURCE, path=path, reason="no core or package id: the CPU is ignored"))
            continue
        threads.setdefault((core_id, package), []).append(cpu)
    return [_Core(core_id, package, tuple(cpus)) for (core_id, package), cpus in threads.items()]


def _uncore_caches(root: Path, cores: list[_Core]) -> dict[_Core, int]:
    """The uncore cache of each core that has one, by cadvisor's addCacheInfo.

    Only the first thread of a core is looked at. A cache above level 2 is an uncore cache unless as many CPUs share it
    as the node has cores, times the threads of this core: then it is the node's. Whatever cannot be read ends
    the scan of this node, and the cores after it have none.
    """
    found: dict[_Core, int] = {}
    for core in cores:
        caches = _caches(root / CPUS / f"cpu{core.threads[0]}/cache")
        if caches is None:
            break
        cpus_of_node = len(cores) * len(core.threads)
        uncore = [c.id for c in caches if c.level > LARGEST_NODE_CACHE_IGNORED and c.sharing_cpus != cpus_of_node]
        if uncore:
            found[core] = uncore[0]
    return found


def _caches(cache_dir: Path) -> list[_Cache] | None:
    """All caches of a CPU; None if any file that cadvisor reads of them is missing or garbled."""
    try:
        names = sorted(path.name for path in cache_dir.iterdir() if path.name.startswith("index"))
        return [_cache(cache_dir / name) for name in names]
    except (OSError, ValueError):
        return None


def _cache(index_dir: Path) -> _Cache:
    texts = {name: (index_dir / name).read_text().strip() for name in ("id", "size", "level", "type", "shared_cpu_map")}
    if not re.match(r"\d+K", texts["size"]) or texts["type"] not in {"Data", "Instruction", "Unified"}:
        raise ValueError("not a cache that cadvisor understands")
    shared = int(texts["shared_cpu_map"].replace(",", ""), 16)
    return _Cache(_parse_int(texts["id"]), _parse_int(texts["level"]), shared.bit_count())


def _numa_node(node_id: int, node_dir: Path | None, problems: list[Problem]) -> NumaNode:
    if node_dir is None:
        return NumaNode(id=node_id, memory=0, hugepages={}, distances=None)
    distances = _read_text(node_dir / "distance")
    try:
        row = None if distances is None else tuple(_parse_int(word) for word in distances.split())
    except ValueError:
        row = None
        path = f"/{NODES}/{node_dir.name}/distance"
        problems.append(Problem(source=SOURCE, path=path, reason=f"not a list of numbers: {distances!r:.60}"))
    return NumaNode(id=node_id, memory=_memory(node_dir, problems), hugepages=_hugepages(node_dir), distances=row)


def _memory(node_dir: Path, problems: list[Problem]) -> int:
    text = _read_text(node_dir / "meminfo")
    if text is None:
        return 0
    match = re.search(r"MemTotal:\s+(\d{1,15}) kB", text)
    if match is None:
        path = f"/{NODES}/{node_dir.name}/meminfo"
        problems.append(Problem(source=SOURCE, path=path, reason="no MemTotal: the node's memory counts as 0"))
        return 0
    return int(match[1]) * 1024


def _hugepages(node_dir: Path) -> dict[str, int]:
    pages: dict[int, int] = {}
    try:
        directories = [path for path in (node_dir / "hugepages").iterdir() if path.name.startswith("hugepages-")]
    except OSError:
        return {}
    for directory in directories:
        match = re.fullmatch(r"hugepages-(\d{1,12})kB", directory.name)
        count = _read_int(directory / "nr_hugepages")
        if match and count is not None:
            pages[int(match[1])] = count
    return {format_page_size(kilobytes): pages[kilobytes] for kilobytes in sorted(pages)}


def _count_sockets(root: Path, problems: list[Problem]) -> int:
    """Distinct `physical id` lines of /proc/cpuinfo; where it has none (arm64), distinct package ids of /sys."""
    text = _read_text(root / CPUINFO)
    if text is None:
        problems.append(Problem(source=SOURCE, path=f"/{CPUINFO}", reason="not readable: sockets counted from /sys"))
    ids = set(re.findall(r"^physical id\s*:\s*(\d+)", text or "", re.MULTILINE))
    if ids:
        return len(ids)
    packages = (_read_int(path / "topology/physical_package_id") for _, path in _numbered(root / CPUS, "cpu"))
    return len({package for package in packages if package is not None})


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _read_int(path: Path) -> int | None:
    try:
        return _parse_int(path.read_text())
    except (OSError, ValueError):
        return None


def _parse_int(text: str) -> int:
    """A number of at most 32 bits, as the kernel's ids and counts are. Raises ValueError."""
    number = int(text.strip())
    if not -(1 << 31) <= number < 1 << 32:
        raise ValueError(f"too large: {text.strip():.40}")
    return number
