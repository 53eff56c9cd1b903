"""The alignment that pods demand by labels of their namespace. A pod's own annotations have precedence, key by key."""

from collections.abc import Mapping
from dataclasses import replace

from extender.replay.demand import NO_DEMAND, Demand
from extender.replay.pod import Pod


class NamespaceDemands:
    """The demands of namespaces that have one, by name. Empty if namespaces are not watched."""

    def __init__(self) -> None:
        self._by_name: dict[str, Demand] = {}

    def set(self, namespace: str, demand: Demand) -> None:
        """The namespace has these labels now. Values that are passed to readers are never changed afterwards."""
        if demand != NO_DEMAND:
            self._by_name = {**self._by_name, namespace: demand}
        elif namespace in self._by_name:
            self._by_name = {name: each for name, each in self._by_name.items() if name != namespace}

    def all(self) -> Mapping[str, Demand]:
        """Every namespace with a demand."""
        return self._by_name

    def complete(self, pod: Pod) -> Pod:
        """The pod with the demands of its namespace."""
        return with_default(pod, self._by_name.get(pod.namespace, NO_DEMAND))


def with_default(pod: Pod, default: Demand) -> Pod:
    """The pod with *default* for the parts that its own demand leaves open."""
    demand = pod.demand.or_default(default, [container.name for container in pod.containers])
    return pod if demand == pod.demand else replace(pod, demand=demand)
