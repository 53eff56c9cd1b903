"""The candidates of one request, with their classes at one moment."""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.cluster.node_class import NodeClass


@dataclass(frozen=True, slots=True)
class Candidates:
    """Node names in the order of the request, their classes in the same order, and the distinct classes."""

    names: Sequence[str]
    classes: Sequence[NodeClass]
    distinct: frozenset[NodeClass]

    @classmethod
    def of(cls, names: Sequence[str], classes: Sequence[NodeClass]) -> "Candidates":
        """The candidates *names*, whose classes are *classes*."""
        return cls(names, classes, frozenset(classes))
