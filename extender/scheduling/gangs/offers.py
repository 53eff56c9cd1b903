"""What a result of filter offers: whether a node is in it, and the result with one node only or with none."""

from collections.abc import Sequence
from dataclasses import replace

from extender.scheduling.feasibility import Filtered
from extender.wire.node_names import NodeNames


def is_feasible(filtered: Filtered, name: str) -> bool:
    """Whether the node is feasible."""
    return has_name(filtered.feasible, name)


def has_name(names: Sequence[str], name: str) -> bool:
    """Whether the name is among those of a call. Names in one text are looked for without splitting it."""
    if isinstance(names, NodeNames) and names.spans is not None:
        return f'"{name}"'.encode() in names.packed
    return name in names


def only(filtered: Filtered, name: str) -> Filtered:
    """*filtered* with one feasible node. The others are left out without a reason: they do not refuse the pod."""
    if not name:
        return filtered
    feasible = NodeNames.of([name]) if isinstance(filtered.feasible, NodeNames) else [name]
    return replace(filtered, feasible=feasible)


def refuse_all(filtered: Filtered, text: str) -> Filtered:
    """*filtered* with all feasible nodes refused."""
    return Filtered(feasible=(), refused={**filtered.refused, **dict.fromkeys(filtered.feasible, text)})
