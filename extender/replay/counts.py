"""A node of which only counts per NUMA node are known, from NodeResourceTopology objects of other publishers.

Rules of this file
- Counts never admit a pod. They can only prove that an admission must fail; see `extender.scheduling.counts_only`.
- An unknown value is None or missing, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.kubelet.rules import NEWEST_MINOR, Rules
from extender.nri.counts import NriCounts

NEWEST_RULES: Final = Rules.of(f"v1.{NEWEST_MINOR}.0", {}, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneCounts:
    """What is available on one NUMA node, or on one group of nodes with devices in common.

    `cpus`: exclusive CPUs, None if unknown. `devices`: by resource; a resource that is missing has no device here.
    """

    numa: tuple[int, ...]
    cpus: int | None = None
    devices: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """All zones of a node, sorted by `numa`, and its policies as far as they are known.

    `rules`: the rules of its kubelet, or of the newest version if the version is unknown. `policy` and `scope`: the
    kubelet's names, empty if unknown. `cpu_static`: exclusive CPUs are known to be allocated. `devices_current`: the
    publisher is known to notice device plugins that register late, so that missing devices prove something. `nri`: the
    pools of the NRI topology-aware policy, None if the node is not known to run it.
    """

    rules: Rules
    policy: str
    scope: str
    cpu_static: bool
    devices_current: bool
    zones: tuple[ZoneCounts, ...]
    publisher: str = ""
    nri: NriCounts | None = None

    def cpus_by_node(self) -> list[int] | None:
        """Exclusive CPUs available on each NUMA node.

        None if one node's are unknown, or none are allocated exclusively.
        """
        if not self.cpu_static:
            return None
        cpus = [zone.cpus for zone in self.zones if len(zone.numa) == 1]
        known = [each for each in cpus if each is not None]
        return known if known and len(known) == len(cpus) else None

    def most_devices(self, resource: str) -> int | None:
        """The largest number of available devices on one NUMA node. None if no zone has the resource."""
        by_zone = [(zone.numa, dict(zone.devices)) for zone in self.zones]
        if not any(resource in devices for _, devices in by_zone):
            return None
        nodes = {node for numa, _ in by_zone for node in numa}
        return max(sum(d.get(resource, 0) for numa, d in by_zone if node in numa) for node in nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counts as they were published. `facts`: what people see of them, a JSON object."""

    node_name: str
    counts: Counts
    facts: Mapping[str, object] = field(default_factory=dict)
