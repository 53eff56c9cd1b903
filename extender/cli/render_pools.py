"""Pools of the NRI topology-aware policy as text: the tree of a node, and how they compare for a container."""

from collections.abc import Iterable, Iterator, Sequence

from rich.text import Text

from extender.cli.units import amount, bar, cpus
from extender.kubelet.sets import bits_of, format_list, parse_list
from extender.nri.requests import CPUType
from extender.questions.words import plural
from extender.wire.pod_replies import PoolsStep
from extender.wire.pools import PoolGrantView, PoolView
from extender.wire.verdicts import PolicyPlacement


def pool_placement_line(placement: PolicyPlacement) -> str:
    """Where the policy puts one container."""
    parts = []
    if placement.cpus:
        parts.append(f"CPUs {placement.cpus}")
    if placement.shared_millicpu or not placement.cpus:
        parts.append(f"{cpus(placement.shared_millicpu)} shared")
    if placement.cpuset != placement.cpus:
        parts[-1] += " (not pinned)" if placement.cpuset is None else f" (runs on {placement.cpuset})"
    moved = f"; memory of {plural(placement.widens, 'other container')} moves" if placement.widens else ""
    memory = f"{amount(placement.memory_bytes)} on NUMA {numa(placement.memory_numa)}"
    return f"{placement.container}: {placement.pool}; {' + '.join(parts)}; {memory}{moved}"


def comparison_lines(step: PoolsStep) -> Iterator[str]:
    """A table of all pools for one container, the used one first."""
    if not step.pools:
        yield f"{step.container}: the root pool, without a comparison"
        return
    yield f"{step.container}: pools of the NRI policy"
    rows = [
        (
            pool.pool,
            f"{cpus(-pool.shared_left_millicpu)} short"
            if pool.shared_left_millicpu < 0
            else f"{cpus(pool.shared_left_millicpu)} left",
            "no memory" if pool.memory_numa is None else f"memory on NUMA {numa(pool.memory_numa)}",
            *(() if pool.hint_score is None else (f"{pool.hint_score:.0%} close to devices",)),
            pool.why_not or ("first, and refused" if step.refusal else "used"),
        )
        for pool in step.pools
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if step.pools_left_out:
        yield f"  … and {step.pools_left_out} more pools"
    if step.refusal:
        yield f"  refused: {step.refusal}"


def pool_text(pool: PoolView) -> Text:
    """A pool: one line for the CPUs, one for each type of memory, one for each container."""
    indent = "  " * (pool.depth + 1)
    reserved = _count(pool.reserved_cpus)
    isolated = _count(pool.isolated_cpus)
    total = pool.capacity_millicpu - 1000 * reserved
    text = Text(f"{indent[2:]}{pool.name}", style="bold")
    text.append(f"  {cpus(max(0, pool.free_millicpu))} left of {total / 1000:g} shared", style="")
    parts = [f"{pool.exclusive_count} exclusive"] if pool.exclusive_count else []
    if pool.shared_used_millicpu:
        parts.append(f"{pool.shared_used_millicpu / 1000:g} in use as shares")
    if reserved:
        parts.append(f"{reserved} more reserved")
    if isolated:
        free = "an unknown number" if pool.free_isolated is None else pool.free_isolated
        parts.append(f"{free} of {isolated} isolated free")
    text.append(f"  ({', '.join(parts)})\n" if parts else "\n", style="")
    if pool.free_millicpu < 0:
        text.append(f"{indent}no CPU is left to share: every further container is refused\n", style="red")
    for memory in pool.memory[:1]:
        text.append_text(Text.assemble(indent, bar(memory.left_bytes, memory.total_bytes)))
        types = " + ".join(f"{amount(m.total_bytes)} {m.type}" for m in pool.memory[1:])
        of = f"{amount(memory.total_bytes)} on NUMA {numa(memory.numa)}" + (f" ({types})" if types else "")
        text.append(f" {amount(memory.left_bytes)} left of {of}\n", style="")
    for grant in pool.containers or ():
        text.append(f"{indent}{grant.namespace}/{grant.pod} {_held(grant)}\n", style="")
    text.right_crop(1)  # of the last line
    return text


def _held(grant: PoolGrantView) -> str:
    parts = [f"CPUs {grant.cpus}"] if grant.cpus else []
    if grant.cpu_type is CPUType.PRESERVE:
        parts.append("any CPUs")
    elif grant.millicpu or not grant.cpus:
        parts.append(f"{cpus(grant.millicpu)} {'reserved' if grant.cpu_type is CPUType.RESERVED else 'shared'}")
    memory = f", {amount(grant.memory_bytes)} on NUMA {numa(grant.memory_numa)}" if grant.memory_numa else ""
    return f"{grant.container}: {' + '.join(parts)}{memory}"


def _count(linux_list: str) -> int:
    return parse_list(linux_list).bit_count()


def numa(numbers: Iterable[int]) -> str:
    """Ids of NUMA nodes in short: `0-3,8`."""
    return format_list(bits_of(numbers))


def free_of_pools(pools: Sequence[PoolView]) -> str:
    """What the root pool has left of its shared CPUs."""
    root = pools[0]
    total = root.capacity_millicpu - 1000 * _count(root.reserved_cpus)
    return f"{max(0, root.free_millicpu) / 1000:g}/{total / 1000:g}"
