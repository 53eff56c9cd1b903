"""The NUMA map of one node for the terminal: sockets, NUMA nodes, CPUs by holder, memory and devices.

Each CPU is one character, so that the map can be read without colours: `·` free, `-` reserved, a letter for each pod.
The legend is below the map. A column is a core, with its threads one below the other.
"""

from collections.abc import Sequence
from itertools import cycle
from string import ascii_letters
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from extender.api.nodes.models import DeviceView, HolderView, NodeDetail, NUMANodeView
from extender.cli.render_pools import pool_text
from extender.cli.units import amount, bar, short
from extender.kubelet.sets import iter_bits, parse_list

CORES_A_LINE: Final = 64
FREE, RESERVED, SHARED = "·", "-", "="
_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")


class _Holders:
    """Assigns a letter and a colour to each pod with exclusive resources."""

    def __init__(self, holders: Sequence[HolderView]) -> None:
        marks = cycle(ascii_letters)
        colours = cycle(_COLOURS)
        self.by_pod: dict[str, tuple[str, str]] = {}
        self.names: dict[str, str] = {}
        self.held: dict[str, list[HolderView]] = {}
        self.cpus: dict[int, str] = {}
        for holder in holders:
            uid = holder.pod_uid
            if uid not in self.by_pod:
                self.by_pod[uid] = next(marks), next(colours)
                self.names[uid] = f"{holder.namespace}/{holder.pod}" if holder.pod else uid
            self.held.setdefault(uid, []).append(holder)
            for cpu in iter_bits(parse_list(holder.cpus)):
                self.cpus[cpu] = uid

    def cpu(self, cpu: int) -> tuple[str, str] | None:
        """Letter and colour of the pod that has a CPU."""
        uid = self.cpus.get(cpu)
        return None if uid is None else self.by_pod[uid]


def node_map(node: NodeDetail) -> RenderableType:
    """The map of a node, given as `NodeDetail`."""
    head = Text(f"{node.name}  ", style="bold")
    head.append(f"{node.kubelet_version or 'kubelet unknown'}  ", style="")
    if node.resource_policy:
        return _policy_map(node, head)
    if not node.topology:
        problems = "\n".join(f"  {each.path}: {each.reason}" for each in node.problem_list)
        return head.append(f"no map: too little is known of the node\n{problems}", style="")
    head.append(f"{node.topology_policy}/{node.topology_scope}  ", style="")
    free = f"{node.free_cpus} of {node.cpus} CPUs free" if node.cpu_policy == "static" else f"{node.cpus} CPUs shared"
    free = f"free CPUs of {node.cpus} unknown" if "cpu" in node.hidden else free
    head.append(f"{free}  {node.certainty}", style="")
    holders = _Holders(sorted(node.holders, key=_order))
    numa = {each.id: each for each in node.topology}
    panels = []
    shown: set[int] = set()
    for socket in node.sockets:
        ids = [i for i in socket.numa if i not in shown]
        shown |= set(ids)
        panels.append(_panel(f"socket {socket.id}", [numa[i] for i in ids], node, holders))
    if rest := [numa[i] for i in sorted(numa.keys() - shown)]:
        panels.append(_panel("without CPUs", rest, node, holders))
    return Group(head, *panels, _legend(holders))


def _policy_map(node: NodeDetail, head: Text) -> RenderableType:
    """The map of a node on which the NRI topology-aware policy places containers."""
    head.append(f"NRI topology-aware  {node.certainty}", style="")
    problems = "".join(f"\n  {each.path}: {each.reason}" for each in node.problem_list)
    if not node.pools:
        return head.append(f"\nits pools are not known{problems}", style="")
    if node.pools[0].containers is None:
        head.append("\nonly what the plugin publishes is known: no CPU ids, no containers", style="yellow")
    return Group(head.append(problems, style=""), *map(pool_text, node.pools))


def _order(holder: HolderView) -> tuple[str, int, str]:
    """Sort key of holders: by name, with `worker-9` before `worker-10`."""
    name = f"{holder.namespace}/{holder.pod}" if holder.pod else holder.pod_uid
    return name.rstrip("0123456789"), len(name), name


