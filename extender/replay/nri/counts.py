"""What the zones of a NodeResourceTopology object alone prove about a container.

The plugin publishes a zone for each pool (`policy/topology-aware-policy.go` GetTopologyZones). Without grants and
configuration nobody can say where a container goes. Two refusals can be proven all the same, from the zone of the root:

- No pool can give more shared CPU than the root can. A pool can give 1m more than the root shows, because a container
  that requests no CPU counts for the pools above it only (`policy/pools.go` hasZeroCpuReqContainer).
- Memory that is booked on all nodes together, with the new container's, never exceeds what the nodes have.
"""

from dataclasses import dataclass

from extender.replay.nri.requests import CPUType, Request
from extender.replay.nri.verdict import Refusal


@dataclass(frozen=True, slots=True)
class RootCounts:
    """`available` of the root's zone: mCPU (-1 on a drained node with containers that request no CPU) and bytes."""

    available_millicpu: int
    available_memory_bytes: int


def refused_by_counts(counts: RootCounts, request: Request) -> Refusal | None:
    """The refusal that *counts* prove for *request*; None where they prove none. It may still be refused."""
    if request.memory_bytes > counts.available_memory_bytes:
        return Refusal.OFFER
    if request.cpu_type is not CPUType.NORMAL or request.isolate:
        return None
    if 1000 * request.full + request.fraction > counts.available_millicpu + 1:
        return Refusal.SLICE if request.full else Refusal.FRACTION
    return None
