"""Reads whole state files of the kubelet's managers, as a report brings them."""

from typing import Any

from extender.kubelet.observed import CPU_FIELD, MEMORY_FIELD
from extender.kubelet.sets import MAX_CPU_ID
from extender.kubelet.state import CPUState, MemoryState
from extender.wire.state_files import cpu_state, memory_state, restored


def cpu_state_from_json(document: dict[str, Any]) -> CPUState | None:
    """As `cpu_state`. Raises WireError as well if no kubelet starts with the file."""
    return cpu_state(restored(document, CPU_FIELD), MAX_CPU_ID)


def memory_state_from_json(document: dict[str, Any]) -> MemoryState | None:
    """As `memory_state`. Raises WireError as well if no kubelet starts with the file."""
    return memory_state(restored(document, MEMORY_FIELD))