def _panel(title: str, nodes: Sequence[NUMANodeView], node: NodeDetail, holders: _Holders) -> Panel:
    parts = [_numa(each, node, holders) for each in nodes]
    return Panel(Group(*parts), title=title, title_align="left", expand=False)


def _numa(numa: NUMANodeView, node: NodeDetail, holders: _Holders) -> Text:
    room = numa.free_room
    text = Text(f"NUMA {numa.id}", style="bold")
    largest = [f"{room.cpus} CPUs"] if node.cpu_policy == "static" else []
    largest += [amount(size) for kind, size in room.memory.items() if kind == "memory"]
    largest += [f"{count} {short(resource)}" for resource, count in room.devices.items()]
    text.append(f"  largest request: {', '.join(largest)}\n" if largest else "\n", style="")
    text.append_text(_cpus(numa, node, holders))
    for kind, memory in sorted(numa.memory.items(), key=lambda item: item[0] != "memory"):
        if memory.total:
            total, free = memory.allocatable, memory.free
            text += Text.assemble("  ", bar(free, total), f" {kind}: {amount(free)} of {amount(total)} free\n")
    if not numa.memory:
        text.append(f"  memory {amount(numa.memory_bytes)}, not counted per NUMA node\n", style="")
    for resource, devices in node.device_list.items():
        own = [device for device in devices if numa.id in (device.numa or ())]
        if own:
            text.append_text(_devices(resource, own, holders))
    return text


def _cpus(numa: NUMANodeView, node: NodeDetail, holders: _Holders) -> Text:
    """One line for each thread of the cores, `CORES_A_LINE` cores in a line."""
    reserved, free = parse_list(numa.reserved_cpus), parse_list(numa.free_cpus)
    static = node.cpu_policy == "static"
    text = Text()
    cores = numa.cores
    for start in range(0, len(cores), CORES_A_LINE):
        row = cores[start : start + CORES_A_LINE]
        for thread in range(max(map(len, row))):
            cpus = [core[thread] if thread < len(core) else None for core in row]
            first = next((cpu for cpu in cpus if cpu is not None), 0)
            text.append(f"  {first:>4} ", style="dim")
            for cpu in cpus:
                text.append(*_cpu(cpu, reserved, free, holders, static=static))
            text.append("\n")
    return text


def _cpu(cpu: int | None, reserved: int, free: int, holders: _Holders, *, static: bool) -> tuple[str, str]:
    if cpu is None:
        return " ", ""
    held = holders.cpu(cpu)
    if held is not None:
        return held
    if reserved >> cpu & 1:
        return RESERVED, "dim"
    return (FREE, "dim") if free >> cpu & 1 and static else (SHARED, "dim")


def _devices(resource: str, devices: Sequence[DeviceView], holders: _Holders) -> Text:
    text = Text("  ")
    for device in devices:
        mark, colour = holders.by_pod.get(device.held_by or "", (FREE, "dim"))
        text.append("!" if not device.healthy else mark, style="red" if not device.healthy else colour)
    free = sum(device.healthy and device.held_by is None for device in devices)
    text.append(f" {resource}: {free} of {len(devices)} free\n", style="")
    return text


def _legend(holders: _Holders) -> Text:
    text = Text(f"{FREE} free  {RESERVED} reserved  {SHARED} shared  ! unhealthy\n")
    for uid, (mark, colour) in holders.by_pod.items():
        text.append(f"{mark} ", style=colour)
        holdings = "; ".join(_held(holder) for holder in holders.held[uid])
        text.append(f"{holders.names[uid]}: {holdings}\n", style="")
    return text


def _held(holder: HolderView) -> str:
    parts = [f"CPUs {holder.cpus}"] if holder.cpus else []
    parts += [f"{amount(b.size)} {b.type} on NUMA {','.join(map(str, b.numa))}" for b in holder.memory]
    parts += [", ".join(ids) for ids in holder.devices.values()]
    return f"{holder.container or 'pod'} {', '.join(parts) or 'nothing exclusive'}"
