"""What the API server says of nodes: which ones exist, and the kubelet version of each."""

from collections.abc import Iterable, Iterator
from typing import Final

STRAY_SECONDS: Final = 60.0
"""How long a node with a report is kept that the API server does not have. The watch of nodes can be late."""


class NodeObjects:
    """The nodes of the API server, as the watch of nodes shows them. The rules of `store` hold here too."""

    def __init__(self) -> None:
        self._existing: frozenset[str] | None = None
        self._versions: dict[str, str] = {}
        self._strays: dict[str, float] = {}
        """Nodes with a report that the API server did not have then, and since when."""

    def set_existing(self, names: Iterable[str], reported: Iterable[str], now: float) -> None:
        """Every node that the API server has. *reported*: every node with a report."""
        before, self._existing = self._existing, frozenset(names)
        if before is None:
            self._strays |= dict.fromkeys(set(reported) - self._existing, now)

    def may_exist(self, name: str) -> bool:
        """False only for a node that certainly does not exist in the API server."""
        return self._existing is None or name in self._existing

    def see_version(self, name: str, version: str) -> None:
        """Set the kubelet version in the node's API object; "" while the kubelet has not registered."""
        self._versions[name] = version

    def version_of(self, name: str) -> str:
        """The kubelet version in the node's API object; "" if unknown."""
        return self._versions.get(name, "")

    def note_report(self, name: str, now: float) -> None:
        """There is a report of the node."""
        if not self.may_exist(name):
            self._strays.setdefault(name, now)

    def take_strays(self, now: float) -> Iterator[str]:
        """Nodes that have reported and that the API server has not had for a while. Each is returned once."""
        while self._strays:
            name, since = next(iter(self._strays.items()))
            if now - since < STRAY_SECONDS:
                return
            del self._strays[name]
            if not self.may_exist(name):
                yield name

    def forget(self, name: str) -> None:
        """The node was deleted. A later node of the same name is another node."""
        self._versions.pop(name, None)
        self._strays.pop(name, None)
