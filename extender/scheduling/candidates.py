"""The candidates of one request, with the picture of the cluster that was taken of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from extender.cluster.node_class import NodeClass


@dataclass(frozen=True, slots=True)
class Candidates:
    """Names in the order asked, the class of each in the same order, and the different classes among them."""

    names: Sequence[str]
    classes: Sequence[NodeClass]
    distinct: frozenset[NodeClass]

    @classmethod
    def of(cls, names: Sequence[str], classes: Sequence[NodeClass]) -> "Candidates":
        """The candidates *names*, whose classes are *classes*."""
        return cls(names, classes, frozenset(classes))
