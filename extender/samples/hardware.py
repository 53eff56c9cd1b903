"""The hardware of a sample node as files of /sys and /proc."""

from pathlib import Path

from extender.kubelet.machine import Machine


def write_machine(root: Path, machine: Machine) -> None:
    """Write /sys and /proc of the machine below *root*."""
    system = root / "sys/devices/system"
    write(system / "cpu/online", f"0-{machine.num_cpus - 1}")
    for cpu in machine.cpus:
        topology = system / f"cpu/cpu{cpu.cpu}/topology"
        write(topology / "core_id", str(cpu.core_id))
        write(topology / "physical_package_id", str(cpu.socket))
        link = system / f"node/node{cpu.numa}/cpu{cpu.cpu}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../cpu/cpu{cpu.cpu}")
    for node in machine.numa_nodes:
        directory = system / f"node/node{node.id}"
        write(directory / "meminfo", f"Node {node.id} MemTotal: {node.memory_bytes >> 10} kB")
        write(directory / "distance", " ".join(map(str, node.distances)))
        for page_bytes, pages in node.hugepages.items():
            write(directory / f"hugepages/hugepages-{page_bytes >> 10}kB/nr_hugepages", str(pages))
    write(root / "proc/cpuinfo", "\n".join(f"processor\t: {c.cpu}\nphysical id\t: {c.socket}\n" for c in machine.cpus))
    total = sum(node.memory_bytes for node in machine.numa_nodes)
    write(root / "proc/meminfo", f"MemTotal: {total >> 10} kB")


def write(path: Path, text: str) -> None:
    """Write one file with a line end, and create its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
