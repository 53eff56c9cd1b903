"""Answers of the coarse replay: what `extender.kubelet.verdict` says, without ids, amounts and messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from extender.kubelet.verdict import Provider, Reason, When
from extender.replay.coarse.amounts import Kinds


class CoarseRejected(NamedTuple):
    """The managers refuse the pod; the fields are those of `verdict.Rejected`."""

    reason: Reason
    provider: Provider
    container: str | None
    resource: str | None
    when: When


class CoarsePlacement(NamedTuple):
    """Where one container is placed.

    `affinity` and `preferred` are what the Topology Manager stored. `cpus` and `memory` are raw masks of the NUMA nodes
    that its exclusive CPUs and its memory blocks are on, 0 for none. `devices`: how many of each kind, by resource.
    """

    affinity: int | None
    preferred: bool
    cpus: int
    memory: int
    devices: tuple[tuple[str, Kinds], ...]


class Taken(NamedTuple):
    """What an admission takes, and what follows for the amounts of the node.

    `cpus` and `physical`: CPUs by position, as in `CPUAmounts`; None where ids decide, `physical` also where nothing
    depends on it. `bytes`: by memory type, for each NUMA node. `joined` and `left`: NUMA nodes that come into a group
    and out of one, as raw masks. `devices`: how many of each kind, by resource.
    """

    cpus: tuple[int, ...] | None
    physical: tuple[int, ...] | None
    bytes: Mapping[str, tuple[int, ...]]
    joined: int
    left: int
    devices: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class CoarseAdmitted:
    """The managers admit the pod. `placements` by container name, in the kubelet's order.

    One value stands for many nodes: nothing in it depends on what was free before.
    """

    placements: Mapping[str, CoarsePlacement]
    taken: Taken


CoarseVerdict = CoarseAdmitted | CoarseRejected


class IdsDecideError(Exception):
    """The answer depends on ids, or on a random choice; the full replay has to find it."""


class CoarseRefusalError(Exception):
    """A manager refuses; unwinds the walk."""

    def __init__(self, reason: Reason, provider: Provider, resource: str | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.provider = provider
        self.resource = resource
