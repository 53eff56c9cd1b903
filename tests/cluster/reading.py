"""How a test reads the node store at a time."""

from collections.abc import Iterable

from extender.cluster.node_class import NodeClass
from extender.cluster.store import NodeStore


def classes_at(store: NodeStore, names: Iterable[str], now: float) -> list[NodeClass]:
    """The class of each name, with the timeouts applied that have expired by *now*."""
    store.expire(now)
    return store.classes_of(names)
